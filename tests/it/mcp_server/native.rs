//! Results of MCP servers, as those wrote them.

use serde_json::{Value, json};

use super::{ask, call, text, tools};
use crate::mcp::{over_http, particular_server, with_result};
use crate::support::ati::Proxy;
use crate::support::upstream::Upstream;

const IMAGE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn result() -> Value {
    json!({
        "content": [
            {"type": "text", "text": "{\"n\": 1.50}", "annotations": {"priority": 0.5}},
            {"type": "image", "data": IMAGE, "mimeType": "image/png"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
            {"type": "resource_link", "uri": "file:///a.txt", "name": "a"},
            {"type": "resource", "resource": {"uri": "file:///b.txt", "text": "b"}},
        ],
        "structuredContent": {"n": 1.5, "list": [1, null]},
        "isError": false,
    })
}

fn started(more: &str) -> (Upstream, Proxy) {
    let server = particular_server(
        |_, message, stream| {
            use std::io::Write as _;
            if message["method"] != "tools/list" {
                return None;
            }
            let tools = json!([
                {
                    "name": "mixed", "title": "Mixed things", "description": "Gives everything",
                    "inputSchema": {"type": "object"},
                    "outputSchema": {"type": "object", "properties": {"n": {"type": "number"}}},
                    "annotations": {"readOnlyHint": true, "openWorldHint": false},
                },
                {"name": "broken", "inputSchema": {"type": "object"}},
            ]);
            let answer = with_result(message, "", &json!({"tools": tools}));
            Some(stream.write_all(answer.as_bytes()).is_ok())
        },
        |_, message, stream| {
            use std::io::Write as _;
            let result = match message["params"]["name"].as_str() {
                Some("broken") => json!({
                    "content": [{"type": "text", "text": "no"}, {"type": "image", "data": IMAGE, "mimeType": "image/png"}],
                    "isError": true,
                }),
                _ => result(),
            };
            let answer = with_result(message, "", &result);
            stream.write_all(answer.as_bytes()).is_ok()
        },
    );
    let proxy = over_http(&server, more).start();
    proxy.log.wait_for("tools listed");
    (server, proxy)
}

#[test]
fn content_of_every_kind_and_structured_content_arrive_unchanged() {
    let (_server, proxy) = started("");
    let answer = call(&proxy, "s:mixed", json!({}));
    assert_eq!(answer["result"], result());
    let list = ask(&proxy, "tools/list", json!({}));
    let mixed = tools(&list)[1];
    assert_eq!(
        (&mixed["name"], &mixed["title"]),
        (&json!("s:mixed"), &json!("Mixed things"))
    );
    assert_eq!(
        mixed["outputSchema"]["properties"],
        json!({"n": {"type": "number"}})
    );
    assert_eq!(
        mixed["annotations"],
        json!({"readOnlyHint": true, "openWorldHint": false})
    );
    // /call has its own shape.
    let called = proxy.call(None, "s:mixed", json!({})).json();
    assert_eq!(
        called["result"]["content"][0],
        json!({"type": "text", "text": "{\"n\": 1.50}"})
    );
}

#[test]
fn failure_of_a_tool_is_its_own_result() {
    let (_server, proxy) = started("");
    let answer = call(&proxy, "s:broken", json!({}));
    let result = &answer["result"];
    assert_eq!((&result["isError"], text(&answer)), (&json!(true), "no"));
    assert_eq!(result["content"][1]["type"], "image");
    let audit = proxy.wait_for_audit(1);
    assert_eq!(audit[0]["status"], "error");
    proxy.settles(
        "ati_tool_calls_total{outcome=\"tool_error\",provider=\"s\",tool=\"s:broken\"}",
        1.0,
    );
}

#[test]
fn extract_is_applied_to_a_result_that_is_listed_without_a_schema() {
    let tools =
        "[[tools]]\nname = 's:mixed'\n[tools.response]\nextract = '$.structuredContent.n'\n";
    let (_server, proxy) = started(tools);
    let answer = call(&proxy, "s:mixed", json!({}));
    assert_eq!(
        answer["result"],
        json!({"content": [{"type": "text", "text": "1.5"}], "isError": false})
    );
    let tools = &ask(&proxy, "tools/list", json!({}))["result"]["tools"];
    assert!(tools[1].get("outputSchema").is_none(), "{tools}");
}

#[test]
fn secret_in_a_native_result_is_redacted() {
    let secret = "planted-native-secret";
    let leaking = particular_server(
        |_, _, _| None,
        move |request, message, stream| {
            use std::io::Write as _;
            let key = request
                .header("authorization")
                .unwrap_or_default()
                .to_owned();
            let result = json!({
                "content": [{"type": "resource", "resource": {"uri": "x:y", "text": key}}],
                "structuredContent": {"key": key},
            });
            let answer = with_result(message, "", &result);
            stream.write_all(answer.as_bytes()).is_ok()
        },
    );
    let setup = over_http(&leaking, "auth_type = 'bearer'\nauth_key_name = 'k'");
    let proxy = setup.credentials(&json!({"k": secret})).start();
    proxy.log.wait_for("tools listed");
    let answer = call(&proxy, "s:who", json!({})).to_string();
    assert!(
        !answer.contains(secret) && answer.contains("[REDACTED]"),
        "{answer}"
    );
}
