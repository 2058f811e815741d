//! JSON-RPC 2.0 messages of a client, and the answers to them.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::Era;
use crate::error::RpcError;

/// Levels of nesting. serde_json parses no deeper values.
const DEEPEST: usize = 127;
/// The name of the question whether a call may run.
pub const CONFIRM: &str = "confirm";
/// Bytes of an id. Each is repeated in the answer.
const LONGEST_ID: usize = 1024;

/// What a client sent.
#[derive(Debug)]
pub enum Incoming<'a> {
    Request(Request<'a>),
    /// It is never answered.
    Notification {
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    /// The answer to a request of the server's.
    Response(&'a RawValue),
}

#[derive(Debug)]
pub struct Request<'a> {
    /// A string, a number, or null: as the client wrote it.
    pub id: &'a RawValue,
    pub method: Cow<'a, str>,
    pub params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// A member that is there, `null` included.
fn present<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(value).map(Some)
}

/// One message. A request that can't be used has no id to answer it under: where it has one all the
/// same, it is told.
pub fn parse(text: &[u8]) -> Result<Incoming<'_>, (RpcError, Option<&RawValue>)> {
    let fail = |error| (error, None);
    let text = std::str::from_utf8(text)
        .map_err(|_| fail(RpcError::Parse("the text is not UTF-8".to_owned())))?
        .trim_ascii();
    if is_too_deep(text.as_bytes()) {
        let what = format!("nested deeper than {DEEPEST} levels");
        return Err(fail(RpcError::Parse(what)));
    }
    let envelope: Envelope<'_> =
        serde_json::from_str(text).map_err(|e| fail(unparsed(text, &e)))?;
    if envelope.jsonrpc.is_none_or(|it| it.get() != "\"2.0\"") {
        let what = "jsonrpc is not \"2.0\"".to_owned();
        return Err((RpcError::Invalid(what), usable(envelope.id)));
    }
    let Some(method) = envelope.method else {
        return match (envelope.result.or(envelope.error), envelope.id) {
            (Some(_), Some(id)) => Ok(Incoming::Response(id)),
            _ => {
                let what = "there is no method".to_owned();
                Err((RpcError::Invalid(what), usable(envelope.id)))
            }
        };
    };
    let Some(method) = text_of(method) else {
        let what = "method is no string".to_owned();
        return Err((RpcError::Invalid(what), usable(envelope.id)));
    };
    let params = envelope.params;
    let id = match envelope.id {
        Some(_) if method.starts_with("notifications/") => None,
        id => id,
    };
    let Some(id) = id else {
        return Ok(Incoming::Notification { method, params });
    };
    if usable(Some(id)).is_none() {
        let what = "id is neither a string nor a number, or too long".to_owned();
        return Err(fail(RpcError::Invalid(what)));
    }
    Ok(Incoming::Request(Request { id, method, params }))
}

/// The id, if an answer may repeat it.
fn usable(id: Option<&RawValue>) -> Option<&RawValue> {
    let begins = |begin: char| begin == '"' || begin == '-' || begin.is_ascii_digit();
    id.filter(|id| id.get() == "null" || id.get().starts_with(begins))
        .filter(|id| id.get().len() <= LONGEST_ID)
}

fn unparsed(text: &str, error: &serde_json::Error) -> RpcError {
    if error.is_data() && text.starts_with('[') {
        RpcError::Invalid("a batch: send one message at a time".to_owned())
    } else if error.is_data() && !text.starts_with('{') {
        RpcError::Invalid("a message is a JSON object".to_owned())
    } else if error.is_data() {
        // It quotes what was found, so the text isn't used.
        RpcError::Invalid("a member of the message is repeated, or of a wrong type".to_owned())
    } else {
        RpcError::Parse(format!(
            "no JSON at line {}, column {}",
            error.line(),
            error.column()
        ))
    }
}

fn is_too_deep(text: &[u8]) -> bool {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => {
                depth += 1;
                if depth > DEEPEST {
                    return true;
                }
            }
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// The text of a JSON string. None for any other value.
pub fn text_of(value: &RawValue) -> Option<Cow<'_, str>> {
    let text = value.get();
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str(text).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// What params may hold, of all methods together. Each as it is written: a member of a wrong type
/// matters only to the method that reads it.
#[derive(Debug, Default, Deserialize)]
pub struct Params<'a> {
    #[serde(borrow)]
    pub name: Option<&'a RawValue>,
    #[serde(borrow)]
    pub uri: Option<&'a RawValue>,
    #[serde(borrow)]
    pub arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub cursor: Option<&'a RawValue>,
    #[serde(borrow, rename = "protocolVersion")]
    pub protocol_version: Option<&'a RawValue>,
    #[serde(borrow, rename = "requestId")]
    pub request_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub notifications: Option<&'a RawValue>,
    #[serde(borrow, rename = "requestState")]
    request_state: Option<&'a RawValue>,
    #[serde(borrow, rename = "inputResponses")]
    input_responses: Option<&'a RawValue>,
    #[serde(borrow)]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
    #[serde(skip)]
    pub meta_fields: Meta<'a>,
}

