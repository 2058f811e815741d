//! Refusals that are written without an HTTP session, as HTTP/1.1 bytes.

use super::{Refusal, RefusalBody};

/// The text that belongs to a status, for an answer whose own text can't be shown.
pub fn usual_reason(status: u16) -> &'static str {
    let status = http::StatusCode::from_u16(status).ok();
    let reason = status.and_then(|status| status.canonical_reason());
    reason.unwrap_or_default()
}

/// The whole response to a connection over the limit.
pub fn too_many_connections_response() -> Vec<u8> {
    response(&Refusal::TooManyConnections)
}

/// The whole response to a header without end.
pub fn header_too_large_response() -> Vec<u8> {
    response(&Refusal::HeaderTooLarge)
}

/// What the refusal says; the connection closes after it.
fn response(refusal: &Refusal) -> Vec<u8> {
    let (kind, body) = match refusal.body() {
        RefusalBody::Json(text) | RefusalBody::Help(text) => {
            let body = serde_json::json!({ "error": text }).to_string();
            ("application/json", body)
        }
        RefusalBody::Text(text) => ("text/plain; charset=utf-8", text.into_owned()),
        RefusalBody::Empty | RefusalBody::Call(_) | RefusalBody::Rpc(_) => {
            ("text/plain; charset=utf-8", String::new())
        }
    };
    let mut head = format!(
        "HTTP/1.1 {}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n",
        refusal.status(),
        body.len()
    );
    if let Some((name, value)) = refusal.header() {
        head += &format!("{name}: {value}\r\n");
    }
    format!("{head}connection: close\r\n\r\n{body}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_connections_response_is_complete() {
        assert_eq!(
            String::from_utf8(too_many_connections_response()).unwrap(),
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
             content-length: 32\r\nretry-after: 1\r\nconnection: close\r\n\r\n\
             {\"error\":\"too many connections\"}"
        );
    }
}
