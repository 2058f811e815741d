//! JSON-RPC messages of a server, as text. Only the members that decide where a message goes are
//! read.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::Members;

/// The members of a message, each as it is written.
#[derive(Debug, Deserialize)]
pub struct UpstreamMessage<'a> {
    #[serde(borrow, default)]
    pub id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub error: Option<&'a RawValue>,
}

/// What an error says.
#[derive(Debug, Deserialize)]
struct ErrorMembers<'a> {
    #[serde(default)]
    code: i32,
    #[serde(borrow, default)]
    message: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Progress<'a> {
    #[serde(borrow, rename = "progressToken")]
    token: &'a RawValue,
}

#[derive(Deserialize)]
struct WithMeta<'a> {
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<Meta<'a>>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/subscriptionId")]
    subscription: Option<&'a RawValue>,
}

impl<'a> UpstreamMessage<'a> {
    /// None for a text that is no JSON object.
    pub fn read(text: &'a [u8]) -> Option<Self> {
        // serde would read an array as the members of a message.
        let text = std::str::from_utf8(text).ok()?.trim_ascii();
        if !text.starts_with('{') {
            return None;
        }
        serde_json::from_str(text).ok()
    }

    /// Whether it ends the request with this id.
    pub fn answers(&self, id: &str) -> bool {
        self.method.is_none() && self.id.is_some_and(|own| own.get() == id)
    }

    pub fn is_answer(&self) -> bool {
        self.method.is_none() && (self.result.is_some() || self.error.is_some())
    }

    /// Code and text of an error.
    pub fn error(&self) -> Option<(i32, String)> {
        let error: ErrorMembers<'_> = serde_json::from_str(self.error?.get()).ok()?;
        Some((error.code, error.message.into_owned()))
    }

    /// The token of a progress report.
    pub fn progress_token(&self) -> Option<&'a RawValue> {
        if self.method.as_deref() != Some("notifications/progress") {
            return None;
        }
        let progress: Progress<'a> = serde_json::from_str(self.params?.get()).ok()?;
        Some(progress.token)
    }

    /// The request that a notification of the stateless era belongs to.
    pub fn subscription(&self) -> Option<&'a RawValue> {
        let params: WithMeta<'a> = serde_json::from_str(self.params?.get()).ok()?;
        params.meta?.subscription
    }
}

/// The message with another id. Everything else stays as it is written.
pub fn with_id(text: &[u8], id: &str) -> Option<Vec<u8>> {
    with_member(text, "id", id)
}

/// The object with another value for this member, which is added where it isn't there.
pub fn with_member(text: &[u8], name: &str, value: &str) -> Option<Vec<u8>> {
    let members: Members<'_> = serde_json::from_slice(text.trim_ascii()).ok()?;
    let mut changed = Vec::with_capacity(text.len() + value.len() + name.len());
    let mut found = false;
    changed.push(b'{');
    let mut write = |key: &str, value: &str| {
        if changed.len() > 1 {
            changed.push(b',');
        }
        let key = serde_json::to_string(key).unwrap_or_default();
        changed.extend_from_slice(key.as_bytes());
        changed.push(b':');
        changed.extend_from_slice(value.as_bytes());
    };
    for (key, old) in &members.0 {
        if key == name {
            found = true;
            write(key, value);
        } else {
            write(key, old.get());
        }
    }
    if !found {
        write(name, value);
    }
    changed.push(b'}');
    Some(changed)
}

/// The same JSON on one line. In JSON, a line can only end between values.
pub fn compact(text: &[u8]) -> Vec<u8> {
    let space = |byte: &u8| match byte {
        b'\n' | b'\r' => b' ',
        other => *other,
    };
    text.iter().map(space).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_replaced_and_the_rest_stays_as_it_is_written() {
        let text = br#"{"jsonrpc":"2.0","result":{"x":1.0,"big":123456789012345678901},"id":7}"#;
        let changed = with_id(text, "\"a\"").unwrap();
        assert_eq!(
            String::from_utf8(changed).unwrap(),
            r#"{"jsonrpc":"2.0","result":{"x":1.0,"big":123456789012345678901},"id":"a"}"#
        );
        let added = with_member(b"{}", "id", "1").unwrap();
        assert_eq!(added, br#"{"id":1}"#);
        assert!(with_id(b"[1]", "1").is_none());
        assert_eq!(
            compact(b"{\n \"a\": \"x\\n\"\r\n}"),
            b"{  \"a\": \"x\\n\"  }"
        );
    }

    #[test]
    fn message_is_read_by_its_members() {
        let read = |text: &'static str| UpstreamMessage::read(text.as_bytes());
        let answer =
            read(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-5,"message":"no"}}"#).unwrap();
        assert!(answer.answers("7") && !answer.answers("8") && answer.is_answer());
        assert_eq!(answer.error(), Some((-5, "no".to_owned())));
        let ask = read(r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage"}"#).unwrap();
        assert!(!ask.answers("7") && !ask.is_answer());
        let progress = r#"{"method":"notifications/progress","params":{"progressToken":"t"}}"#;
        assert_eq!(
            read(progress).unwrap().progress_token().unwrap().get(),
            "\"t\""
        );
        let told = r#"{"method":"notifications/x","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":4}}}"#;
        assert_eq!(read(told).unwrap().subscription().unwrap().get(), "4");
        assert!(read("[]").is_none() && read("x").is_none());
    }
}
