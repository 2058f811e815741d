//! Confirmations of MCP clients.

use serde_json::{Value, json};

use super::*;

fn ask(proxy: &Proxy, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let headers = [("content-type", "application/json")];
    let answer = proxy
        .client()
        .send("POST", "/mcp", &headers, body.to_string().as_bytes());
    answer.json()
}

#[test]
fn call_over_mcp_is_confirmed_through_meta() {
    let api = upstream();
    let proxy = setup(&api, "").start();
    let arguments = json!({"repo": "o/r"});
    let asked = ask(
        &proxy,
        json!({"name": "gh:repo_delete", "arguments": arguments}),
    );
    let result = &asked["result"];
    assert_eq!(result["isError"], true, "{asked}");
    let text = result["content"][0]["text"].as_str().unwrap();
    let same: Value = serde_json::from_str(text).unwrap();
    assert!(
        same["error"]
            .as_str()
            .unwrap()
            .starts_with("Confirmation required: ")
    );
    assert_eq!(result["structuredContent"], same);
    let token = same["confirmation"]["token"].as_str().unwrap();
    let call = |token: &str, arguments: &Value| {
        ask(
            &proxy,
            json!({"name": "gh:repo_delete", "arguments": arguments,
                   "_meta": {"ati/confirm": token}}),
        )
    };
    let changed = call(token, &json!({"repo": "o/other"}));
    assert_eq!(changed["result"]["isError"], true, "{changed}");
    assert_eq!(api.received().len(), 0);
    let done = call(token, &arguments);
    assert_eq!(done["result"]["isError"], false, "{done}");
    let again = call(token, &arguments);
    assert_eq!(again["result"]["isError"], true, "{again}");
    assert_eq!(api.received().len(), 1);
}

#[test]
fn denied_call_over_mcp_names_the_rule_and_the_list_has_its_mark() {
    let api = upstream();
    let conf = "[policy]\neffect_restrictions = { destructive = false }\n";
    let proxy = setup(&api, conf).start();
    let denied = ask(
        &proxy,
        json!({"name": "gh:repo_delete", "arguments": {"repo": "o/r"}}),
    );
    assert_eq!(denied["error"]["code"], -32001, "{denied}");
    let rule = "policy.effectRestrictions.destructive";
    assert_eq!(denied["error"]["data"], json!({"rule": rule}), "{denied}");
    let message = denied["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("policy.effectRestrictions.destructive"),
        "{message}"
    );
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let headers = [("content-type", "application/json")];
    let list = proxy
        .client()
        .send("POST", "/mcp", &headers, body.to_string().as_bytes());
    let list = list.json();
    let tools = list["result"]["tools"].as_array().unwrap().iter();
    let mut tools = tools.filter(|tool| tool["name"] == "gh:repo_delete");
    assert_eq!(
        tools.next().unwrap()["annotations"]["destructiveHint"],
        true
    );
}

#[test]
fn client_that_can_ask_its_user_is_asked_and_runs_what_the_user_agrees_to() {
    let api = upstream();
    let proxy = setup(&api, "").start();
    let call = |more: Value| {
        let mut params = json!({
            "name": "gh:repo_delete",
            "arguments": {"repo": "o/r"},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
            },
        });
        for (name, value) in more.as_object().unwrap() {
            params[name] = value.clone();
        }
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let headers = [
            ("content-type", "application/json"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "gh:repo_delete"),
        ];
        let answer = proxy
            .client()
            .send("POST", "/mcp", &headers, body.to_string().as_bytes());
        answer.json()["result"].clone()
    };
    let asked = call(json!({}));
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let question = &asked["inputRequests"]["confirm"];
    assert_eq!(question["method"], "elicitation/create");
    let message = question["params"]["message"].as_str().unwrap();
    assert!(message.contains("gh:repo_delete"), "{message}");
    assert!(message.contains(r#"{"repo":"o/r"}"#), "{message}");
    let answered = |action: &str, content: Value| {
        let response = json!({"action": action, "content": content});
        call(
            json!({"requestState": asked["requestState"], "inputResponses": {"confirm": response}}),
        )
    };
    for (action, content) in [
        ("decline", json!(null)),
        ("accept", json!(null)),
        ("accept", json!({"confirm": false})),
        ("accept", json!({"confirm": "no"})),
        ("accept", json!({"confirm": null})),
    ] {
        let declined = answered(action, content);
        assert_eq!(declined["isError"], true, "{declined}");
    }
    assert_eq!(api.received().len(), 0);
    let done = answered("accept", json!({"confirm": true}));
    assert_eq!(
        (&done["isError"], &done["resultType"]),
        (&json!(false), &json!("complete"))
    );
    let again = answered("accept", json!({"confirm": true}));
    assert_eq!(again["isError"], true, "{again}");
    assert_eq!(api.received().len(), 1);
}
