//! Messages that are none, and pages that have no business here.

use serde_json::{Value, json};

use super::{JSON, VERSION, post, request};
use crate::support::ati::{Proxy, Setup};
use crate::support::http::{Client, Response};
use crate::support::upstream::Upstream;

fn started() -> Proxy {
    let tools = "[[tools]]\nname = 'web:look'\n";
    Setup::new()
        .tools("web", &Upstream::echo().url(), "", tools)
        .conf("[tools]\nmax_call_bytes = 100000\n")
        .start()
}

fn raw(proxy: &Proxy, headers: &[(&str, &str)], body: &[u8]) -> Response {
    let headers = [&[JSON], headers].concat();
    Client::connect(proxy.edge).send("POST", "/mcp", &headers, body)
}

#[test]
fn text_that_is_no_message_gets_its_error_in_each_era() {
    let proxy = started();
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"web:look","arguments":{}{}}}}}"#,
        "[".repeat(40_000),
        "]".repeat(40_000)
    );
    let enormous = request(
        "tools/call",
        json!({"name": "web:look", "arguments": {"x": "y".repeat(200_000)}}),
    );
    let enormous = enormous.to_string();
    let batch = json!([request("ping", json!({})), request("ping", json!({}))]).to_string();
    let members = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"web:look","arguments":{{"x":[{}0]}}}}}}"#,
        "0,".repeat(45_000)
    );
    for (body, status, code) in [
        (&b""[..], 400, -32700),
        (b"{\"jsonrpc\":\"2.0\",", 400, -32700),
        (b"\xff\xfe", 400, -32700),
        (deep.as_bytes(), 400, -32700),
        (enormous.as_bytes(), 413, -32600),
        (batch.as_bytes(), 400, -32600),
        (b"[]", 400, -32600),
        (b"\"ping\"", 400, -32600),
        (br#"{"jsonrpc":"2.0","id":1}"#, 400, -32600),
        (
            br#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#,
            400,
            -32600,
        ),
        (
            br#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#,
            200,
            -32602,
        ),
    ] {
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        let answer = raw(&proxy, &[], body);
        assert_eq!(
            (answer.status, &answer.json()["error"]["code"]),
            (status, &json!(code)),
            "{shown}"
        );
        assert!(answer.json().get("id").is_some(), "{shown}");
        let answer = raw(&proxy, &[VERSION, ("mcp-method", "ping")], body);
        assert_eq!(
            (answer.status, &answer.json()["error"]["code"]),
            (status, &json!(code)),
            "{shown}"
        );
    }
    // Many values are no harm as long as they are no more than a call may have.
    assert_eq!(raw(&proxy, &[], members.as_bytes()).status, 200);
    assert_eq!(post(&proxy, &[], &request("ping", json!({}))).status, 200);
    proxy.rises_to("ati_refusals_total{reason=\"rpc_parse\"}", 4.0);
}

#[test]
fn error_without_an_id_has_none_in_the_stateless_era() {
    let proxy = started();
    let answer: Value = raw(&proxy, &[], b"x").json();
    assert_eq!(answer["id"], Value::Null);
    assert!(answer.get("id").is_some());
    let answer: Value = raw(&proxy, &[VERSION], b"x").json();
    assert!(answer.get("id").is_none(), "{answer}");
}

#[test]
fn page_of_another_origin_is_refused() {
    let proxy = Setup::new()
        .conf("[mcp]\nallowed_origins = ['https://app.example.com']\n")
        .start();
    let ping = request("ping", json!({}));
    for (origin, status) in [
        ("http://evil.example", 403),
        ("null", 403),
        ("https://app.example.com", 200),
        ("http://localhost:3000", 200),
    ] {
        let answer = post(&proxy, &[("origin", origin)], &ping);
        assert_eq!(answer.status, status, "{origin}: {}", answer.text());
    }
    // A name that was made to lead here.
    let body = ping.to_string();
    let rebound = format!(
        "POST /mcp HTTP/1.1\r\nhost: evil.example\r\norigin: http://evil.example\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut client = proxy.client();
    client.write(rebound.as_bytes());
    assert_eq!(client.read(false).status, 403);
}

#[test]
fn mistake_in_the_conf_is_reported() {
    let setup = Setup::new().conf(
        "[mcp]\nallowed_origins = ['app.example.com']\nauthorization_servers = ['login']\n\
         resource = 'x'\npage_size = 0\n",
    );
    let output = setup.output();
    let text = crate::support::ati::stderr(&output);
    for expected in [
        "mcp.allowed_origins",
        "mcp.authorization_servers",
        "mcp.resource",
        "page_size",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}
