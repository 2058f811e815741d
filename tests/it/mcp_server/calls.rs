//! What clients of existing deployments observe.

use serde_json::{Value, json};

use super::{ask, call, names, post, request, text, tools};
use crate::support::ati::{Proxy, Setup};
use crate::support::eventually;
use crate::support::http::Client;
use crate::support::upstream::Upstream;

const TOOLS: &str = r#"
[[tools]]
name = "web:look"
description = "Looks at a page"
endpoint = "/look"
[tools.input_schema]
type = "object"
required = ["q"]
[tools.input_schema.properties.q]
type = "string"

[[tools]]
name = "web:target"
endpoint = "/some"
[tools.response]
extract = "$.target"

[[tools]]
name = "web:wipe"
method = "DELETE"
"#;

fn started() -> (Upstream, Proxy) {
    let upstream = Upstream::echo();
    let proxy = Setup::new()
        .tools("web", &upstream.url(), "", TOOLS)
        .start();
    (upstream, proxy)
}

#[test]
fn handshake_answers_the_clients_version_and_notifications_get_202() {
    let (_upstream, proxy) = started();
    for (asked, answered) in [
        (json!("2025-03-26"), "2025-03-26"),
        (json!("2025-11-25"), "2025-11-25"),
        (json!("2024-11-05"), "2024-11-05"),
        (json!("2099-01-01"), "2025-11-25"),
        (json!(null), "2025-03-26"),
    ] {
        let params = json!({"protocolVersion": asked, "capabilities": {}});
        let result = &ask(&proxy, "initialize", params)["result"];
        assert_eq!(result["protocolVersion"], answered, "{asked}");
        assert_eq!(
            result["capabilities"],
            json!({"tools": {"listChanged": false}})
        );
        assert_eq!(result["serverInfo"]["name"], "ati-proxy");
    }
    for method in [
        "notifications/initialized",
        "notifications/roots/list_changed",
    ] {
        let told = post(&proxy, &[], &json!({"jsonrpc": "2.0", "method": method}));
        assert_eq!((told.status, told.text().as_str()), (202, ""), "{method}");
    }
    assert_eq!(ask(&proxy, "ping", json!({}))["result"], json!({}));
}

#[test]
fn list_has_names_schemas_and_what_is_certain() {
    let (_upstream, proxy) = started();
    let list = ask(&proxy, "tools/list", json!({}));
    assert_eq!(names(&list), ["web:look", "web:target", "web:wipe"]);
    let tools = tools(&list);
    assert_eq!(tools[0]["description"], "Looks at a page");
    assert_eq!(tools[0]["inputSchema"]["required"], json!(["q"]));
    assert_eq!(tools[0]["annotations"], json!({"readOnlyHint": true}));
    assert_eq!(
        tools[1]["inputSchema"],
        json!({"type": "object", "properties": {}})
    );
    assert_eq!(tools[2]["annotations"]["destructiveHint"], true);
    assert!(list["result"].get("nextCursor").is_none());
    assert!(list["result"].get("resultType").is_none());
}

#[test]
fn call_runs_the_whole_pipeline() {
    let (upstream, proxy) = started();
    let answer = call(&proxy, "web:look", json!({"q": "a b"}));
    assert_eq!(answer["result"]["isError"], false);
    let printed: Value = serde_json::from_str(text(&answer)).unwrap();
    assert_eq!(printed["target"], "/look?q=a%20b");
    assert!(
        text(&answer).starts_with("{\n  \"method\": \"GET\""),
        "{answer}"
    );
    // A text is the result itself; an alias and `extract` work as they do for /call.
    assert_eq!(text(&call(&proxy, "web_target", json!({}))), "/some");
    // Without arguments.
    let bare = ask(&proxy, "tools/call", json!({"name": "web:target"}));
    assert_eq!(text(&bare), "/some");
    let invalid = call(&proxy, "web:look", json!({}));
    assert_eq!(invalid["result"]["isError"], true);
    assert_eq!(text(&invalid), "Error: Invalid arguments: q: is required");
    assert_eq!(upstream.received().len(), 3);
    let audit = proxy.wait_for_audit(4);
    assert_eq!(audit[0]["tool"], "web:look");
    assert_eq!(audit[3]["status"], "error");
    proxy.settles(
        "ati_tool_calls_total{outcome=\"ok\",provider=\"web\",tool=\"web:target\"}",
        2.0,
    );
    let access_line = |like: &dyn Fn(&Value) -> bool| {
        eventually("the access line", || {
            let lines = proxy.log.find_all("request");
            lines.into_iter().find(|line| like(line))
        })
    };
    let look = access_line(&|line| line["tool"] == "web:look" && line["attempts"] == 1);
    assert_eq!(
        (&look["path"], &look["upstream_status"]),
        (&json!("/mcp"), &json!(200))
    );
    access_line(&|line| line["refused"] == "invalid_arguments");
}

