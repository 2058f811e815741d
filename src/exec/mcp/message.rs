//! Classifies what a server sends before it is parsed: a message for rmcp, a request to ati, a
//! progress report, or something else.

use std::borrow::Cow;

use rmcp::model::{
    ErrorData, ProgressNotificationParam, RequestId, ServerJsonRpcMessage, ServerResult,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::json;

/// The longest message, in bytes.
pub const LONGEST_MESSAGE: usize = LONGEST_MESSAGE_MB * 1_000_000;
pub const LONGEST_MESSAGE_MB: usize = 50;
/// The most values in one message: each takes hundreds of bytes once it is parsed.
pub const MOST_VALUES: usize = 500_000;
/// Told in place of an answer that can't be parsed.
pub const NOT_UNDERSTOOD: &str = "the server's answer can't be understood";
/// Ids of ati's requests are numbers, and a server has no reason for longer ones either.
const LONGEST_ID: usize = 256;

pub enum ServerMessage {
    /// For rmcp.
    Message(Box<ServerJsonRpcMessage>),
    /// A request to ati, with the line that answers it.
    Request(Vec<u8>),
    /// How far a call is.
    Progress(ProgressNotificationParam),
    /// A notification that ati has no use for.
    Ignored,
    /// Not JSON-RPC.
    Garbage,
}

/// The members that decide what a message is.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default)]
    id: Option<RequestId>,
    #[serde(default, borrow)]
    method: Option<Cow<'a, str>>,
}

/// An answer with the members that every answer has, and no others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainAnswer<'a> {
    jsonrpc: &'a str,
    id: i64,
    #[serde(borrow)]
    result: &'a RawValue,
}

/// The id and the text of the result of a plain answer: nearly all are. None for all else, which
/// [`classify`] reads.
pub fn plain_answer(text: &[u8]) -> Option<(i64, &str)> {
    // serde would read an array as the members of an answer.
    if !text.starts_with(b"{") {
        return None;
    }
    let answer: PlainAnswer<'_> = serde_json::from_slice(text).ok()?;
    (answer.jsonrpc == "2.0").then(|| (answer.id, answer.result.get()))
}

#[derive(Deserialize)]
struct ProgressNotification {
    params: ProgressNotificationParam,
}

/// Classifies one message. An answer that can't be parsed, or that has too many values, becomes an
/// error in its place, so that its caller needn't wait for the timeout.
pub fn classify(text: &[u8]) -> ServerMessage {
    // serde would read an array as the members of an envelope.
    let Some(envelope) = text
        .starts_with(b"{")
        .then(|| serde_json::from_slice::<Envelope<'_>>(text).ok())
        .flatten()
    else {
        return ServerMessage::Garbage;
    };
    let error = |id, what: &'static str| {
        let error = ErrorData::internal_error(what, None);
        ServerMessage::Message(Box::new(ServerJsonRpcMessage::error(error, Some(id))))
    };
    if matches!(&envelope.id, Some(RequestId::String(id)) if id.len() > LONGEST_ID) {
        return ServerMessage::Garbage;
    }
    if json::has_more_values_than(text, MOST_VALUES) {
        return match (envelope.id, envelope.method) {
            (Some(id), None) => error(id, "the server's answer has too many values"),
            _ => ServerMessage::Ignored,
        };
    }
    match (envelope.id, envelope.method.as_deref()) {
        (Some(id), Some(method)) => ServerMessage::Request(answer_line(&id, method)),
        (None, Some("notifications/tools/list_changed" | "notifications/cancelled")) => {
            match serde_json::from_slice(text) {
                Ok(message) => ServerMessage::Message(Box::new(message)),
                Err(_) => ServerMessage::Ignored,
            }
        }
        (None, Some("notifications/progress")) => match serde_json::from_slice(text) {
            Ok(ProgressNotification { params }) => ServerMessage::Progress(params),
            Err(_) => ServerMessage::Ignored,
        },
        (None, Some(_)) => ServerMessage::Ignored,
        (Some(id), None) => match serde_json::from_slice(text) {
            Ok(message) => ServerMessage::Message(Box::new(with_readable_hints(message, text))),
            Err(_) => error(id, NOT_UNDERSTOOD),
        },
        // An error without an id answers a request whose id the server couldn't read.
        (None, None) => match serde_json::from_slice(text) {
            Ok(message @ ServerJsonRpcMessage::Error(_)) => {
                ServerMessage::Message(Box::new(message))
            }
            _ => ServerMessage::Garbage,
        },
    }
}

