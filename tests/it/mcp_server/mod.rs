//! ati as an MCP server: `POST /mcp` and `ati mcp serve`, as raw messages of both eras.

mod calls;
mod clients;
mod heavy;
mod hostile;
mod load;
mod native;
mod pages;
mod progress;
mod search;
pub mod serve;
mod stateless;
mod tokens;

use serde_json::{Value, json};

use crate::support::ati::Proxy;
use crate::support::http::{Client, Response};

const JSON: (&str, &str) = ("content-type", "application/json");

/// One message of the handshake era.
fn post(proxy: &Proxy, headers: &[(&str, &str)], body: &Value) -> Response {
    post_to(proxy, "/mcp", headers, body)
}

fn post_to(proxy: &Proxy, path: &str, headers: &[(&str, &str)], body: &Value) -> Response {
    let headers = [&[JSON], headers].concat();
    let body = body.to_string();
    Client::connect(proxy.edge).send("POST", path, &headers, body.as_bytes())
}

fn request(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
}

/// The answer to a request that is answered with 200.
fn ask(proxy: &Proxy, method: &str, params: Value) -> Value {
    let answer = post(proxy, &[], &request(method, params));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    assert_eq!(
        (&answer["jsonrpc"], &answer["id"]),
        (&json!("2.0"), &json!(7))
    );
    answer
}

fn call(proxy: &Proxy, tool: &str, args: Value) -> Value {
    ask(
        proxy,
        "tools/call",
        json!({"name": tool, "arguments": args}),
    )
}

fn text(answer: &Value) -> &str {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text in {answer}"))
}

/// A message of the stateless era.
fn stateless(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    request(method, params)
}

const VERSION: (&str, &str) = ("mcp-protocol-version", "2026-07-28");

fn ask_stateless(proxy: &Proxy, method: &str, params: Value) -> Response {
    let name = params["name"].as_str().map(str::to_owned);
    let mut headers = vec![VERSION, ("mcp-method", method)];
    if let Some(name) = &name {
        headers.push(("mcp-name", name));
    }
    post(proxy, &headers, &stateless(method, params))
}

/// The tools of a list, without those for files, which every list has.
fn tools(list: &Value) -> Vec<&Value> {
    let tools = list["result"]["tools"].as_array();
    let tools = tools.unwrap_or_else(|| panic!("no list in {list}")).iter();
    let for_files = |tool: &Value| tool["name"].as_str().unwrap().starts_with("file_manager:");
    tools.filter(|tool| !for_files(tool)).collect()
}

fn names(list: &Value) -> Vec<String> {
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
    tools(list).into_iter().map(name).collect()
}
