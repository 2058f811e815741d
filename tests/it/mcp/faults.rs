//! MCP servers that are slow, stop reading, print more than the protocol, or break off.

use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use ati::auth::token::Claims;
use serde_json::{Value, json};

use super::{
    Gate, failure, http_server, kill, listed, manifest, over_http, particular_server, result,
    started, told, with, with_result,
};
use crate::support::ati::{ati, stderr, stdout};
use crate::support::eventually;
use crate::support::tokens::{bearer, claims, key_pair};
use crate::support::upstream::{Received, Upstream};

fn hello(_: &Received, message: &Value, stream: &mut TcpStream) -> bool {
    stream.write_all(told(message, "hello").as_bytes()).is_ok()
}

fn body(request: &Received) -> Value {
    serde_json::from_slice(&request.body).unwrap_or_default()
}

#[test]
fn mcp_server_answering_discover_late_is_still_used() {
    // The server answers `server/discover` only after it got `initialize`, like one that starts
    // slowly.
    let proxy = started(with("late", ""));
    assert_eq!(result(&proxy, "s:echo", json!({"text": "hello"})), "hello");
}

#[test]
fn mcp_server_never_answering_discover_is_asked_once() {
    let upstream = particular_server(
        |_, message, _| (message["method"] == "server/discover").then_some(true),
        hello,
    );
    let proxy = started(over_http(&upstream, ""));
    assert_eq!(result(&proxy, "s:who", json!({})), "hello");

    // The protocol version is cached, also for other processes.
    let asked = || {
        let all = upstream.received();
        let discover = |one: &&Received| body(one)["method"] == "server/discover";
        all.iter().filter(discover).count()
    };
    assert_eq!(asked(), 1);
    eventually("the cache", || {
        proxy.path("cache/tools/s.json").exists().then_some(())
    });
    let run = ati(proxy.dir.path(), &["run", "s:who"]);
    assert!(stdout(&run).contains("hello"), "{}", stderr(&run));
    assert_eq!(asked(), 1);
}

#[test]
#[ignore = "takes half a minute"]
fn mcp_server_that_never_gets_ready_is_disconnected() {
    let upstream = Upstream::answering(|_, _| true);
    let proxy = over_http(&upstream, "").start();
    eventually("the second question", || {
        upstream
            .saw(|one| body(one)["method"] == "initialize")
            .then_some(())
    });
    let line = proxy.log.wait_for("its tools can't be listed");
    assert!(
        line.to_string().contains("was not ready within 30 s"),
        "{line}"
    );
    // The next attempt is made two seconds later.
    eventually("no connection is left", || {
        (upstream.open_connections() == 0).then_some(())
    });
}

#[test]
fn mcp_server_printing_banners_on_stdout_is_still_used() {
    let proxy = started(with("banner", ""));
    // Ten lines with every call, more than a thousand in all.
    for _ in 0..150 {
        assert_eq!(result(&proxy, "s:echo", json!({"text": "x"})), "x");
    }
    // An idempotent call is repeated when the process dies during it.
    let pid = result(&proxy, "s:pid", json!({})).as_u64().unwrap() as u32;
    let gate = Gate::new(&proxy);
    let slow = gate.call(&proxy, "s:slow");
    gate.wait_for("slow");
    kill(pid);
    gate.open();
    let (_, answer) = slow.join().unwrap();
    assert_eq!(answer["result"], "done", "{answer}");
}

#[test]
fn mcp_server_that_stops_reading_is_replaced() {
    let setup = with("good", "");
    let gate = setup.path().join("deaf-once");
    let setup = setup.manifest(
        "s",
        &manifest(
            "s",
            "deaf",
            &format!("[provider.mcp_env]\nDEAF_ONCE = \"{}\"", gate.display()),
        ),
    );
    let proxy = started(setup.conf("[tools]\ntimeout_seconds = 1\n"));
    // The first server stops reading with its first call.
    let error = failure(&proxy, "s:echo", json!({"text": "x"}));
    assert!(error.contains("did not answer within 1 s"), "{error}");
    eventually("another server", || {
        let answer = proxy.call(None, "s:echo", json!({"text": "still here"}));
        (answer.status == 200).then_some(())
    });
}

#[test]
fn event_stream_that_breaks_at_once_is_reopened_with_back_off() {
    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = times.clone();
    let way = move |request: &Received, _: &Value, stream: &mut TcpStream| {
        (request.method == "GET").then(|| {
            noted.lock().unwrap().push(Instant::now());
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
            let rest = "connection: close\r\n\r\noops\n";
            let _ = stream.write_all(format!("{head}{rest}").as_bytes());
            false
        })
    };
    let upstream = particular_server(way, hello);
    let proxy = started(over_http(&upstream, ""));
    eventually("three times", || {
        (times.lock().unwrap().len() >= 3).then_some(())
    });
    let times = times.lock().unwrap().clone();
    assert!(
        times[1] - times[0] >= Duration::from_millis(900),
        "{times:?}"
    );
    assert!(
        times[2] - times[1] >= Duration::from_millis(1900),
        "{times:?}"
    );
    assert_eq!(result(&proxy, "s:who", json!({})), "hello");
}