/// ati answers `ping`, and offers servers nothing else.
fn answer_line(id: &RequestId, method: &str) -> Vec<u8> {
    let answer = if method == "ping" {
        json!({"jsonrpc": "2.0", "id": id, "result": {}})
    } else {
        let error = json!({"code": -32601, "message": "not offered"});
        json!({"jsonrpc": "2.0", "id": id, "error": error})
    };
    let mut line = answer.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// A list of tools that rmcp's types don't fit, because a hint of a tool is no true or false. Such
/// a hint says nothing; the tools of the server are there all the same.
fn with_readable_hints(mut message: ServerJsonRpcMessage, text: &[u8]) -> ServerJsonRpcMessage {
    let ServerJsonRpcMessage::Response(answer) = &mut message else {
        return message;
    };
    // What rmcp takes an answer for that fits nothing else.
    let is_unknown = matches!(
        answer.result,
        ServerResult::CustomResult(_) | ServerResult::TaskAckResult(_)
    );
    if !is_unknown {
        return message;
    }
    let Ok(mut list) = serde_json::from_slice::<Value>(text) else {
        return message;
    };
    let mut list = list["result"].take();
    if !list["tools"].is_array() {
        return message;
    }
    for tool in list["tools"].as_array_mut().into_iter().flatten() {
        let Some(tool) = tool.as_object_mut() else {
            continue;
        };
        match tool.get_mut("annotations") {
            Some(Value::Object(hints)) => hints.retain(|name, hint| match name.as_str() {
                "title" => hint.is_string(),
                name if name.ends_with("Hint") => hint.is_boolean(),
                _ => true,
            }),
            Some(_) => {
                tool.remove("annotations");
            }
            None => {}
        }
    }
    if let Ok(list) = serde_json::from_value(list) {
        answer.result = ServerResult::ListToolsResult(list);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> &'static str {
        match classify(text.as_bytes()) {
            ServerMessage::Message(message) => match *message {
                ServerJsonRpcMessage::Response(_) => "response",
                ServerJsonRpcMessage::Error(_) => "error",
                _ => "other",
            },
            ServerMessage::Request(_) => "request",
            ServerMessage::Progress(_) => "progress",
            ServerMessage::Ignored => "ignored",
            ServerMessage::Garbage => "garbage",
        }
    }

    #[test]
    fn hint_that_cannot_be_read_takes_no_tool_away() {
        for end in ["", r#","resultType":"complete""#] {
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[
                {{"name":"a","inputSchema":{{}},"annotations":{{"destructiveHint":"yes","readOnlyHint":false}}}},
                {{"name":"b","inputSchema":{{}},"annotations":7}}]{end}}}}}"#
            );
            let ServerMessage::Message(message) = classify(text.as_bytes()) else {
                panic!("no message");
            };
            let ServerJsonRpcMessage::Response(answer) = *message else {
                panic!("no answer");
            };
            let ServerResult::ListToolsResult(list) = answer.result else {
                panic!("no list: {:?}", answer.result);
            };
            let hints = list.tools[0].annotations.as_ref().unwrap();
            assert_eq!(
                (hints.destructive_hint, hints.read_only_hint),
                (None, Some(false))
            );
            assert!(list.tools[1].annotations.is_none());
        }
    }

    #[test]
    fn messages_are_classified_by_their_envelope() {
        for (text, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}"#,
                "response",
            ),
            (r#"{"jsonrpc":"2.0","id":7}"#, "error"),
            (
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"x"}}"#,
                "error",
            ),
            (r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#, "request"),
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}"#,
                "request",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#,
                "ignored",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
                "other",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":2}}"#,
                "progress",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":2}}"#,
                "ignored",
            ),
            ("hello", "garbage"),
            ("[1]", "garbage"),
            ("{}", "garbage"),
        ] {
            assert_eq!(kind(text), expected, "{text}");
        }
    }

    #[test]
    fn message_with_too_many_values_or_a_long_id_is_not_parsed() {
        let many = format!(
            r#"{{"jsonrpc":"2.0","id":7,"result":[{}0]}}"#,
            "0,".repeat(MOST_VALUES)
        );
        assert_eq!(kind(&many), "error");
        let notification = many.replace(
            "\"id\":7,\"result\"",
            "\"method\":\"notifications/tools/list_changed\",\"params\"",
        );
        assert_eq!(kind(&notification), "ignored");
        let id = "x".repeat(LONGEST_ID + 1);
        let ping = format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"ping"}}"#);
        assert_eq!(kind(&ping), "garbage");
    }
}
