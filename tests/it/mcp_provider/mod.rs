//! `/mcp/{provider}`: an MCP server of the catalogue as it is, in both eras.

mod hostile;
mod limits;
mod over_http;
mod policy;
mod scopes;
mod sessions;
mod stateless;
mod vanish;

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::ati::{BINARY, Proxy, Setup};
use crate::support::http::{Client, Response};

const JSON: (&str, &str) = ("content-type", "application/json");
const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");

/// A proxy in front of the program of the tests.
fn with_program(more: &str) -> Setup {
    let program = Path::new(BINARY).parent().unwrap();
    let program = program.join("examples/mcp_server");
    let text = format!(
        "[provider]\nname = \"s\"\nhandler = \"mcp\"\nmcp_command = \"{}\"\n{more}",
        program.display()
    );
    Setup::new().manifest("s", &text)
}

fn started(setup: Setup) -> Proxy {
    let proxy = setup.start();
    proxy.log.wait_for("tools listed");
    proxy
}

/// A client with a session.
struct Session {
    edge: SocketAddr,
    id: String,
    bearer: Option<String>,
}

impl Session {
    fn open(proxy: &Proxy) -> Self {
        Session::open_as(proxy, None)
    }

    fn open_as(proxy: &Proxy, bearer: Option<&str>) -> Self {
        let mut session = Session {
            edge: proxy.edge,
            id: String::new(),
            bearer: bearer.map(str::to_owned),
        };
        let answer = session.post(&initialize());
        assert_eq!(answer.status, 200, "{}", answer.text());
        session.id = answer.header("mcp-session-id").unwrap().to_owned();
        let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let told = session.post(&told);
        assert_eq!((told.status, told.text().as_str()), (202, ""));
        session
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        let mut headers = vec![JSON, ACCEPT];
        if !self.id.is_empty() {
            headers.push(("mcp-session-id", &self.id));
        }
        if let Some(bearer) = &self.bearer {
            headers.push(("authorization", bearer));
        }
        headers
    }

    fn send(&self, method: &str, body: &[u8]) -> Response {
        Client::connect(self.edge).send(method, "/mcp/s", &self.headers(), body)
    }

    fn post(&self, message: &Value) -> Response {
        self.send("POST", message.to_string().as_bytes())
    }

    /// The answer to a request, as JSON or as the last event.
    fn ask(&self, method: &str, params: Value) -> Value {
        let answer = self.post(&request(method, params));
        assert_eq!(answer.status, 200, "{}", answer.text());
        events(&answer).pop().unwrap()
    }

    fn call(&self, tool: &str, args: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": args}))
    }

    /// Sends a request and returns the connection that its answer comes on.
    fn begin(&self, method: &str, message: Option<&Value>) -> Client {
        let body = message.map(Value::to_string).unwrap_or_default();
        let mut head = format!("{method} /mcp/s HTTP/1.1\r\nhost: x\r\n");
        for (name, value) in self.headers() {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("content-length: {}\r\n\r\n{body}", body.len());
        let mut client = Client::connect(self.edge);
        client.write(head.as_bytes());
        client
    }
}

/// Reads from a stream until the text is there.
fn read_until(client: &mut Client, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        let read = client.read_some();
        assert!(!read.is_empty(), "it ended without {wanted}: {text}");
        text += &String::from_utf8_lossy(&read);
    }
    text
}

fn initialize() -> Value {
    let client = json!({"name": "test", "version": "1"});
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {"sampling": {}}, "clientInfo": client});
    request("initialize", params)
}

fn request(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
}

/// The messages of an answer.
fn events(answer: &Response) -> Vec<Value> {
    if answer.header("content-type") != Some("text/event-stream") {
        return vec![answer.json()];
    }
    let text = answer.text();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

fn text(answer: &Value) -> &str {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text in {answer}"))
}

fn names(answer: &Value) -> Vec<&str> {
    let tools = answer["result"]["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap()).collect()
}