#[test]
fn credential_refused_while_a_session_opens_is_minted_again() {
    // Only the second token is accepted.
    let way = |request: &Received, _: &Value, stream: &mut TcpStream| {
        let refusal = b"HTTP/1.1 401 X\r\ncontent-length: 0\r\n\r\n";
        let good = request.header("authorization") == Some("Bearer planted-token-2");
        (!good).then(|| stream.write_all(refusal).is_ok())
    };
    let upstream = particular_server(way, hello);
    let setup = over_http(&upstream, "");
    let count = setup.path().join("count");
    let generator = format!(
        r#"
            auth_type = "bearer"
            [provider.auth_generator]
            type = "command"
            command = "sh"
            args = ["-c", "echo x >> {0}; echo planted-token-$(wc -l < {0})"]
            cache_ttl_secs = 3600
        "#,
        count.display()
    );
    let manifest = format!(
        r#"
            [provider]
            name = "s"
            handler = "mcp"
            mcp_transport = "http"
            mcp_url = "{}/mcp"
            {generator}
        "#,
        upstream.url()
    );
    let proxy = started(setup.manifest("s", &manifest));
    assert!(listed(&proxy).contains(&"s:who".to_owned()));
}

#[test]
fn scope_of_an_mcp_tool_is_set_by_the_manifest() {
    let (signer, public) = key_pair();
    let tools = r#"
        [[tools]]
        name = "s:echo"
        scope = "admin:echo"
        hint = "careful"

        [[tools]]
        name = "s:pid"

        [[tools]]
        name = "large"
        scope = "admin:large"
    "#;
    let proxy = started(with("good", tools).jwt(&public));
    let token = |scope: &str| {
        let scope = scope.to_owned();
        bearer(&signer, &Claims { scope, ..claims() })
    };
    let (plain, admin) = (token("tool:s:*"), token("admin:echo"));
    let args = json!({"text": "x"});
    assert_eq!(proxy.call(Some(&plain), "s:echo", args.clone()).status, 403);
    assert_eq!(proxy.call(Some(&plain), "s:pid", json!({})).status, 200);
    // A tool named without its provider is matched too.
    assert_eq!(proxy.call(Some(&plain), "s:large", json!({})).status, 403);
    assert_eq!(proxy.call(Some(&admin), "s:echo", args).status, 200);
    let shown = proxy
        .client()
        .send("GET", "/tools/s%3Aecho", &[("authorization", &admin)], b"")
        .json();
    assert_eq!(shown["hint"], "careful");
    assert_eq!(shown["description"], "The tool echo");
    assert!(
        shown["input_schema"]["properties"]["text"].is_object(),
        "{shown}"
    );
}

#[test]
fn sixty_calls_to_one_http_server_run_concurrently() {
    let all = Arc::new(Barrier::new(60));
    let upstream = http_server(move |_, message| {
        all.wait();
        told(message, "together")
    });
    let proxy = started(over_http(&upstream, ""));
    std::thread::scope(|scope| {
        for _ in 0..60 {
            scope.spawn(|| assert_eq!(result(&proxy, "s:who", json!({})), "together"));
        }
    });
}

#[test]
fn connection_that_breaks_off_fails_only_calls_that_may_not_be_repeated() {
    let calls: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = calls.clone();
    let list = |_: &Received, message: &Value, stream: &mut TcpStream| {
        (message["method"] == "tools/list").then(|| {
            let tool = |name: &str, hints: Value| json!({"name": name, "inputSchema": {"type": "object"}, "annotations": hints});
            let tools = [tool("who", json!({})), tool("again", json!({"idempotentHint": true}))];
            let answer = with_result(message, "", &json!({"tools": tools}));
            stream.write_all(answer.as_bytes()).is_ok()
        })
    };
    // The first call of each tool is read, and its connection closed without an answer.
    let upstream = particular_server(list, move |_, message, stream| {
        let name = message["params"]["name"].as_str().unwrap().to_owned();
        let mut calls = noted.lock().unwrap();
        let first = !calls.contains(&name);
        calls.push(name);
        !first && stream.write_all(told(message, "done").as_bytes()).is_ok()
    });
    let proxy = started(over_http(&upstream, ""));
    let error = failure(&proxy, "s:who", json!({}));
    assert!(error.contains("it closed the connection"), "{error}");
    assert_eq!(result(&proxy, "s:again", json!({})), "done");
    assert_eq!(*calls.lock().unwrap(), ["who", "again", "again"]);
    // ati closes idle connections before servers do: a call that is sent while the server closes
    // would be lost. The session goes on.
    upstream.wait_until_left();
    assert_eq!(result(&proxy, "s:who", json!({})), "done");
    let opened = |one: &&Received| body(one)["method"] == "initialize";
    let received = upstream.received();
    assert_eq!(received.iter().filter(opened).count(), 2);
}
