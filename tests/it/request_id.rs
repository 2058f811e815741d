//! One id per request: it joins the access line, the signature record, the audit line and the
//! answer's header.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::ati::{BINARY, Proxy, Setup};
use crate::support::eventually;
use crate::support::http::{Client, Response};
use crate::support::tokens::{SIGNING, sign};
use crate::support::upstream::Upstream;

const TRUSTED: &str = "[server]\ntrusted_proxies = [\"127.0.0.1\"]\n";
const SIGNATURE: &str = "x-sandbox-signature";
const UUID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

fn signed(setup: Setup) -> Setup {
    setup.credentials(&json!({"sandbox_signing_shared_secret": SIGNING}))
}

/// The answer's id, which is a UUID.
fn id(answer: &Response) -> &str {
    let id = answer.header("x-request-id").expect("a request id");
    let groups: Vec<usize> = id.split('-').map(str::len).collect();
    assert_eq!(groups, [8, 4, 4, 4, 12], "{id}");
    assert!(
        id.bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'))
    );
    id
}

/// The one record of this kind with this id.
fn record(proxy: &Proxy, message: &str, id: &str) -> Value {
    let found = eventually(&format!("'{message}' of {id}"), || {
        let mut all = proxy.log.find_all(message);
        all.retain(|record| record["request_id"] == id);
        (!all.is_empty()).then_some(all)
    });
    assert_eq!(found.len(), 1, "{found:#?}");
    found[0].clone()
}

fn audit_line(proxy: &Proxy, id: &str) -> Value {
    eventually(&format!("the audit line of {id}"), || {
        let mut lines = proxy.audit().into_iter();
        lines.find(|line| line["request_id"] == id)
    })
}

fn get(proxy: &Proxy, path: &str, headers: &[(&str, &str)]) -> Response {
    proxy.client().send("GET", path, headers, b"")
}

