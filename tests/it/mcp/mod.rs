//! MCP servers behind tools: calls, sessions, server processes, faults.

mod big;
mod calls;
mod checks;
mod commands;
mod down;
mod faults;
mod hints;
mod hostile;
mod listing;
mod over_http;
mod processes;
mod run_as;
mod session_log;
mod threads;

use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::support::ati::{BINARY, Proxy, Setup, write};
use crate::support::eventually;
use crate::support::http::Client;
use crate::support::upstream::{Received, Upstream};

/// The MCP server of the tests: tests/it/support/mcp_server.rs.
pub fn server() -> PathBuf {
    Path::new(BINARY)
        .parent()
        .unwrap()
        .join("examples/mcp_server")
}

pub fn manifest(name: &str, mode: &str, more: &str) -> String {
    format!(
        r#"
            [provider]
            name = "{name}"
            handler = "mcp"
            mcp_command = "{}"
            mcp_args = ["{mode}"]
            {more}
        "#,
        server().display()
    )
}

fn with(mode: &str, more: &str) -> Setup {
    Setup::new().manifest("s", &manifest("s", mode, more))
}

/// A proxy whose server has listed its tools.
fn started(setup: Setup) -> Proxy {
    let proxy = setup.start();
    proxy.log.wait_for("tools listed");
    proxy
}

fn result(proxy: &Proxy, tool: &str, args: Value) -> Value {
    let answer = proxy.call(None, tool, args);
    assert_eq!(answer.status, 200, "{tool}: {}", answer.text());
    answer.json()["result"].clone()
}

/// Calls of the server's tools `slow` and `once` that end only when the test says so.
struct Gate(PathBuf);

impl Gate {
    fn new(proxy: &Proxy) -> Self {
        Gate(proxy.path("gate"))
    }

    /// Calls the tool in a thread: the status and the answer.
    fn call(&self, proxy: &Proxy, tool: &str) -> JoinHandle<(u16, Value)> {
        let body = json!({"tool_name": tool, "args": {"text": self.0}}).to_string();
        let edge = proxy.edge;
        std::thread::spawn(move || {
            let answer = Client::connect(edge).send("POST", "/call", &[], body.as_bytes());
            (answer.status, answer.json())
        })
    }

    /// Waits until the server has a call of this tool.
    fn wait_for(&self, tool: &str) {
        eventually("a call at the server", || {
            let held = std::fs::read_to_string(self.0.with_extension("held")).ok()?;
            held.lines().any(|line| line == tool).then_some(())
        });
    }

    fn open(&self) {
        write(&self.0, "");
    }
}

fn kill(pid: u32) {
    let status = Command::new("kill")
        .args(["-KILL", &pid.to_string()])
        .status();
    assert!(status.unwrap().success());
}

fn failure(proxy: &Proxy, tool: &str, args: Value) -> String {
    let answer = proxy.call(None, tool, args);
    assert_eq!(answer.status, 502, "{tool}: {}", answer.text());
    answer.json()["error"].as_str().unwrap().to_owned()
}

/// The names of the server's tools.
fn listed(proxy: &Proxy) -> Vec<String> {
    let tools = proxy.client().get("/tools?provider=s").json();
    let tools = tools.as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

fn is_alive(pid: u32) -> bool {
    // A zombie is dead.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit_once(')')
            .unwrap()
            .1
            .trim_start()
            .starts_with('Z')
    })
}

/// An MCP server over HTTP, of protocol version 2025-06-18. `answer` returns the answer to a call.
fn http_server(answer: impl Fn(&Received, &Value) -> String + Send + Sync + 'static) -> Upstream {
    writing_server(move |request, message, stream| {
        let answer = answer(request, message);
        stream.write_all(answer.as_bytes()).is_ok()
    })
}

/// The same, but `answer` writes the answer itself, and returns whether the connection is kept.
fn writing_server(
    answer: impl Fn(&Received, &Value, &mut TcpStream) -> bool + Send + Sync + 'static,
) -> Upstream {
    particular_server(|_, _, _| None, answer)
}

/// The same, but `way` may handle any request: it returns None for those that it leaves.
pub fn particular_server(
    way: impl Fn(&Received, &Value, &mut TcpStream) -> Option<bool> + Send + Sync + 'static,
    answer: impl Fn(&Received, &Value, &mut TcpStream) -> bool + Send + Sync + 'static,
) -> Upstream {
    let sessions = Mutex::new(0);
    Upstream::answering(move |request, stream| {
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if let Some(go_on) = way(request, &message, stream) {
            return go_on;
        }
        let empty = |status: u16| format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
        let response = match message["method"].as_str().unwrap_or_default() {
            "server/discover" => empty(400),
            "initialize" => {
                let mut sessions = sessions.lock().unwrap();
                *sessions += 1;
                let result = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}});
                with_result(
                    &message,
                    &format!("mcp-session-id: s{sessions}\r\n"),
                    &result,
                )
            }
            "tools/list" => {
                let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
                let result = json!({"tools": [tool("who"), tool("forever")]});
                with_result(&message, "", &result)
            }
            "tools/call" => return answer(request, &message, stream),
            _ if request.method == "GET" => empty(405),
            _ => empty(202),
        };
        stream.write_all(response.as_bytes()).is_ok()
    })
}

pub fn with_result(message: &Value, headers: &str, result: &Value) -> String {
    let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub fn told(message: &Value, text: &str) -> String {
    let result = json!({"content": [{"type": "text", "text": text}]});
    with_result(message, "", &result)
}

pub fn over_http(upstream: &Upstream, more: &str) -> Setup {
    let text = format!(
        r#"
            [provider]
            name = "s"
            handler = "mcp"
            mcp_transport = "http"
            mcp_url = "{}/mcp"
            {more}
        "#,
        upstream.url()
    );
    Setup::new().manifest("s", &text)
}

/// A stream of these events, as the answer to a call.
fn streamed(events: &[Value]) -> String {
    let body: String = events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}
