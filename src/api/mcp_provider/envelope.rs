//! A client's message as the server gets it. Scopes, limits and records are decided by what ati
//! reads in a message, so a server must not read anything else in it: many take member names in any
//! case, and the last of those that are equal to them. The message is written anew from the members
//! that ati knows, and names that a server might take for one of them are refused.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::call::MOST_VALUES;
use crate::error::{RpcError, RpcRefusal};
use crate::json;
use crate::mcp::{Received, text_of};
use crate::telemetry::audit;

/// Members of a message, and of the objects in it that are read. No client needs as many.
const MOST_MEMBERS: usize = 256;
const OF_MESSAGE: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
const OF_PARAMS: [&str; 8] = [
    "name",
    "arguments",
    "uri",
    "ref",
    "cursor",
    "requestId",
    "protocolVersion",
    "_meta",
];
const OF_META: [&str; 2] = ["progressToken", "io.modelcontextprotocol/protocolVersion"];

/// A message that was checked.
pub struct Envelope {
    /// What the server is sent.
    pub text: Vec<u8>,
    /// Arguments of a request as the audit keeps them.
    pub args: Box<RawValue>,
}

/// The members of an object, each value as it is written.
struct FewMembers<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for FewMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FewMembersVisitor)
    }
}

struct FewMembersVisitor;

impl<'de> Visitor<'de> for FewMembersVisitor {
    type Value = FewMembers<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            if members.len() >= MOST_MEMBERS {
                return Err(A::Error::custom("too many members"));
            }
            members.push(member);
        }
        Ok(FewMembers(members))
    }
}

impl<'a> FewMembers<'a> {
    /// What is wrong is told as text.
    fn read(text: &'a str, known: &[&str]) -> Result<Self, String> {
        let members: Self = serde_json::from_str(text)
            .map_err(|_| format!("no object, or one with more than {MOST_MEMBERS} members"))?;
        let mut seen = Vec::with_capacity(members.0.len());
        for (name, _) in &members.0 {
            let folded = folded(name);
            let is_misspelt = |known: &&str| self::folded(known) == folded && *known != name;
            if let Some(known) = known.iter().find(|known| is_misspelt(known)) {
                return Err(format!("a member is like '{known}' and isn't"));
            }
            seen.push(folded);
        }
        seen.sort_unstable();
        if seen.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("two members have the same name, apart from case".to_owned());
        }
        Ok(members)
    }

    fn get(&self, name: &str) -> Option<&'a RawValue> {
        let found = self.0.iter().find(|(one, _)| one == name);
        found.map(|(_, value)| *value)
    }
}

/// The name as readers that ignore case compare it. `ſ` is an s to them, and the Kelvin sign a k;
/// to some both Turkish i are one.
fn folded(name: &str) -> String {
    name.chars()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .filter(|c| *c != '\u{307}')
        .collect()
}

impl Envelope {
    /// `received` is what was read of the same text.
    pub fn check(text: &[u8], received: &Received) -> Result<Self, RpcRefusal> {
        Self::rebuild(text, received).map_err(|error| match received {
            Received::Request(request) => request.refuse(error),
            _ => RpcRefusal {
                error,
                era: crate::mcp::Era::Handshake,
                id: None,
            },
        })
    }

    fn rebuild(text: &[u8], received: &Received) -> Result<Self, RpcError> {
        let text = std::str::from_utf8(text).unwrap_or_default().trim_ascii();
        let members = FewMembers::read(text, &OF_MESSAGE).map_err(RpcError::Invalid)?;
        let params = members.get("params").filter(|it| it.get() != "null");
        if let Some(params) = params {
            let params = FewMembers::read(params.get(), &OF_PARAMS).map_err(RpcError::Params)?;
            let meta = params.get("_meta").filter(|it| it.get() != "null");
            if let Some(meta) = meta {
                FewMembers::read(meta.get(), &OF_META).map_err(RpcError::Params)?;
            }
        }
        let mut args = RawValue::NULL.to_owned();
        let mut names = vec!["jsonrpc"];
        if let Received::Request(request) = received {
            let is_call = request.method == "tools/call";
            if is_call && request.name.is_none() {
                let what = "name is no text that can be read".to_owned();
                return Err(RpcError::Params(what));
            }
            args = recorded(params.map_or("{}", RawValue::get), is_call)?;
            names.extend(["id", "method", "params"]);
        } else if let Some(method) = members.get("method") {
            let method = text_of(method).unwrap_or_default();
            if !method.starts_with("notifications/") {
                let what = "a request without an id".to_owned();
                return Err(RpcError::Invalid(what));
            }
            names.extend(["method", "params"]);
        } else if members.get("result").is_some() {
            names.extend(["id", "result"]);
        } else {
            names.extend(["id", "error"]);
        }
        let mut rebuilt = Vec::with_capacity(text.len());
        for name in names {
            let Some(value) = members.get(name) else {
                continue;
            };
            if name == "params" && params.is_none() {
                continue;
            }
            rebuilt.push(if rebuilt.is_empty() { b'{' } else { b',' });
            rebuilt.extend_from_slice(format!("\"{name}\":").as_bytes());
            rebuilt.extend_from_slice(value.get().as_bytes());
        }
        rebuilt.push(b'}');
        Ok(Envelope {
            text: rebuilt,
            args,
        })
    }
}

