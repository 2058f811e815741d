//! What a server says about its tools, next to what the operator says, and where it can't be read.

use std::io::Write;
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{over_http, particular_server, started, told, with_result};
use crate::support::upstream::{Received, Upstream};

/// A server with one tool for each of these annotations.
fn annotated(hints: Vec<(&'static str, Value)>) -> Upstream {
    let list = move |_: &Received, message: &Value, stream: &mut TcpStream| {
        (message["method"] == "tools/list").then(|| {
            let tool = |(name, hints): &(&str, Value)| {
                json!({"name": name, "inputSchema": {"type": "object"}, "annotations": hints})
            };
            let tools: Vec<Value> = hints.iter().map(tool).collect();
            let answer = with_result(message, "", &json!({"tools": tools}));
            stream.write_all(answer.as_bytes()).is_ok()
        })
    };
    particular_server(list, |_, message, stream| {
        stream.write_all(told(message, "done").as_bytes()).is_ok()
    })
}

#[test]
fn hint_of_a_server_counts_where_the_operator_says_nothing_about_it() {
    let upstream = annotated(vec![
        ("wipe", json!({"destructiveHint": true, "title": "Wipe"})),
        ("soft", json!({"destructiveHint": true})),
    ]);
    let more = "[[tools]]\nname = 's:wipe'\neffects = { network = true }\n\
                [[tools]]\nname = 's:soft'\neffects = { destructive = false }\n";
    let setup = over_http(&upstream, more).conf("[policy]\npreset = 'careful'\n");
    let proxy = started(setup);
    let asked = proxy.call(None, "s:wipe", json!({}));
    assert_eq!(asked.status, 409, "{}", asked.text());
    let rule = "policy.preset.careful.destructive";
    assert_eq!(asked.json()["confirmation"]["rule"], rule);
    assert_eq!(proxy.call(None, "s:soft", json!({})).status, 200);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let headers = [("content-type", "application/json")];
    let list = proxy
        .client()
        .send("POST", "/mcp", &headers, body.as_bytes());
    let list = list.json();
    let tools = list["result"]["tools"].as_array().unwrap();
    let hints = |name: &str| {
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        tool["annotations"].clone()
    };
    let wipe = json!({"title": "Wipe", "readOnlyHint": false, "destructiveHint": true,
                      "openWorldHint": true});
    assert_eq!(hints("s:wipe"), wipe);
    assert_eq!(hints("s:soft")["destructiveHint"], false);
}

#[test]
fn hint_that_cannot_be_read_takes_no_tool_away() {
    let upstream = annotated(vec![
        ("odd", json!({"destructiveHint": "yes"})),
        ("plain", json!({})),
    ]);
    let proxy = started(over_http(&upstream, ""));
    for tool in ["s:odd", "s:plain"] {
        let answer = proxy.call(None, tool, json!({}));
        assert_eq!(answer.status, 200, "{tool}: {}", answer.text());
    }
    let odd = proxy.client().get("/tools/s:odd").json();
    assert!(odd.get("effects").is_none(), "{odd}");
}
