//! Classifies what a server sends before it is parsed: a message for rmcp, a request to ati, a
//! progress report, or something else.

use std::borrow::Cow;

use rmcp::model::{ErrorData, ProgressNotificationParam, RequestId, ServerJsonRpcMessage};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

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
            Ok(message) => ServerMessage::Message(Box::new(message)),
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
