//! Clients of the stateless era: in front of a program of the handshake era, and of servers behind
//! a URL that speak it themselves.

use std::io::Write;

use serde_json::json;

use super::*;
use crate::support::upstream::Upstream;

fn stateless(method: &str, mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({"name": "t", "version": "1"});
    request(method, params)
}

fn post(proxy: &Proxy, message: &Value, more: &[(&str, &str)]) -> Response {
    let method = message["method"].as_str().unwrap();
    let name = message["params"]["name"].as_str();
    let name = name.or(message["params"]["uri"].as_str());
    let mut headers = vec![JSON, ACCEPT, ("mcp-protocol-version", "2026-07-28")];
    headers.push(("mcp-method", method));
    headers.extend(name.map(|name| ("mcp-name", name)));
    headers.extend(more);
    proxy
        .client()
        .send("POST", "/mcp/s", &headers, message.to_string().as_bytes())
}

fn ask(proxy: &Proxy, method: &str, params: Value) -> Value {
    let answer = post(proxy, &stateless(method, params), &[]);
    assert_eq!(answer.status, 200, "{}", answer.text());
    events(&answer).pop().unwrap()
}

#[test]
fn program_of_the_handshake_era_serves_clients_of_the_stateless_one() {
    let proxy = started(with_program(""));
    let found = ask(&proxy, "server/discover", json!({}));
    assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(found["result"]["capabilities"], json!({"tools": {}}));
    let listed = ask(&proxy, "tools/list", json!({}));
    assert!(names(&listed).contains(&"echo"));
    assert_eq!(listed["result"]["resultType"], "complete");
    assert_eq!(listed["result"]["cacheScope"], "private");
    let call = |name: &str, args: Value| {
        ask(
            &proxy,
            "tools/call",
            json!({"name": name, "arguments": args}),
        )
    };
    assert_eq!(text(&call("echo", json!({"text": "hi"}))), "hi");
    let pid = text(&call("pid", json!({}))).to_owned();
    assert_eq!(
        pid,
        text(&call("pid", json!({}))),
        "a caller's requests share a process"
    );
    // Nothing is offered to the server: it is told so, and the call ends.
    assert_eq!(text(&call("ask", json!({}))), "you said nothing");
    let params = json!({"name": "steps", "_meta": {"progressToken": "mine"}});
    let told = events(&post(&proxy, &stateless("tools/call", params), &[]));
    assert_eq!(told[0]["params"]["progressToken"], "mine");
    assert_eq!((told.len(), text(&told[3])), (4, "done"));
    let listen = post(&proxy, &stateless("subscriptions/listen", json!({})), &[]);
    assert_eq!(
        (listen.status, &listen.json()["error"]["code"]),
        (404, &json!(-32601))
    );
}

#[test]
fn concurrent_clients_of_one_caller_get_their_own_answers() {
    let proxy = started(with_program(""));
    std::thread::scope(|scope| {
        for n in 0..16 {
            let proxy = &proxy;
            scope.spawn(move || {
                let said = format!("text {n}");
                let params = json!({"name": "echo", "arguments": {"text": said}});
                assert_eq!(text(&ask(proxy, "tools/call", params)), said);
            });
        }
    });
}

/// A server of the stateless era that answers with what it got.
fn server() -> Upstream {
    Upstream::answering(|request, stream| {
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let result = match message["method"].as_str().unwrap_or_default() {
            "server/discover" => json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0,
                "cacheScope": "public", "capabilities": {"tools": {}},
            }),
            "tools/list" => json!({
                "resultType": "complete", "ttlMs": 5, "cacheScope": "public",
                "tools": [{"name": "who", "inputSchema": {"type": "object"}}],
            }),
            _ => {
                let param = request.header("mcp-param-region").unwrap_or("none");
                let block = json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
                json!({"resultType": "complete", "content": [block], "structuredContent": {"param": param, "n": 1.50}})
            }
        };
        let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).is_ok()
    })
}

#[test]
fn request_reaches_a_stateless_server_as_it_is_with_the_headers_of_the_protocol_only() {
    let upstream = server();
    let url = format!(
        "mcp_transport = \"http\"\nmcp_url = \"{}/mcp\"",
        upstream.url()
    );
    let text = format!("[provider]\nname = \"s\"\nhandler = \"mcp\"\n{url}");
    let proxy = started(Setup::new().manifest("s", &text));
    let listed = ask(&proxy, "tools/list", json!({}));
    assert_eq!(
        listed["result"]["cacheScope"], "private",
        "it depends on scopes"
    );
    let call = stateless(
        "tools/call",
        json!({"name": "who", "arguments": {"region": "eu"}}),
    );
    let more = [
        ("mcp-param-region", "eu"),
        ("cookie", "c=1"),
        ("x-other", "1"),
    ];
    let answer = post(&proxy, &call, &more);
    let answer = answer.json();
    assert_eq!(
        answer["result"]["structuredContent"],
        json!({"param": "eu", "n": 1.5})
    );
    assert_eq!(answer["result"]["content"][0]["mimeType"], "image/png");
    let got = upstream.last();
    assert_eq!(got.body, call.to_string().as_bytes());
    assert_eq!(got.header("mcp-method"), Some("tools/call"));
    assert!(got.header("cookie").is_none() && got.header("x-other").is_none());
    let mismatch = post(
        &proxy,
        &stateless("tools/list", json!({})),
        &[("mcp-method", "x")],
    );
    assert_eq!(
        (mismatch.status, &mismatch.json()["error"]["code"]),
        (400, &json!(-32020))
    );
    // Clients of the handshake era are told what the server says.
    let old = proxy.client().send(
        "POST",
        "/mcp/s",
        &[JSON, ACCEPT],
        initialize().to_string().as_bytes(),
    );
    assert_eq!(old.status, 200);
}
