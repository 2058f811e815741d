//! Three tools in place of the catalogue.

use serde_json::{Value, json};

use super::{names, post_to, request, text};
use crate::support::ati::{Proxy, Setup};
use crate::support::eventually;
use crate::support::upstream::Upstream;

fn ask(proxy: &Proxy, method: &str, params: Value) -> Value {
    post_to(proxy, "/mcp?tools=search", &[], &request(method, params)).json()
}

fn call(proxy: &Proxy, tool: &str, args: Value) -> Value {
    ask(
        proxy,
        "tools/call",
        json!({"name": tool, "arguments": args}),
    )
}

#[test]
fn search_finds_describes_and_calls_tools_of_any_number() {
    let upstream = Upstream::echo();
    let mut tools = String::from(
        "[[tools]]\nname = 'web:weather'\ndescription = 'The forecast for a place'\nhint = 'Places by name'\n\
         examples = ['ati run web:weather --place Oslo']\nendpoint = '/forecast'\n\
         [tools.input_schema.properties.place]\ntype = 'string'\n[tools.response]\nextract = '$.target'\n",
    );
    for n in 0..40 {
        tools += &format!("[[tools]]\nname = 'web:page{n}'\ndescription = 'Reads a page'\n");
    }
    let proxy = Setup::new()
        .tools("web", &upstream.url(), "", &tools)
        .start();
    let list = ask(&proxy, "tools/list", json!({}));
    assert_eq!(names(&list), ["find_tools", "describe_tool", "call_tool"]);
    let begun = ask(&proxy, "initialize", json!({}));
    assert!(
        begun["result"]["instructions"]
            .as_str()
            .unwrap()
            .contains("find_tools")
    );

    let found = call(&proxy, "find_tools", json!({"query": "weather forecast"}));
    let found: Value = serde_json::from_str(text(&found)).unwrap();
    assert_eq!(
        found["tools"][0],
        json!({"name": "web:weather", "description": "The forecast for a place"})
    );
    let pages = call(&proxy, "find_tools", json!({"query": "page"}));
    let pages: Value = serde_json::from_str(text(&pages)).unwrap();
    assert_eq!(pages["tools"].as_array().unwrap().len(), 20);
    let two = call(&proxy, "find_tools", json!({"query": "page", "limit": 2}));
    let two: Value = serde_json::from_str(text(&two)).unwrap();
    assert_eq!(two["tools"].as_array().unwrap().len(), 2);

    let told = call(&proxy, "describe_tool", json!({"name": "web:weather"}));
    let told: Value = serde_json::from_str(text(&told)).unwrap();
    assert_eq!(
        told["inputSchema"]["properties"]["place"],
        json!({"type": "string"})
    );
    assert_eq!(told["hint"], "Places by name");
    assert_eq!(told["examples"][0], "ati run web:weather --place Oslo");

    let called = call(
        &proxy,
        "call_tool",
        json!({"name": "web:weather", "arguments": {"place": "Oslo"}}),
    );
    assert_eq!(text(&called), "/forecast?place=Oslo");
    // The tools themselves can be called, too.
    assert_eq!(text(&call(&proxy, "web:weather", json!({}))), "/forecast");
    for (tool, args, told) in [
        (
            "find_tools",
            json!({}),
            "Error: Invalid arguments: query: it is missing",
        ),
        (
            "describe_tool",
            json!({"name": "nope"}),
            "Error: Unknown tool: 'nope'",
        ),
        (
            "call_tool",
            json!({"name": "nope"}),
            "Error: Unknown tool: 'nope'",
        ),
        (
            "call_tool",
            json!({}),
            "Error: Invalid arguments: name: it is missing",
        ),
        (
            "call_tool",
            json!({"name": 5}),
            "Error: Invalid arguments: they don't fit the input schema",
        ),
    ] {
        let answer = call(&proxy, tool, args);
        assert_eq!(
            (text(&answer), &answer["result"]["isError"]),
            (told, &json!(true))
        );
    }
    eventually("the access line of the tool itself", || {
        let lines = proxy.log.find_all("request");
        lines.into_iter().find(|line| line["tool"] == "web:weather")
    });
}
