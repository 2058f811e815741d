//! Sessions of the handshake era in front of a server behind a URL.

use std::io::Write;
use std::sync::Mutex;

use serde_json::json;

use super::*;
use crate::mcp::{particular_server, told};
use crate::support::eventually;
use crate::support::upstream::Upstream;

pub fn provider(upstream: &Upstream, more: &str) -> Setup {
    let text = format!(
        "[provider]\nname = \"s\"\nhandler = \"mcp\"\nmcp_transport = \"http\"\nmcp_url = \"{}/mcp\"\n{more}",
        upstream.url()
    );
    Setup::new().manifest("s", &text)
}

#[test]
fn client_session_is_one_session_at_the_server_which_is_deleted_with_it() {
    let upstream = particular_server(
        |_, _, _| None,
        |request, message, stream| {
            let session = request.header("mcp-session-id").unwrap_or("none");
            stream.write_all(told(message, session).as_bytes()).is_ok()
        },
    );
    let proxy = started(
        provider(&upstream, "auth_type = \"bearer\"\nauth_key_name = \"k\"")
            .credentials(&json!({"k": "planted-key"})),
    );
    let (one, two) = (Session::open(&proxy), Session::open(&proxy));
    let (first, second) = (one.call("who", json!({})), two.call("who", json!({})));
    let (first, second) = (text(&first), text(&second));
    assert!(
        first.starts_with('s') && first != second,
        "{first} {second}"
    );
    assert_ne!(first, one.id, "the server's id isn't told");
    assert_eq!(
        upstream.last().header("authorization"),
        Some("Bearer planted-key")
    );
    assert_eq!(one.send("GET", b"").status, 405, "the server has no stream");
    assert_eq!(one.send("DELETE", b"").status, 200);
    eventually("the end of the server's session", || {
        let deleted = |request: &crate::support::upstream::Received| {
            request.method == "DELETE" && request.header("mcp-session-id") == Some(first)
        };
        upstream.saw(deleted).then_some(())
    });
}

#[test]
fn session_that_the_server_forgot_is_404_for_its_client() {
    let forgets = Mutex::new(false);
    let upstream = particular_server(
        move |request, message, stream| {
            let mut forgets = forgets.lock().unwrap();
            if message["params"]["name"] == "forever" {
                *forgets = true;
            }
            let is_of_session = request.header("mcp-session-id").is_some();
            (*forgets && is_of_session).then(|| {
                let gone = "HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(gone.as_bytes()).is_ok()
            })
        },
        |_, message, stream| stream.write_all(told(message, "x").as_bytes()).is_ok(),
    );
    let proxy = started(provider(&upstream, ""));
    let session = Session::open(&proxy);
    let gone = session.post(&request("tools/call", json!({"name": "forever"})));
    assert_eq!(gone.status, 404, "{}", gone.text());
    assert_eq!(session.post(&request("tools/list", json!({}))).status, 404);
}

#[test]
fn refusal_of_the_server_is_told_without_the_credential() {
    let upstream = particular_server(
        |_, _, _| None,
        |_, _, stream| {
            let body = "who is planted-key?";
            let answer = format!(
                "HTTP/1.1 403 X\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).is_ok()
        },
    );
    let proxy = started(
        provider(&upstream, "auth_type = \"bearer\"\nauth_key_name = \"k\"")
            .credentials(&json!({"k": "planted-key"})),
    );
    let session = Session::open(&proxy);
    let refused = session.call("who", json!({}));
    let said = text(&refused);
    assert_eq!(
        said,
        "Error: MCP error: MCP transport error: [s] HTTP 403: who is [REDACTED]?"
    );
    let line = &proxy.wait_for_audit(1)[0];
    assert_eq!(
        (&line["tool"], &line["status"]),
        (&json!("s:who"), &json!("error"))
    );
}

#[test]
fn caller_with_too_many_sessions_loses_the_one_that_is_idle_for_longest() {
    let upstream = particular_server(
        |_, _, _| None,
        |_, message, stream| stream.write_all(told(message, "x").as_bytes()).is_ok(),
    );
    let proxy = started(provider(&upstream, ""));
    let all: Vec<Session> = (0..101).map(|_| Session::open(&proxy)).collect();
    let status = |session: &Session| session.post(&request("tools/list", json!({}))).status;
    assert_eq!(
        (status(&all[0]), status(&all[1]), status(&all[100])),
        (404, 200, 200)
    );
}
