//! The refusal of a connection over the limit, as HTTP/1.1 bytes: it gets no HTTP session.

use super::{Refusal, RefusalBody};

/// The whole response to a connection over the limit, which closes after it. Made of what
/// [`Refusal::TooManyConnections`] says.
pub fn too_many_connections_response() -> Vec<u8> {
    let refusal = Refusal::TooManyConnections;
    let text = match refusal.body() {
        RefusalBody::Json(text) | RefusalBody::Text(text) | RefusalBody::Help(text) => text,
        RefusalBody::Empty | RefusalBody::Call(_) => "".into(),
    };
    let body = serde_json::json!({ "error": text }).to_string();
    let mut head = format!(
        "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
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