fn call(proxy: &Proxy, tool: &str) -> Response {
    let body = json!({"tool_name": tool, "args": {"text": "hello"}}).to_string();
    let signature = sign("POST", "/call");
    let headers = [(SIGNATURE, signature.as_str())];
    let answer = proxy
        .client()
        .send("POST", "/call", &headers, body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

#[test]
fn records_of_a_passthrough_request_join_by_its_id() {
    let upstream = Upstream::echo();
    let setup = signed(Setup::new());
    let proxy = setup
        .route("up", &upstream.url(), "path_prefix = '/up'")
        .arg("--sig-verify-mode")
        .arg("enforce")
        .start();
    let signature = sign("GET", "/up/x");
    let answer = get(&proxy, "/up/x", &[(SIGNATURE, &signature)]);
    assert_eq!(answer.status, 200);
    let access = record(&proxy, "request", id(&answer));
    assert_eq!(
        (&access["path"], &access["status"]),
        (&json!("/up/x"), &json!(200))
    );
    assert_eq!(
        record(&proxy, "sig_verify", id(&answer))["reason"],
        json!("valid")
    );

    let refused = get(&proxy, "/up/x", &[]);
    assert_eq!(refused.status, 403);
    assert_ne!(id(&refused), id(&answer));
    let access = record(&proxy, "request", id(&refused));
    assert_eq!(access["refused"], json!("missing_signature"));
    let verdict = record(&proxy, "sig_verify", id(&refused));
    assert_eq!(verdict["reason"], json!("missing_signature"));
}

#[test]
fn records_of_tool_calls_join_by_their_ids() {
    let api = Upstream::fixed("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ntrue");
    let server = Path::new(BINARY)
        .parent()
        .unwrap()
        .join("examples/mcp_server");
    let manifest = format!(
        "[provider]\nname = \"s\"\nhandler = \"mcp\"\nmcp_command = \"{}\"\nmcp_args = [\"good\"]\n",
        server.display()
    );
    let proxy = signed(Setup::new())
        .tools(
            "shop",
            &api.url(),
            "",
            "[[tools]]\nname = 'shop:find'\nendpoint = '/find'",
        )
        .manifest("s", &manifest)
        .start();
    proxy.log.wait_for("tools listed");
    for tool in ["shop:find", "s:echo"] {
        let answer = call(&proxy, tool);
        let id = id(&answer);
        let access = record(&proxy, "request", id);
        assert_eq!(
            (&access["path"], &access["tool"], &access["attempts"]),
            (&json!("/call"), &json!(tool), &json!(1))
        );
        // An MCP server that is a program has no host.
        assert_eq!(access.get("upstream").is_some(), tool == "shop:find");
        let verdict = record(&proxy, "sig_verify", id);
        assert_eq!(verdict["reason"], json!("valid"));
        let line = audit_line(&proxy, id);
        assert_eq!(
            (&line["tool"], &line["status"]),
            (&json!(tool), &json!("ok"))
        );
    }
}

#[test]
fn every_kind_of_answer_has_an_id() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let proxy = Setup::new()
        .route("down", &nowhere, "path_prefix = '/down'")
        .start();
    for (method, path, status) in [
        ("GET", "/health", 200),
        ("HEAD", "/health", 200),
        ("DELETE", "/health", 405),
        ("GET", "/nothing", 404),
        ("GET", "/a/../b", 400),
        ("POST", "/call", 422),
        ("GET", "/down/x", 502),
    ] {
        let answer = proxy.client().send(method, path, &[], b"");
        assert_eq!(answer.status, status, "{method} {path}");
        let access = record(&proxy, "request", id(&answer));
        assert_eq!(access["status"], json!(status), "{method} {path}");
        if status == 502 {
            assert_eq!(access["upstream_error"], json!("connect"));
            let cause = access["cause"].as_str().unwrap();
            assert!(cause.contains("refused"), "{cause}");
        }
    }
}

#[test]
fn trusted_proxys_uuid_is_taken_over_and_other_ids_are_recorded() {
    let proxy = Setup::new().conf(TRUSTED).start();
    let upper = UUID.to_uppercase();
    for sent in [UUID, &upper] {
        let answer = get(&proxy, "/health", &[("x-request-id", sent)]);
        assert_eq!(id(&answer), UUID);
    }
    eventually("the access lines", || {
        let all = proxy.log.find_all("request");
        let of_it = all.iter().filter(|record| record["request_id"] == UUID);
        (of_it.count() == 2).then_some(())
    });
    assert!(!proxy.log.text().contains("client_request_id"));

    let answer = get(&proxy, "/health", &[("x-request-id", "edge/4711-a")]);
    let access = record(&proxy, "request", id(&answer));
    assert_eq!(access["client_request_id"], json!("edge/4711-a"));

    let long = "a".repeat(129);
    for unfit in ["", "two words", "\u{fc}", &long] {
        let answer = get(&proxy, "/health", &[("x-request-id", unfit)]);
        let access = record(&proxy, "request", id(&answer));
        assert_eq!(access.get("client_request_id"), None, "{unfit}");
    }
}

#[test]
fn untrusted_callers_id_is_ignored() {
    let proxy = Setup::new()
        .conf("[server]\ntrusted_proxies = [\"127.0.0.9\"]\n")
        .start();
    for sent in [UUID, "mine-1"] {
        let answer = get(&proxy, "/health", &[("x-request-id", sent)]);
        let id = id(&answer);
        assert_ne!(id, sent);
        let access = record(&proxy, "request", id);
        assert_eq!(access.get("client_request_id"), None);
    }
    assert!(!proxy.log.text().contains(UUID) && !proxy.log.text().contains("mine-1"));
}

#[test]
fn upstream_gets_the_id_only_if_the_conf_file_says_so() {
    for forwards in [false, true] {
        let upstream = Upstream::echo();
        let conf = format!("{TRUSTED}[passthrough]\nforward_request_id = {forwards}\n");
        let proxy = Setup::new()
            .conf(&conf)
            .route("up", &upstream.url(), "path_prefix = '/up'")
            .start();
        for sent in [UUID, "mine-1"] {
            let headers = [("x-request-id", sent), ("x_request_id", "copy")];
            let answer = get(&proxy, "/up/x", &headers);
            let seen = upstream.last();
            let expected = forwards.then(|| id(&answer));
            assert_eq!(seen.header("x-request-id"), expected, "{sent}");
            assert_eq!(seen.header("x_request_id"), None);
        }
    }
    let upstream = Upstream::echo();
    let proxy = Setup::new()
        .route("up", &upstream.url(), "path_prefix = '/up'")
        .start();
    get(&proxy, "/up/x", &[("x-request-id", UUID)]);
    assert_eq!(upstream.last().header("x-request-id"), None);
}

#[test]
fn upstreams_own_id_is_recorded_and_replaced_in_the_answer() {
    let upstream =
        Upstream::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nX-Request-Id: req_011\r\n\r\nok");
    let proxy = Setup::new()
        .route("up", &upstream.url(), "path_prefix = '/up'")
        .start();
    let answer = get(&proxy, "/up/x", &[]);
    let ids = answer
        .headers
        .iter()
        .filter(|(name, _)| name == "x-request-id");
    assert_eq!(ids.count(), 1);
    let access = record(&proxy, "request", id(&answer));
    assert_eq!(access["upstream_request_id"], json!("req_011"));
}

#[test]
fn websocket_answers_have_an_id() {
    let upstream = Upstream::raw(|mut stream| {
        let mut request = [0; 4096];
        let length = std::io::Read::read(&mut stream, &mut request).unwrap();
        let refused = request[..length].starts_with(b"GET /no ");
        let answer = if refused {
            "HTTP/1.1 401 Unauthorized\r\nx-request-id: theirs\r\ncontent-length: 0\r\n\r\n"
        } else {
            "HTTP/1.1 101 Switching Protocols\r\nx-request-id: theirs\r\nupgrade: websocket\r\n\
             connection: upgrade\r\n\r\n"
        };
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let proxy = Setup::new()
        .route(
            "ws",
            &upstream.url(),
            "path_prefix = '/ws'\nstrip_prefix = true\nforward_websockets = true",
        )
        .start();
    for (path, status) in [("/ws/yes", 101), ("/ws/no", 401)] {
        let mut client = Client::from(TcpStream::connect(proxy.edge).unwrap());
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        client.write(request.as_bytes());
        let answer = client.read(false);
        assert_eq!(answer.status, status);
        let access = record(&proxy, "request", id(&answer));
        assert_eq!(access["upstream_request_id"], json!("theirs"));
        assert_eq!(access["upstream"], json!(upstream.address.to_string()));
        assert_eq!(access["attempts"], json!(1));
        assert!(access["connect_ms"].is_number() && access["upstream_ms"].is_number());
    }
}