/// What `_meta` holds for a server.
#[derive(Debug, Default, Deserialize)]
pub struct Meta<'a> {
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    pub protocol_version: Option<&'a RawValue>,
    #[serde(borrow, rename = "progressToken")]
    pub progress_token: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<&'a RawValue>,
    /// The token of a confirmation, of ati's own.
    #[serde(borrow, rename = "ati/confirm")]
    pub confirm: Option<&'a RawValue>,
}

impl<'a> Params<'a> {
    pub fn read(params: Option<&'a RawValue>) -> Result<Self, RpcError> {
        let Some(text) = params.map(RawValue::get) else {
            return Ok(Params::default());
        };
        if !text.starts_with('{') {
            return Err(RpcError::Params("params is no object".to_owned()));
        }
        let repeated = || RpcError::Params("a member of params is repeated".to_owned());
        let mut params: Params<'a> = serde_json::from_str(text).map_err(|_| repeated())?;
        if let Some(meta) = params.meta.filter(|meta| meta.get().starts_with('{')) {
            params.meta_fields = serde_json::from_str(meta.get()).map_err(|_| repeated())?;
        }
        Ok(params)
    }

    pub fn name(&self) -> Option<Cow<'a, str>> {
        self.name.and_then(text_of)
    }

    /// Whether the client says that it knows an extension: in the handshake, or with each request.
    pub fn has_extension(&self, name: &str) -> bool {
        let told = self.capabilities.or(self.meta_fields.capabilities);
        let Some(text) = told.map(RawValue::get).filter(|text| text.contains(name)) else {
            return false;
        };
        let told: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
        told["extensions"][name].is_object()
    }

    /// Whether the client can ask its user: it says so in the handshake, or with each request. One
    /// that only opens pages for its user has no form to ask with.
    pub fn offers_elicitation(&self) -> bool {
        let told = self.capabilities.or(self.meta_fields.capabilities);
        let told = told.map(RawValue::get);
        let told = told.filter(|text| text.contains("elicitation"));
        told.is_some_and(|text| {
            let told: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
            let modes = told["elicitation"].as_object();
            modes.is_some_and(|modes| modes.contains_key("form") || !modes.contains_key("url"))
        })
    }

    /// What the user said to the question that [`CONFIRM`] names: the state of the request, and
    /// whether the user agrees. None where no question was asked.
    pub fn elicited(&self) -> Option<(String, bool)> {
        let state = self.request_state.and_then(text_of)?.into_owned();
        let answers = self.input_responses.map(RawValue::get)?;
        let answers: serde_json::Value = serde_json::from_str(answers).ok()?;
        Some((state, agrees(&answers[CONFIRM])))
    }

    /// The token that progress is reported under: a string or a number.
    pub fn progress_token(&self) -> Option<&'a RawValue> {
        let token = self.meta_fields.progress_token;
        token.filter(|token| token.get() != "null" && usable(Some(token)).is_some())
    }
}

/// Whether the user agrees, by a client's answer to the question.
pub fn agrees(answer: &serde_json::Value) -> bool {
    answer["action"] == "accept" && answer["content"]["confirm"] == true
}

/// The text of an answer with this result, which is JSON.
pub fn success(id: &RawValue, result: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(result.len() + id.get().len() + 40);
    text.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    text.extend_from_slice(id.get().as_bytes());
    text.extend_from_slice(b",\"result\":");
    text.extend_from_slice(result);
    text.push(b'}');
    text
}

