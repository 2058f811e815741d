//! MCP servers behind a URL: sessions, tenants, faults.

use std::collections::HashSet;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{failure, http_server, over_http, result, started, streamed, told, writing_server};
use crate::support::ati::{stderr, stdout};
use crate::support::eventually;
use crate::support::http::Client;
use crate::support::tokens::{bearer_of, key_pair};
use crate::support::upstream::Received;

#[test]
fn header_credential_without_a_header_name_is_sent_as_authorization() {
    let upstream = http_server(|request, message| {
        let sent = request.header("authorization") == Some("planted-whole-header");
        let other = request.header("x-api-key").is_some();
        told(message, &format!("{sent} {other}"))
    });
    let setup = over_http(&upstream, "auth_type = \"header\"\nauth_key_name = \"k\"");
    let proxy = started(setup.credentials(&json!({"k": "planted-whole-header"})));
    assert_eq!(result(&proxy, "s:who", json!({})), "true false");
}

#[test]
fn tenants_never_share_an_mcp_session() {
    let seen: Arc<Mutex<HashSet<(String, String)>>> = Arc::default();
    let noted = seen.clone();
    let upstream = http_server(move |request, message| {
        let session = request.header("mcp-session-id").unwrap().to_owned();
        let credential = request.header("authorization").unwrap().to_owned();
        noted.lock().unwrap().insert((session, credential.clone()));
        // Only the last letter, because the rest is a secret.
        told(message, &credential[credential.len() - 1..])
    });
    let (signer, public) = key_pair();
    let setup = over_http(&upstream, "auth_type = \"bearer\"\nauth_key_name = \"k\"")
        .credentials(&json!({"k": "planted-shared-X", "k@a": "planted-tenants-A", "k@b": "planted-tenants-B"}))
        .jwt(&public);
    let proxy = started(setup);
    let token = |customer: &str| bearer_of(&signer, Some(customer));
    let tokens = Arc::new([("A", token("a")), ("B", token("b"))]);
    let threads: Vec<_> = (0..10)
        .map(|_| {
            let (tokens, edge) = (tokens.clone(), proxy.edge);
            std::thread::spawn(move || {
                let mut client = Client::connect(edge);
                for n in 0..100 {
                    let (expected, token) = &tokens[n % 2];
                    let body = json!({"tool_name": "s:who", "args": {}}).to_string();
                    let answer = client.send(
                        "POST",
                        "/call",
                        &[("authorization", token)],
                        body.as_bytes(),
                    );
                    assert_eq!(answer.json()["result"], *expected, "{}", answer.text());
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let seen = seen.lock().unwrap();
    let sessions: HashSet<&String> = seen.iter().map(|(session, _)| session).collect();
    assert_eq!((seen.len(), sessions.len()), (2, 2), "{} pairs", seen.len());
}

#[test]
fn mcp_session_forgotten_by_the_server_is_opened_again() {
    let forgetful = Arc::new(Mutex::new(HashSet::from(["s1".to_owned()])));
    let forgotten = forgetful.clone();
    let upstream = http_server(move |request, message| {
        let session = request
            .header("mcp-session-id")
            .unwrap_or_default()
            .to_owned();
        if forgotten.lock().unwrap().contains(&session) {
            let body = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#;
            return format!(
                "HTTP/1.1 400 X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
        }
        told(message, &session)
    });
    let proxy = started(over_http(&upstream, ""));
    assert_eq!(result(&proxy, "s:who", json!({})), "s2");
}

#[test]
fn requests_of_an_http_server_are_answered() {
    let upstream = http_server(|_, message| {
        let ask = |id: &str, method: &str| json!({"jsonrpc": "2.0", "id": id, "method": method});
        let result = json!({"content": [{"type": "text", "text": "done"}]});
        streamed(&[
            ask("q1", "ping"),
            ask("q2", "sampling/createMessage"),
            json!({"jsonrpc": "2.0", "id": message["id"], "result": result}),
        ])
    });
    let proxy = started(over_http(&upstream, ""));
    assert_eq!(result(&proxy, "s:who", json!({})), "done");
    for (id, says) in [("q1", r#""result":{}"#), ("q2", "not offered")] {
        eventually("the answer to a question", || {
            let is_it = |request: &Received| {
                let body = String::from_utf8_lossy(&request.body);
                body.contains(id) && body.contains(says)
            };
            let all = upstream.received();
            let answer = all.iter().find(|request| is_it(request))?;
            assert_eq!(answer.header("mcp-session-id"), Some("s1"));
            assert_eq!(answer.header("content-type"), Some("application/json"));
            Some(())
        });
    }
}

#[test]
fn faults_of_an_http_server_are_named() {
    let refused =
        http_server(|_, _| "HTTP/1.1 401 X\r\ncontent-length: 9\r\n\r\ngo away x".to_owned());
    let proxy = started(over_http(&refused, ""));
    assert_eq!(
        failure(&proxy, "s:who", json!({})),
        "MCP error: MCP transport error: [s] HTTP 401: go away x"
    );
    drop(proxy);

    let other = http_server(|_, _| {
        "HTTP/1.1 200 X\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi".to_owned()
    });
    let proxy = started(over_http(&other, ""));
    assert!(failure(&proxy, "s:who", json!({})).contains("neither JSON nor an event stream"));
    drop(proxy);

    // A stream of events that never contains the answer.
    let endless = writing_server(|_, _, stream| {
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        let _ = stream.write_all(head);
        let event = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}\n\n";
        while stream.write_all(event.as_bytes()).is_ok() {}
        false
    });
    let proxy = started(over_http(&endless, "").conf("[tools]\ntimeout_seconds = 2\n"));
    let started = Instant::now();
    let error = failure(&proxy, "s:forever", json!({}));
    assert!(
        error.contains("timeout: the server did not answer within 2 s"),
        "{error}"
    );
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(proxy.client().get("/health").status, 200);
}

#[test]
fn upstream_url_of_the_caller_is_used_if_allowed() {
    let here = http_server(|_, message| told(message, "here"));
    let there = http_server(|_, message| told(message, "there"));
    let allowed = format!("{}/mcp", there.url());
    let plain = r#"
        [provider]
        name = "plain"
        base_url = "http://127.0.0.1:1"

        [[tools]]
        name = "plain_one"
    "#;
    let proxy = started(
        over_http(&here, "mcp_url_env = \"S_URL\"")
            .manifest("plain", plain)
            .credentials(&json!({"s_allowed_urls": allowed})),
    );
    let call = |tool: &str, url: Option<&str>| {
        let body = json!({"tool_name": tool, "args": {}}).to_string();
        let headers: Vec<(&str, &str)> = url
            .map(|url| ("x-ati-upstream-url", url))
            .into_iter()
            .collect();
        let answer = proxy
            .client()
            .send("POST", "/call", &headers, body.as_bytes());
        (answer.status, answer.text())
    };
    assert!(call("s:who", None).1.contains("\"here\""));
    assert!(call("s:who", Some(&allowed)).1.contains("\"there\""));
    for (tool, url, status, says) in [
        ("s:who", "http://127.0.0.1:1/mcp", 403, "allowlist"),
        ("s:who", "nonsense", 400, "not a valid URL"),
        (
            "plain_one",
            allowed.as_str(),
            400,
            "does not declare mcp_url_env",
        ),
    ] {
        let (found, text) = call(tool, Some(url));
        assert_eq!(found, status, "{url}: {text}");
        assert!(text.contains(says), "{text}");
    }
    // The command line sends the URL where the variable is set.
    let output = crate::support::ati::command(proxy.dir.path())
        .args(["run", "s:who"])
        .env("ATI_PROXY_URL", format!("http://{}", proxy.edge))
        .env("S_URL", &allowed)
        .output()
        .unwrap();
    assert_eq!(stdout(&output).trim(), "\"there\"", "{}", stderr(&output));
}
