//! `ati mcp serve`: as a program with the keys at hand, and in front of a proxy.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;

use serde_json::{Value, json};

use super::{names, request, stateless, text};
use crate::mcp::manifest;
use crate::support::ati::{Log, Proxy, Setup, command, tool, write};
use crate::support::tokens::{SIGNING, bearer, claims, key_pair};
use crate::support::upstream::Upstream;
use crate::support::{PATIENCE, eventually};

/// A running `ati mcp serve`, as a client has it.
pub struct Served {
    child: Child,
    input: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
    pub log: Log,
}

impl Served {
    pub fn start(command: &mut Command) -> Self {
        let piped = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let log = Log::follow(child.stderr.take().unwrap());
        let input = child.stdin.take();
        Served {
            child,
            input,
            lines,
            log,
        }
    }

    pub fn in_folder(dir: &Path, args: &[&str]) -> Self {
        Served::start(command(dir).args(["mcp", "serve"]).args(args))
    }

    pub fn send(&mut self, message: &Value) {
        self.send_text(&message.to_string());
    }

    fn send_text(&mut self, text: &str) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{text}").unwrap();
    }

    /// The next message. Each line has to be one.
    pub fn next(&mut self) -> Value {
        let line = self.lines.recv_timeout(PATIENCE);
        let line = line.unwrap_or_else(|e| panic!("{e}: {}", self.log.text()));
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
    }

    /// The next message that is no notification.
    pub fn answer(&mut self) -> Value {
        loop {
            let message = self.next();
            if message.get("method").is_none() {
                return message;
            }
        }
    }

    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        self.send(&request(method, params));
        self.answer()
    }

    pub fn call(&mut self, name: &str, args: Value) -> Value {
        self.ask("tools/call", json!({"name": name, "arguments": args}))
    }

    /// Waits for this notification.
    pub fn notification(&mut self, method: &str) -> Value {
        loop {
            let message = self.next();
            if message["method"] == method {
                return message;
            }
        }
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([format!("-{name}"), self.child.id().to_string()])
            .status();
        assert!(status.unwrap().success());
    }

    /// Ends its input, and waits for its end.
    pub fn end(mut self) -> Option<i32> {
        drop(self.input.take());
        let status = eventually("the end of ati mcp serve", || {
            self.child.try_wait().unwrap()
        });
        status.code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn folder(upstream: &Upstream) -> Setup {
    let tools = tool(
        "web:look",
        "endpoint = '/look'\n[tools.response]\nextract = '$.target'",
    );
    Setup::new()
        .tools("web", &upstream.url(), "", &tools)
        .manifest("s", &manifest("s", "", ""))
}

const LIST_CHANGED: &str = "notifications/tools/list_changed";

fn greet(served: &mut Served) {
    let begun = served.ask("initialize", json!({"protocolVersion": "2025-11-25"}));
    let result = &begun["result"];
    assert_eq!(
        (&result["protocolVersion"], &result["serverInfo"]["name"]),
        (&json!("2025-11-25"), &json!("ati-proxy"))
    );
    assert_eq!(result["capabilities"]["tools"]["listChanged"], true);
    served.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
}

#[test]
fn local_server_lists_calls_and_tells_when_manifests_change() {
    let upstream = Upstream::echo();
    let setup = folder(&upstream);
    let mut served = Served::in_folder(setup.path(), &[]);
    greet(&mut served);
    assert_eq!(text(&served.call("web:look", json!({"q": 1}))), "/look?q=1");
    // The call waits for the first list of its server.
    assert_eq!(text(&served.call("s:echo", json!({"text": "hi"}))), "hi");
    let list = served.ask("tools/list", json!({}));
    assert!(names(&list).contains(&"s:echo".to_owned()), "{list}");
    let invalid = served.ask("nope", json!({}));
    assert_eq!(invalid["error"]["code"], -32601);
    served.send_text("nonsense");
    assert_eq!(served.answer()["error"]["code"], -32700);
    served.send_text("[]");
    assert_eq!(served.answer()["error"]["code"], -32600);
    // A manifest that comes, a server that changes its own tools, and SIGHUP.
    let more = "[provider]\nname = 'more'\nbase_url = 'http://127.0.0.1:1'\n[[tools]]\nname = 'more:one'\n";
    write(&setup.path().join("manifests/more.toml"), more);
    served.notification(LIST_CHANGED);
    let list = served.ask("tools/list", json!({}));
    assert!(names(&list).contains(&"more:one".to_owned()), "{list}");
    served.send(&request("tools/call", json!({"name": "s:change"})));
    served.notification(LIST_CHANGED);
    std::fs::remove_file(setup.path().join("manifests/more.toml")).unwrap();
    served.signal("HUP");
    served.notification(LIST_CHANGED);
    assert_eq!(served.end(), Some(0));
}

#[test]
fn mistake_in_a_manifest_leaves_the_tools_as_they_were() {
    let upstream = Upstream::echo();
    let setup = folder(&upstream);
    let mut served = Served::in_folder(setup.path(), &[]);
    greet(&mut served);
    write(&setup.path().join("manifests/web.toml"), "[provider\n");
    eventually("the warning", || {
        served
            .log
            .text()
            .contains("the tools stay as they were")
            .then_some(())
    });
    assert_eq!(text(&served.call("web:look", json!({}))), "/look");
}

#[test]
fn calls_run_at_the_same_time_and_can_be_taken_back() {
    let upstream = Upstream::echo();
    let setup = folder(&upstream);
    let gate = setup.path().join("gate");
    let mut served = Served::in_folder(setup.path(), &[]);
    greet(&mut served);
    let slow = |id: u32| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": {"name": "s:once", "arguments": {"text": gate}}})
    };
    served.send(&slow(1));
    served.send(&slow(2));
    eventually("both calls", || {
        let held = std::fs::read_to_string(setup.path().join("gate.held")).ok()?;
        (held.lines().count() == 2).then_some(())
    });
    // Another one isn't held up, and one of the two is taken back.
    assert_eq!(
        text(&served.call("s:echo", json!({"text": "quick"}))),
        "quick"
    );
    served.send(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
    );
    // What is read after it shows that it was read.
    served.ask("ping", json!({}));
    write(&gate, "");
    assert_eq!(served.answer()["id"], 2);
    assert_eq!(served.ask("ping", json!({}))["id"], 7);
    let audit = std::fs::read_to_string(setup.path().join("audit.jsonl")).unwrap();
    assert_eq!(audit.matches("abandoned").count(), 1, "{audit}");
}

