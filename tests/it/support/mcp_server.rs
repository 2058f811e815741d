//! An MCP server over standard streams, of protocol version 2025-06-18. Its argument names the way
//! in which it misbehaves, if it does.

use std::io::{BufRead, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

fn main() {
    let mode = std::env::args().nth(1).unwrap_or_default();
    match mode.as_str() {
        "silent" => std::thread::sleep(Duration::from_secs(3600)),
        "die" => {
            say_on_stderr("I can't go on");
            std::process::exit(3);
        }
        "relay" => return relay(&std::env::args().nth(2).unwrap_or_default()),
        "garbage" => loop {
            write("this is no JSON-RPC");
            std::thread::sleep(Duration::from_millis(1));
        },
        _ => {}
    }
    if mode == "holding" {
        hold_on();
    }
    // While this file exists, the server doesn't start.
    if std::env::var("GATE").is_ok_and(|gate| std::path::Path::new(&gate).exists()) {
        std::thread::sleep(Duration::from_secs(3600));
    }
    if mode == "banner" {
        write("Welcome! Listening on stdio.");
    }
    let mut unanswered = None;
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        if message["id"].is_null() {
            note(&message);
            continue;
        }
        if message["method"].is_null() {
            take_answer(&message);
            continue;
        }
        if mode == "late" && message["method"] == "server/discover" {
            unanswered = Some(message);
            continue;
        }
        if let Some(question) = unanswered.take() {
            answer(&mode, &question);
        }
        if mode == "deaf" && message["method"] == "tools/call" && first_of_all() {
            std::thread::sleep(Duration::from_secs(3600));
        }
        let mode = mode.clone();
        // Calls are served concurrently.
        std::thread::spawn(move || answer(&mode, &message));
    }
}

/// No MCP server: connects this process's own streams to a socket, until the socket closes.
fn relay(socket: &str) {
    let Ok(mut stream) = UnixStream::connect(socket) else {
        std::process::exit(4);
    };
    if let Ok(mut writing) = stream.try_clone() {
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut writing);
        });
    }
    let mut buffer = [0; 65536];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(&buffer[..length]).and_then(|()| out.flush());
    }
}

/// Whether this is the first server of the test to ask.
fn first_of_all() -> bool {
    let path = std::env::var("DEAF_ONCE").unwrap_or_default();
    std::fs::File::create_new(path).is_ok()
}

/// Keeps the write end of its own stdin open, so that the end of the input never comes.
fn hold_on() {
    let input = std::fs::OpenOptions::new()
        .write(true)
        .open("/proc/self/fd/0");
    std::mem::forget(input);
}

/// Waits until the file `gate` exists, and says in `gate`.held that it waits.
fn wait_for_gate(name: &str, gate: &str) {
    let held = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(format!("{gate}.held"));
    if let Ok(mut file) = held {
        let _ = writeln!(file, "{name}");
    }
    while !std::path::Path::new(gate).exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Appends a notification to the file that NOTES names, where a test set it.
fn note(message: &Value) {
    if let Ok(path) = std::env::var("NOTES") {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path);
        if let Ok(mut file) = file {
            let _ = writeln!(file, "{message}");
        }
    }
}

fn answer(mode: &str, message: &Value) {
    let id = message["id"].clone();
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => reply(
            &id,
            json!({
                "protocolVersion": "2025-06-18",
                "capabilities": if mode == "toolless" { json!({}) } else { json!({"tools": {"listChanged": true}}) },
                "serverInfo": {"name": "test", "version": "1"},
            }),
        ),
        "tools/list" => list(mode, &id, &message["params"]["cursor"]),
        "tools/call" => call(mode, &id, &message["params"]),
        // Each repeats the secret that the server was given.
        "resources/read" => {
            let given = std::env::var("GIVEN").unwrap_or_default();
            reply(
                &id,
                json!({"contents": [{"uri": "test://given", "text": given}]}),
            );
        }
        "prompts/get" => {
            let given = std::env::var("GIVEN").unwrap_or_default();
            error(&id, -32602, &format!("no prompt for {given}"));
        }
        method => error(&id, -32601, &format!("no such method: {method}")),
    }
}

fn list(mode: &str, id: &Value, cursor: &Value) {
    let tool = |name: &str, hints: Value| {
        json!({
            "name": name,
            "description": format!("The tool {name}"),
            "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}, "ms": {"type": "integer"}}},
            "annotations": hints,
        })
    };
    if mode == "endless" {
        let page = cursor
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
            + 1;
        let name = format!("tool{page}");
        return reply(
            id,
            json!({"tools": [tool(&name, json!({}))], "nextCursor": page.to_string()}),
        );
    }
    let mut tools: Vec<Value> = [
        "echo", "env", "pid", "fail", "error", "crash", "child", "change", "large", "steps",
    ]
    .iter()
    .map(|name| tool(name, json!({})))
    .collect();
    tools.push(tool("slow", json!({"idempotentHint": true})));
    tools.push(tool("once", json!({})));
    if mode == "bomb" {
        let mut definitions = serde_json::Map::new();
        for n in 0..40 {
            let next = format!("#/$defs/d{}", n + 1);
            definitions.insert(
                format!("d{n}"),
                json!({"allOf": [{"$ref": next}, {"$ref": next}]}),
            );
        }
        definitions.insert("d40".to_owned(), json!({"type": "object"}));
        tools[0]["inputSchema"] =
            json!({"type": "object", "$ref": "#/$defs/d0", "$defs": definitions});
    }
    if mode == "shell" {
        tools.push(tool("run", json!({})));
    }
    if mode == "traced" {
        tools.push(tool("meta", json!({})));
    }
    if mode == "telltale" {
        tools[0]["description"] = json!(std::env::var("GIVEN").unwrap_or_default());
    }
    if mode == "nasty" {
        tools.push(tool("../../etc/passwd", json!({})));
        tools.push(tool("a\u{1b}[31mb\n", json!({})));
        tools.push(tool(&"x".repeat(1000), json!({})));
        tools.push(tool("echo", json!({})));
    }
    if CHANGED.load(std::sync::atomic::Ordering::SeqCst) {
        tools.push(tool("new", json!({})));
    }
    if mode == "deaf" {
        return reply(id, json!({"tools": tools, "ttlMs": 3_600_000}));
    }
    reply(id, json!({"tools": tools}));
}