#[test]
fn request_that_is_wrong_gets_its_code() {
    let (_upstream, proxy) = started();
    for (method, params, code, message) in [
        (
            "tools/call",
            json!({}),
            -32602,
            "Missing tool name in params.name",
        ),
        (
            "tools/call",
            json!({"name": ""}),
            -32602,
            "Missing tool name in params.name",
        ),
        (
            "tools/call",
            json!({"name": "nope"}),
            -32602,
            "Unknown tool: 'nope'",
        ),
        (
            "resources/list",
            json!({}),
            -32601,
            "Method not found: 'resources/list'",
        ),
        (
            "prompts/get",
            json!({}),
            -32601,
            "Method not found: 'prompts/get'",
        ),
        (
            "tools/list",
            json!({"cursor": "nonsense"}),
            -32602,
            "Invalid cursor",
        ),
    ] {
        let error = &ask(&proxy, method, params)["error"];
        assert_eq!(
            (&error["code"], &error["message"]),
            (&json!(code), &json!(message))
        );
    }
    let mut client = Client::connect(proxy.edge);
    for method in ["GET", "DELETE"] {
        let answer = client.send(method, "/mcp", &[], b"");
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
    }
    let body = request("ping", json!({})).to_string();
    for headers in [&[][..], &[("content-type", "text/plain")]] {
        let answer = client.send("POST", "/mcp", headers, body.as_bytes());
        assert_eq!(answer.status, 415, "{}", answer.text());
    }
}

#[test]
fn failed_upstream_is_a_result_that_the_model_reads() {
    let down = Upstream::fixed("HTTP/1.1 500 X\r\ncontent-length: 4\r\n\r\noops");
    let proxy = Setup::new().tools("web", &down.url(), "", TOOLS).start();
    let answer = call(&proxy, "web:target", json!({}));
    assert_eq!(answer["result"]["isError"], true);
    assert_eq!(
        text(&answer),
        "Error: Upstream API error: API error (500): oops"
    );
    let line = eventually("the access line", || {
        let lines = proxy.log.find_all("request");
        lines
            .into_iter()
            .find(|line| line["upstream_error"] == "status")
    });
    assert_eq!(
        (&line["status"], &line["level"]),
        (&json!(200), &json!("WARN"))
    );
}

#[test]
fn result_from_disk_is_the_same_text() {
    let big = json!({"items": vec!["x".repeat(1000); 200]});
    let body = big.to_string() + "\n";
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let upstream = Upstream::fixed(answer);
    let proxy = Setup::new()
        .tools("web", &upstream.url(), "", "[[tools]]\nname = 'web:big'\n")
        .conf("[tools]\nspool_bytes = 1000\n")
        .start();
    let shown = call(&proxy, "web:big", json!({}));
    assert_eq!(text(&shown), serde_json::to_string_pretty(&big).unwrap());
}

#[test]
fn program_gets_each_argument_as_a_flag_with_its_value() {
    let manifest = "[provider]\nname = 'echo'\nhandler = 'cli'\ncli_command = '/bin/echo'\n\
                    [[tools]]\nname = 'echo'\ndescription = 'Repeats'\n";
    let proxy = Setup::new().manifest("echo", manifest).start();
    let list = ask(&proxy, "tools/list", json!({}));
    assert_eq!(names(&list), ["echo"]);
    let answer = call(&proxy, "echo", json!({"name": "a b", "loud": true, "n": 5}));
    assert_eq!(text(&answer), "--name a b --loud true --n 5");
}
