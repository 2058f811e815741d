//! Users of MCP clients who are asked: over standard streams, after a handshake.

use serde_json::{Value, json};

use super::*;
use crate::mcp_server::serve::Served;
use crate::support::ati::command;

/// A client after its handshake. `url` is the proxy's, where one is in between.
fn connected(proxy: &Proxy, url: Option<&str>, capabilities: Value, args: &[&str]) -> Served {
    let mut command = command(&proxy.path(""));
    if let Some(url) = url {
        command.env("ATI_PROXY_URL", url);
    }
    let mut served = Served::start(command.args(["mcp", "serve"]).args(args));
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": capabilities,
                       "clientInfo": {"name": "t", "version": "1"}});
    let answer = served.ask("initialize", hello);
    assert!(answer["result"].is_object(), "{answer}");
    served
}

/// Calls, and answers the question that comes of it with this result.
fn asked(served: &mut Served, params: &Value, said: &Value) -> (String, Value) {
    served.send(&json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}));
    let question = served.notification("elicitation/create");
    let schema = &question["params"]["requestedSchema"];
    assert_eq!(schema["properties"]["confirm"]["type"], "boolean");
    let mut answer = json!({"jsonrpc": "2.0", "id": question["id"]});
    match said {
        Value::Object(_) => answer["result"] = said.clone(),
        _ => answer["error"] = json!({"code": -32601, "message": "no"}),
    }
    served.send(&answer);
    let message = question["params"]["message"].as_str().unwrap().to_owned();
    let answer = served.answer();
    assert_eq!(answer["id"], 9, "{answer}");
    (message, answer["result"].clone())
}

#[test]
fn client_with_a_handshake_is_asked_and_runs_once_what_its_user_agrees_to() {
    let api = upstream();
    let proxy = setup(&api, "").start();
    let url = format!("http://{}", proxy.edge);
    let agreed = json!({"action": "accept", "content": {"confirm": true}});
    for url in [None, Some(url.as_str())] {
        let before = api.received().len();
        let mut served = connected(&proxy, url, json!({"elicitation": {}}), &[]);
        let delete = json!({"name": "gh:repo_delete", "arguments": {"repo": "o/r"}});
        for said in [
            json!({"action": "decline"}),
            json!({"action": "cancel"}),
            json!({"action": "accept"}),
            json!({"action": "accept", "content": {"confirm": false}}),
        ] {
            let (message, result) = asked(&mut served, &delete, &said);
            assert!(message.contains("gh:repo_delete") && message.contains("o/r"));
            let text = result["content"][0]["text"].as_str().unwrap();
            assert!(text.contains("Confirmation declined"), "{text}");
        }
        // A client that can't ask after all gets what it would have got.
        let (_, result) = asked(&mut served, &delete, &json!(null));
        let wanted = &result["structuredContent"]["confirmation"];
        assert_eq!(wanted["rule"], "declared.destructive", "{result}");
        assert_eq!(api.received().len(), before);
        let (_, result) = asked(&mut served, &delete, &agreed);
        assert_eq!(result["isError"], false, "{result}");
        assert_eq!(api.received().len(), before + 1);
        // What wants no confirmation isn't asked about.
        let view = served.call("gh:repo_view", json!({}));
        assert_eq!(view["result"]["isError"], false, "{view}");
        assert_eq!(served.end(), Some(0));
        let mut searching = connected(&proxy, url, json!({"elicitation": {}}), &["--search"]);
        let call = json!({"name": "call_tool", "arguments": delete});
        let (message, result) = asked(&mut searching, &call, &agreed);
        assert!(message.contains("o/r"), "{message}");
        assert_eq!(result["isError"], false, "{result}");
        assert_eq!(searching.end(), Some(0));
    }
}

#[test]
fn client_that_cannot_ask_or_is_gone_is_not_waited_for() {
    let api = upstream();
    let proxy = setup(&api, "").start();
    let arguments = json!({"repo": "o/r"});
    for capabilities in [json!({}), json!({"elicitation": {"url": {}}})] {
        let mut served = connected(&proxy, None, capabilities, &[]);
        let answer = served.call("gh:repo_delete", arguments.clone());
        assert_eq!(answer["result"]["isError"], true, "{answer}");
    }
    let mut served = connected(&proxy, None, json!({"elicitation": {}}), &[]);
    let params = json!({"name": "gh:repo_delete", "arguments": arguments});
    served.send(&json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}));
    served.notification("elicitation/create");
    // Its input ends while the question is open.
    assert_eq!(served.end(), Some(0));
    assert_eq!(api.received().len(), 0);
}