static CHANGED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

fn call(mode: &str, id: &Value, params: &Value) {
    let args = &params["arguments"];
    let text = args["text"].as_str().unwrap_or_default();
    let content = |text: &str| json!({"content": [{"type": "text", "text": text}]});
    match mode {
        "banner" => (0..10).for_each(|_| write("INFO a call")),
        "long-line" => return write(&"x".repeat(52_428_800)),
        "wrong-ids" => {
            for wrong in [json!(999_999), json!("x"), Value::Null] {
                reply(&wrong, content("not for you"));
            }
        }
        "many-values" => {
            let many = "0,".repeat(24_000_000);
            let id = id.clone();
            return write(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[],"structuredContent":{{"a":[{many}0]}}}}}}"#
            ));
        }
        "demanding" => {
            for n in 0..100_000 {
                write(&format!(
                    r#"{{"jsonrpc":"2.0","id":"q{n}","method":"ping"}}"#
                ));
            }
        }
        "duplicate-ids" => {
            reply(id, content("first"));
            return reply(id, content("second"));
        }
        "chatty" => {
            for n in 0..1000 {
                let params = json!({"progressToken": n, "progress": n});
                write(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).to_string());
                let params = json!({"level": "info", "data": "chatter"});
                write(
                    &json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
                        .to_string(),
                );
            }
        }
        _ => {}
    }
    match params["name"].as_str().unwrap_or_default() {
        "echo" => reply(id, content(text)),
        "meta" => reply(id, content(&params["_meta"].to_string())),
        "env" => {
            let all: Vec<String> = std::env::vars()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            reply(id, content(&all.join("\n")));
        }
        "run" => {
            let ran = std::process::Command::new("sh")
                .args(["-c", text])
                .stdin(std::process::Stdio::null())
                .output();
            let output = ran.map(|ran| ran.stdout).unwrap_or_default();
            reply(id, content(&String::from_utf8_lossy(&output)));
        }
        "pid" => reply(id, content(&std::process::id().to_string())),
        "large" => reply(id, content(&"y".repeat(1 << 20))),
        "fail" => reply(
            id,
            json!({"content": [{"type": "text", "text": "the tool says no"}], "isError": true}),
        ),
        "error" => error(id, -32050, "the server says no"),
        name @ ("slow" | "once") => {
            match text {
                "" => {
                    std::thread::sleep(Duration::from_millis(args["ms"].as_u64().unwrap_or(1000)))
                }
                gate => wait_for_gate(name, gate),
            }
            reply(id, content("done"));
        }
        "steps" => {
            report_steps(&params["_meta"]["progressToken"]);
            reply(id, content("done"));
        }
        "ask" => ask(id),
        "crash" => {
            say_on_stderr("crashing now");
            std::process::abort();
        }
        "child" => reply(id, content(&start_grandchild().to_string())),
        "change" => {
            CHANGED.store(true, std::sync::atomic::Ordering::SeqCst);
            write(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
            reply(id, content("changed"));
        }
        name => error(id, -32602, &format!("no such tool: {name}")),
    }
}

/// Calls of `ask` that wait for the client's answer, by the id of the question.
static QUESTIONS: std::sync::Mutex<Vec<(Value, Value)>> = std::sync::Mutex::new(Vec::new());

/// Asks the client. The call ends with its answer.
fn ask(call: &Value) {
    let question = json!(format!("question-{call}"));
    if let Ok(mut questions) = QUESTIONS.lock() {
        questions.push((question.clone(), call.clone()));
    }
    let params = json!({"messages": [], "maxTokens": 5});
    let message = json!({"jsonrpc": "2.0", "id": question, "method": "sampling/createMessage", "params": params});
    write(&message.to_string());
}

fn take_answer(message: &Value) {
    let Ok(mut questions) = QUESTIONS.lock() else {
        return;
    };
    if let Some(at) = questions.iter().position(|(id, _)| *id == message["id"]) {
        let (_, call) = questions.remove(at);
        let said = message["result"]["content"]["text"].as_str();
        let said = said.unwrap_or("nothing");
        reply(
            &call,
            json!({"content": [{"type": "text", "text": format!("you said {said}")}]}),
        );
    }
}

/// A grandchild in a session of its own: its id.
fn start_grandchild() -> u32 {
    let child = std::process::Command::new("setsid")
        .args(["sleep", "3600"])
        .spawn();
    child.map(|child| child.id()).unwrap_or(0)
}

/// Three notifications of progress.
fn report_steps(token: &Value) {
    for step in 1..=3 {
        let given = std::env::var("GIVEN").unwrap_or_default();
        let message = format!("step {step}\u{1b}[31m of {given}");
        let params =
            json!({"progressToken": token, "progress": step, "total": 3, "message": message});
        let notification =
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        write(&notification.to_string());
    }
}

fn reply(id: &Value, result: Value) {
    write(&json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string());
}

fn error(id: &Value, code: i32, message: &str) {
    write(
        &json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
            .to_string(),
    );
}

fn write(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn say_on_stderr(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