/// What the audit keeps of the params. They are parsed whole: what ati can't read it can't record,
/// and the server may read it.
fn recorded(params: &str, is_call: bool) -> Result<Box<RawValue>, RpcError> {
    let unread = |_| RpcError::Params("params can't be read".to_owned());
    let mut params: Map<String, Value> = json::parse(params, MOST_VALUES).map_err(unread)?;
    if !is_call {
        params.shift_remove("_meta");
        return Ok(audit::redact(&params));
    }
    match params.shift_remove("arguments") {
        None | Some(Value::Null) => Ok(audit::redact(&Map::new())),
        Some(Value::Object(args)) => Ok(audit::redact(&args)),
        Some(_) => Err(RpcError::Params("arguments is no object".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<(String, String), i32> {
        let received = Received::read(text.as_bytes(), None).map_err(|no| no.error.code())?;
        let envelope = Envelope::check(text.as_bytes(), &received);
        let envelope = envelope.map_err(|no| no.error.code())?;
        let text = String::from_utf8(envelope.text).unwrap();
        Ok((text, envelope.args.get().to_owned()))
    }

    #[test]
    fn name_that_a_server_may_take_for_another_is_refused() {
        let message = |rest: &str| format!(r#"{{"jsonrpc":"2.0",{rest}}}"#);
        for (rest, code) in [
            (r#""id":4,"method":"ping","Method":"tools/call""#, -32600),
            (r#""id":4,"method":"ping","METHOD":"x""#, -32600),
            (r#""id":4,"method":"ping","param\u017f":{}"#, -32600),
            (
                r#""id":7,"result":{},"Method":"tools/call","Params":{}"#,
                -32600,
            ),
            (r#""id":7,"result":{},"ID":8"#, -32600),
            (r#""id":7,"result":{},"x":1,"X":2"#, -32600),
            (
                r#""id":3,"method":"tools/call","params":{"name":"a","Name":"b"}"#,
                -32602,
            ),
            (
                r#""id":3,"method":"tools/call","params":{"name":"a","\u004eame":"b"}"#,
                -32602,
            ),
            (
                r#""id":3,"method":"tools/call","params":{"name":"a","argument\u017f":{}}"#,
                -32602,
            ),
            (
                r#""id":3,"method":"tools/call","params":{"name":"a","x":1,"x":2}"#,
                -32602,
            ),
            (
                r#""id":3,"method":"resources/read","params":{"uri":"a","uR\u0131":"b"}"#,
                -32602,
            ),
            (
                r#""id":3,"method":"x","params":{"_meta":{"progressTo\u212aen":1}}"#,
                -32602,
            ),
            (
                r#""method":"notifications/x","params":{"RequestId":1}"#,
                -32602,
            ),
            (r#""method":"notifications/x","params":[1]"#, -32602),
        ] {
            assert_eq!(checked(&message(rest)), Err(code), "{rest}");
        }
    }

    #[test]
    fn message_is_sent_with_the_members_that_are_known_and_as_they_are_written() {
        let (text, args) = checked(
            r#" {"x":1,"method":"tools\/call","jsonrpc":"2.0","params":{"arguments":{"n":1.50},"name":"a","z":0},"error":5,"id":"i"} "#,
        )
        .unwrap();
        let expected = r#"{"jsonrpc":"2.0","id":"i","method":"tools\/call","params":{"arguments":{"n":1.50},"name":"a","z":0}}"#;
        assert_eq!((text.as_str(), args.as_str()), (expected, r#"{"n":1.5}"#));
        let (text, _) = checked(r#"{"jsonrpc":"2.0","id":7,"y":1,"result":{"a":[]}}"#).unwrap();
        assert_eq!(text, r#"{"jsonrpc":"2.0","id":7,"result":{"a":[]}}"#);
        let told = r#"{"jsonrpc":"2.0","id":7,"method":"notifications/x","params":null}"#;
        let (text, _) = checked(told).unwrap();
        assert_eq!(text, r#"{"jsonrpc":"2.0","method":"notifications/x"}"#);
    }

    #[test]
    fn request_without_an_id_and_what_cannot_be_recorded_are_refused() {
        let call = r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"a"}}"#;
        assert_eq!(checked(call), Err(-32600));
        for params in [
            r#"{"name":"a","arguments":{"x":1e999}}"#,
            r#"{"name":"a","arguments":{"x":"\ud800"}}"#,
            r#"{"name":"a","arguments":[1]}"#,
            r#"{"name":"\ud800"}"#,
            r#"{"arguments":{}}"#,
        ] {
            let call =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
            assert_eq!(checked(&call), Err(-32602), "{params}");
        }
        let many: String = (0..300).map(|n| format!("\"m{n}\":1,")).collect();
        let many = format!(r#"{{{many}"jsonrpc":"2.0","id":1,"method":"ping"}}"#);
        assert_eq!(checked(&many), Err(-32600));
    }
}