#[test]
fn progress_and_the_stateless_era_work_over_lines() {
    let upstream = Upstream::echo();
    let setup = folder(&upstream);
    let mut served = Served::in_folder(setup.path(), &[]);
    served.send(&stateless("server/discover", json!({})));
    assert_eq!(served.answer()["result"]["resultType"], "complete");
    let mut listen = stateless(
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
    );
    listen["id"] = json!("sub");
    served.send(&listen);
    let told = served.notification("notifications/subscriptions/acknowledged");
    assert_eq!(
        told["params"]["notifications"],
        json!({"toolsListChanged": true})
    );
    let mut steps = stateless("tools/call", json!({"name": "s:steps"}));
    steps["params"]["_meta"]["progressToken"] = json!("t");
    served.send(&steps);
    let report = served.notification("notifications/progress");
    assert_eq!(report["params"]["progressToken"], "t");
    assert_eq!(served.answer()["result"]["resultType"], "complete");
    served.send(&stateless("tools/call", json!({"name": "s:change"})));
    let changed = served.notification(LIST_CHANGED);
    assert_eq!(
        changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        "sub"
    );
    let mut newer = stateless("tools/list", json!({}));
    newer["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2031-01-01");
    served.send(&newer);
    assert_eq!(served.answer()["error"]["code"], -32022);
}

fn bridge(dir: &Path, proxy: &Proxy, args: &[&str], env: &[(&str, &str)]) -> Served {
    let url = format!("http://{}", proxy.edge);
    let mut command = command(dir);
    command
        .args(["mcp", "serve"])
        .args(args)
        .env("ATI_PROXY_URL", url)
        .envs(env.iter().copied());
    Served::start(&mut command)
}