/// The text of an answer with this error. An id that isn't known is null, and absent in the
/// stateless era.
pub fn failure(id: Option<&str>, era: Era, error: &RpcError) -> Vec<u8> {
    let mut body = json!({"code": error.code(), "message": error.message()});
    if let Some(data) = error.data() {
        body["data"] = data;
    }
    let id = match (id, era) {
        (Some(id), _) => format!(",\"id\":{id}"),
        (None, Era::Handshake) => ",\"id\":null".to_owned(),
        (None, Era::Stateless) => String::new(),
    };
    format!("{{\"jsonrpc\":\"2.0\"{id},\"error\":{body}}}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> (i32, Option<String>) {
        let (error, id) = parse(text.as_bytes()).unwrap_err();
        (error.code(), id.map(|id| id.get().to_owned()))
    }

    #[test]
    fn message_is_told_by_its_members() {
        let request = parse(br#" {"jsonrpc":"2.0","id":"a","method":"x\u002fy","params":{}} "#);
        let Ok(Incoming::Request(request)) = request else {
            panic!("{request:?}");
        };
        assert_eq!((request.id.get(), &*request.method), ("\"a\"", "x/y"));
        let null = parse(br#"{"jsonrpc":"2.0","id":null,"method":"tools/list"}"#);
        assert!(matches!(null, Ok(Incoming::Request(_))), "{null:?}");
        for notification in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":3,"method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","method":"tools/list"}"#,
        ] {
            let parsed = parse(notification.as_bytes());
            assert!(
                matches!(parsed, Ok(Incoming::Notification { .. })),
                "{parsed:?}"
            );
        }
        let response = parse(br#"{"jsonrpc":"2.0","id":1,"result":null}"#);
        assert!(
            matches!(response, Ok(Incoming::Response(_))),
            "{response:?}"
        );
    }

    #[test]
    fn text_that_is_no_message_gets_its_code() {
        let id = |text: &str| Some(text.to_owned());
        for (text, expected) in [
            ("", (-32700, None)),
            ("nonsense", (-32700, None)),
            (r#"{"jsonrpc":"2.0","id":1,"method":"#, (-32700, None)),
            (r#"{"jsonrpc":"2.0"} x"#, (-32700, None)),
            ("[]", (-32600, None)),
            (
                r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
                (-32600, None),
            ),
            ("5", (-32600, None)),
            ("null", (-32600, None)),
            (
                r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
                (-32600, id("1")),
            ),
            (r#"{"id":1,"method":"ping"}"#, (-32600, id("1"))),
            (r#"{"jsonrpc":"2.0","id":1}"#, (-32600, id("1"))),
            (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, (-32600, id("1"))),
            (
                r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
                (-32600, None),
            ),
            (
                r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#,
                (-32600, None),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
                (-32600, None),
            ),
        ] {
            assert_eq!(code(text), expected, "{text}");
        }
        let (error, _) = parse(b"\"\xff\"").unwrap_err();
        assert_eq!(error.code(), -32700);
        let deep = |n: usize| {
            let (open, close) = ("[".repeat(n), "]".repeat(n));
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"a":{open}{close}}}}}"#)
        };
        assert!(parse(deep(125).as_bytes()).is_ok());
        assert_eq!(code(&deep(126)), (-32700, None));
        assert_eq!(code(&"[".repeat(1_000_000)), (-32700, None));
        let long = format!(
            r#"{{"jsonrpc":"2.0","id":"{}","method":"x"}}"#,
            "i".repeat(2000)
        );
        assert_eq!(code(&long), (-32600, None));
    }

    #[test]
    fn params_are_read_leniently() {
        let read = |text: &str| {
            let raw: &RawValue = serde_json::from_str(text).unwrap();
            let params = Params::read(Some(raw)).map_err(|e| e.code())?;
            Ok((
                params.name().map(Cow::into_owned),
                params
                    .progress_token()
                    .map(|token: &RawValue| token.get().to_owned()),
            ))
        };
        let none: Result<_, i32> = Ok((None, None));
        assert_eq!(read("{}"), none);
        assert_eq!(read(r#"{"name":5,"_meta":7,"cursor":[]}"#), none);
        assert_eq!(read(r#"{"_meta":{"progressToken":{}}}"#), none);
        let both = r#"{"name":"a\u0062","_meta":{"progressToken":7}}"#;
        assert_eq!(read(both), Ok((Some("ab".into()), Some("7".into()))));
        assert_eq!(read("[]"), Err(-32602));
        assert_eq!(read(r#"{"name":"a","name":"b"}"#), Err(-32602));
    }

    #[test]
    fn answers_repeat_the_id_as_it_was_written() {
        let id: &RawValue = serde_json::from_str("1.50").unwrap();
        let text = String::from_utf8(success(id, b"{}")).unwrap();
        assert_eq!(text, r#"{"jsonrpc":"2.0","id":1.50,"result":{}}"#);
        let error = RpcError::UnknownMethod("x".to_owned());
        let text = |id, era| String::from_utf8(failure(id, era, &error)).unwrap();
        let end = r#""error":{"code":-32601,"message":"Method not found: 'x'"}}"#;
        let expected = [",\"id\":1.50", ",\"id\":null", ""];
        let expected = expected.map(|id| format!("{{\"jsonrpc\":\"2.0\"{id},{end}"));
        let all = [
            text(Some(id.get()), Era::Stateless),
            text(None, Era::Handshake),
            text(None, Era::Stateless),
        ];
        assert_eq!(all, expected);
    }
}