#[test]
fn bridge_adds_token_and_signature_and_tells_of_changes() {
    let upstream = Upstream::echo();
    let (signer, public) = key_pair();
    let setup = folder(&upstream);
    let proxy = setup
        .jwt(&public)
        .credentials(&json!({"sandbox_signing_shared_secret": SIGNING}))
        .arg("--sig-verify-mode")
        .arg("enforce")
        .start();
    proxy.log.wait_for("tools listed");
    let token = bearer(&signer, &claims()).replace("Bearer ", "");
    let home = tempfile::tempdir().unwrap();
    let env = [
        ("ATI_SESSION_TOKEN", token.as_str()),
        ("ATI_SANDBOX_SECRET", SIGNING),
    ];
    let mut served = bridge(home.path(), &proxy, &["--refresh", "1"], &env);
    greet(&mut served);
    let before = names(&served.ask("tools/list", json!({})));
    assert!(before.contains(&"s:echo".to_owned()) && before.contains(&"web:look".to_owned()));
    assert_eq!(text(&served.call("web:look", json!({"q": 1}))), "/look?q=1");
    let mut steps = request("tools/call", json!({"name": "s:steps"}));
    steps["params"]["_meta"] = json!({"progressToken": 9});
    served.send(&steps);
    assert_eq!(
        served.notification("notifications/progress")["params"]["progress"],
        1.0
    );
    assert_eq!(text(&served.answer()), "done");
    served.send(&stateless(
        "tools/call",
        json!({"name": "web:look", "arguments": {}}),
    ));
    assert_eq!(served.answer()["result"]["resultType"], "complete");
    let more = "[provider]\nname = 'more'\nbase_url = 'http://127.0.0.1:1'\n[[tools]]\nname = 'more:one'\n";
    write(&proxy.path("manifests/more.toml"), more);
    assert_eq!(proxy.reload()["message"], "reload done");
    served.notification(LIST_CHANGED);
    assert_eq!(
        names(&served.ask("tools/list", json!({}))).len(),
        before.len() + 1
    );
    assert_eq!(served.end(), Some(0));

    // Without them, the client is told what is missing.
    let mut unsigned = bridge(
        home.path(),
        &proxy,
        &[],
        &[("ATI_SESSION_TOKEN", token.as_str())],
    );
    let refused = unsigned.ask("initialize", json!({}));
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("missing_signature"), "{message}");
}

#[test]
fn bridge_answers_what_the_proxy_refuses_with_the_id_of_the_request() {
    let (_, public) = key_pair();
    let home = tempfile::tempdir().unwrap();
    let big = |id: Value| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": "t", "arguments": {"text": "x".repeat(64 << 10)}}})
    };
    let limited = Setup::new()
        .conf("[tools]\nmax_call_bytes = 8192\n")
        .start();
    let mut served = bridge(home.path(), &limited, &[], &[]);
    for id in [json!(42), json!("forty-two")] {
        served.send(&big(id.clone()));
        let refused = served.answer();
        assert_eq!(refused["id"], id, "{refused}");
        assert!(refused["error"]["code"].is_number(), "{refused}");
    }
    // Refusals that are no JSON-RPC.
    let closed = Setup::new().jwt(&public).start();
    let mut served = bridge(home.path(), &closed, &[], &[]);
    let refused = served.ask("tools/list", json!({}));
    assert_eq!(refused["id"], 7, "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("401"), "{message}");
}

#[test]
fn bridge_outlives_its_proxy_and_takes_calls_back() {
    let upstream = Upstream::echo();
    let proxy = folder(&upstream).start();
    proxy.log.wait_for("tools listed");
    let home = tempfile::tempdir().unwrap();
    let mut served = bridge(home.path(), &proxy, &["--search"], &[]);
    let list = served.ask("tools/list", json!({}));
    assert_eq!(names(&list), ["find_tools", "describe_tool", "call_tool"]);
    let gate = proxy.path("gate");
    let slow = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "s:once", "arguments": {"text": gate}}});
    served.send(&slow);
    eventually("the call", || {
        proxy.path("gate.held").exists().then_some(())
    });
    served.send(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
    );
    eventually("its end", || {
        let audit = proxy.audit();
        audit
            .iter()
            .any(|line| line["status"] == "error")
            .then_some(())
    });
    drop(proxy);
    let gone = served.call("web:look", json!({}));
    let message = gone["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("Proxy request failed"), "{message}");
    assert_eq!(served.end(), Some(0));
}

#[test]
fn output_that_is_not_read_ends_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = command(dir.path())
        .args(["mcp", "serve"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut input = child.stdin.take().unwrap();
    let ping = request("ping", json!({})).to_string();
    let _ = writeln!(input, "{ping}");
    let status = eventually("the end of ati mcp serve", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}
