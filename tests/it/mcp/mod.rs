//! MCP servers behind tools: calls, sessions, children, and servers that misbehave.

mod trouble;

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ati::auth::token::Claims;
use serde_json::{Value, json};

use crate::support::ati::{BINARY, Proxy, Setup, ati, stderr, stdout, write};
use crate::support::eventually;
use crate::support::http::Client;
use crate::support::tokens::{bearer, bearer_of, claims, key_pair};
use crate::support::upstream::{Received, Upstream};

/// The server that the tests bring along.
fn server() -> PathBuf {
    Path::new(BINARY)
        .parent()
        .unwrap()
        .join("examples/mcp_server")
}

fn manifest(name: &str, mode: &str, more: &str) -> String {
    format!(
        "[provider]\nname = \"{name}\"\nhandler = \"mcp\"\nmcp_command = \"{}\"\nmcp_args = [\"{mode}\"]\n{more}\n",
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
    // The dead that nobody has counted yet don't live.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit_once(')')
            .unwrap()
            .1
            .trim_start()
            .starts_with('Z')
    })
}

#[test]
fn tools_of_a_server_are_listed_and_called_in_one_session() {
    let proxy = started(with("good", ""));
    let names = listed(&proxy);
    assert!(
        names.contains(&"s:echo".to_owned()) && names.contains(&"s:slow".to_owned()),
        "{names:?}"
    );
    assert_eq!(result(&proxy, "s:echo", json!({"text": "hello"})), "hello");
    assert_eq!(
        result(&proxy, "s_echo", json!({"text": "{\"a\": 1}"})),
        json!({"a": 1})
    );
    assert_eq!(
        result(&proxy, "s:large", json!({})).as_str().unwrap().len(),
        1 << 20
    );
    let pids: HashSet<u64> = (0..20)
        .map(|_| result(&proxy, "s:pid", json!({})).as_u64().unwrap())
        .collect();
    assert_eq!(pids.len(), 1);
    assert_eq!(
        failure(&proxy, "s:fail", json!({})),
        "MCP error: the tool says no"
    );
    assert_eq!(
        failure(&proxy, "s:error", json!({})),
        "MCP error: MCP protocol error (code -32050): the server says no"
    );
    let answer = proxy.call(None, "s:echo", json!({"text": {}}));
    assert_eq!(answer.status, 422, "{}", answer.text());
    let states = Client::connect(proxy.admin).get("/providers").json();
    assert_eq!(states["s"]["state"], "ready");
    assert_eq!(states["s"]["transport"], "stdio");
    let lines = proxy.wait_for_audit(26);
    assert!(
        lines
            .iter()
            .any(|line| line["tool"] == "s:fail" && line["status"] == "error")
    );
}

#[test]
fn a_child_sees_what_it_is_given_and_nothing_else() {
    let proxy = started(
        with("good", "[provider.mcp_env]\nGIVEN = \"v-${key}-w\"\n")
            .credentials(&json!({"key": "planted-secret-of-the-child"}))
            .env("NOT_FOR_CHILDREN", "1"),
    );
    let seen = result(&proxy, "s:env", json!({}));
    let seen = seen.as_str().unwrap();
    let names: HashSet<&str> = seen
        .lines()
        .map(|line| line.split('=').next().unwrap())
        .collect();
    assert_eq!(names, HashSet::from(["PATH", "HOME", "GIVEN"]));
    // What it repeats is taken out of its answer.
    assert!(
        seen.contains("GIVEN=v-") && !seen.contains("planted"),
        "{seen}"
    );

    // Neither does it get into the list, which everybody sees, and which is kept on disk.
    let telling = started(
        with("telltale", "[provider.mcp_env]\nGIVEN = \"v-${key}-w\"\n")
            .credentials(&json!({"key": "planted-secret-of-the-child"})),
    );
    let tool = telling.client().get("/tools/s%3Aecho").text();
    assert!(tool.contains("v-[REDACTED]-w"), "{tool}");
    eventually("the cache", || {
        telling.path("cache/tools/s.json").exists().then_some(())
    });
    let kept = std::fs::read_to_string(telling.path("cache/tools/s.json")).unwrap();
    assert!(!kept.contains("planted"), "{kept}");

    let proxy = with("good", "[provider.mcp_env]\nGIVEN = \"${absent}\"\n").start();
    proxy.log.wait_for("its tools can't be listed");
    let states = Client::connect(proxy.admin).get("/providers").json();
    assert!(
        states["s"]["error"]
            .as_str()
            .unwrap()
            .contains("'absent' not found in keyring"),
        "{states}"
    );
}

#[test]
fn health_answers_while_servers_hang_and_calls_run() {
    let setup = with("good", "").manifest("hung", &manifest("hung", "silent", ""));
    let proxy = started(setup);
    let threads: Vec<_> = (0..10)
        .map(|_| {
            let edge = proxy.edge;
            std::thread::spawn(move || {
                let body = json!({"tool_name": "s:slow", "args": {"ms": 5000}}).to_string();
                Client::connect(edge)
                    .send("POST", "/call", &[], body.as_bytes())
                    .status
            })
        })
        .collect();
    let in_flight = r#"ati_in_flight{route="/call"}"#;
    proxy.settles(in_flight, 10.0);
    for _ in 0..20 {
        assert_eq!(proxy.client().get("/health").status, 200);
    }
    // None of them has ended meanwhile, and nobody waited for one.
    assert_eq!(proxy.metric(in_flight), Some(10.0));
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 200);
    }
    let states = Client::connect(proxy.admin).get("/providers").json();
    assert_eq!(states["hung"]["state"], "starting");
}

#[test]
fn a_child_that_is_killed_costs_what_was_under_way_and_no_more() {
    let proxy = started(with("good", ""));
    let pid = result(&proxy, "s:pid", json!({})).as_u64().unwrap() as u32;
    let call = |tool: &'static str, edge| {
        std::thread::spawn(move || {
            let body = json!({"tool_name": tool, "args": {"ms": 2000}}).to_string();
            let answer = Client::connect(edge).send("POST", "/call", &[], body.as_bytes());
            (answer.status, answer.text())
        })
    };
    let once: Vec<_> = (0..50).map(|_| call("s:once", proxy.edge)).collect();
    let again: Vec<_> = (0..50).map(|_| call("s:slow", proxy.edge)).collect();
    proxy.settles(r#"ati_in_flight{route="/call"}"#, 100.0);
    Command::new("kill")
        .args(["-KILL", &pid.to_string()])
        .status()
        .unwrap();
    // Those that the server had are lost, and say so; those that still waited for it go to the next.
    let mut lost = 0;
    for thread in once {
        let (status, text) = thread.join().unwrap();
        if status != 200 {
            lost += 1;
            assert_eq!(status, 502, "{text}");
            assert!(
                text.contains("MCP transport error: [s] the server ended"),
                "{text}"
            );
        }
    }
    assert!((1..=50).contains(&lost), "{lost}");
    // What may be done twice was done again.
    for thread in again {
        let (status, text) = thread.join().unwrap();
        assert_eq!(status, 200, "{text}");
    }
    let started = Instant::now();
    let next = result(&proxy, "s:pid", json!({})).as_u64().unwrap() as u32;
    assert_ne!(next, pid);
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(failure(&proxy, "s:crash", json!({})).contains("its last words: crashing now"));
    // Twice in so short a time: the next one waits a moment.
    eventually("the next server", || {
        let answer = proxy.call(None, "s:echo", json!({"text": "x"}));
        (answer.status == 200).then_some(())
    });
}

#[test]
fn nothing_survives_us_however_we_end() {
    for (signal, mode) in [
        ("KILL", "good"),
        ("TERM", "good"),
        ("KILL", "holding"),
        ("TERM", "holding"),
    ] {
        let mut proxy = started(with(mode, ""));
        let server = result(&proxy, "s:pid", json!({})).as_u64().unwrap() as u32;
        let grandchild = result(&proxy, "s:child", json!({})).as_u64().unwrap() as u32;
        assert!(is_alive(server) && is_alive(grandchild));
        proxy.signal(signal);
        proxy.wait();
        eventually("the end of all of them", || {
            (!is_alive(server) && !is_alive(grandchild)).then_some(())
        });
    }
}

#[test]
fn callers_that_vanish_cancel_their_calls_and_leave_nothing_behind() {
    let setup = with("good", "");
    let notes = setup.path().join("notes");
    let setup = setup.manifest(
        "s",
        &manifest(
            "s",
            "good",
            &format!("[provider.mcp_env]\nNOTES = \"{}\"", notes.display()),
        ),
    );
    let proxy = started(setup);
    result(&proxy, "s:echo", json!({"text": "x"}));
    let before = proxy.descriptors();
    let body = json!({"tool_name": "s:once", "args": {"ms": 30_000}}).to_string();
    let request = format!(
        "POST /call HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let callers: Vec<Client> = (0..200)
        .map(|_| {
            let mut client = proxy.client();
            client.write(request.as_bytes());
            client
        })
        .collect();
    proxy.settles(r#"ati_in_flight{route="/call"}"#, 200.0);
    drop(callers);
    proxy.settles(r#"ati_in_flight{route="/call"}"#, 0.0);
    assert_eq!(
        result(&proxy, "s:echo", json!({"text": "still here"})),
        "still here"
    );
    // Those that had reached the server were cancelled there.
    eventually("the cancellations", || {
        let text = std::fs::read_to_string(&notes).unwrap_or_default();
        (text.matches("notifications/cancelled").count() >= 64).then_some(())
    });
    eventually("the descriptors", || {
        (proxy.descriptors() <= before + 2).then_some(())
    });
    let lines = proxy.wait_for_audit(202);
    assert_eq!(
        lines
            .iter()
            .filter(|line| line["error"]
                .as_str()
                .is_some_and(|text| text.starts_with("abandoned")))
            .count(),
        200
    );
}

#[test]
fn a_list_that_has_changed_is_read_again() {
    let proxy = started(with("good", ""));
    assert_eq!(proxy.call(None, "s:new", json!({})).status, 404);
    assert_eq!(result(&proxy, "s:change", json!({})), "changed");
    eventually("the new tool", || {
        (proxy.client().get("/tools/s%3Anew").status == 200).then_some(())
    });
}

#[test]
fn what_is_known_of_a_server_is_kept_for_when_it_is_gone() {
    let proxy = started(with("good", ""));
    eventually("the cache", || {
        proxy.path("cache/tools/s.json").exists().then_some(())
    });
    // The same server, which can't be started any more: a reload keeps its tools, a restart too.
    assert_eq!(proxy.reload()["message"], "reload done");
    assert_eq!(proxy.client().get("/tools/s%3Aecho").status, 200);
    let listed = ati(proxy.dir.path(), &["tool", "info", "s:echo"]);
    assert!(
        stdout(&listed).contains("The tool echo"),
        "{}",
        stderr(&listed)
    );
    // Another server has another list.
    write(&proxy.path("manifests/s.toml"), manifest("s", "die", ""));
    assert_eq!(proxy.reload()["message"], "reload done");
    assert_eq!(proxy.client().get("/tools/s%3Aecho").status, 404);
}

#[test]
fn hostile_servers_are_bounded_and_named() {
    let proxy = started(with("nasty", ""));
    let names = listed(&proxy);
    assert!(
        names.contains(&"s:__/__/etc/passwd".to_owned()),
        "{names:?}"
    );
    assert!(names.contains(&"s:a__31mb_".to_owned()), "{names:?}");
    assert!(
        names
            .iter()
            .all(|name| name.len() <= 128 && !name.contains("..")),
        "{names:?}"
    );
    drop(proxy);

    for (mode, answer) in [
        ("wrong-ids", "hello"),
        ("chatty", "hello"),
        ("duplicate-ids", "first"),
    ] {
        let proxy = started(with(mode, ""));
        for _ in 0..3 {
            assert_eq!(
                result(&proxy, "s:echo", json!({"text": "hello"})),
                answer,
                "{mode}"
            );
        }
    }
    // A schema that takes forever to check against, an answer that takes gigabytes to read.
    let proxy = started(with("bomb", ""));
    assert_eq!(result(&proxy, "s:echo", json!({"text": "quick"})), "quick");
    drop(proxy);
    let proxy = started(with("many-values", ""));
    let error = failure(&proxy, "s:echo", json!({"text": "x"}));
    assert!(error.contains("too many values"), "{error}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.pid())).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 400_000, "{peak} kB");
    drop(proxy);
    // One that asks and asks, and reads our answers; its own answer comes in the end, or it is given up.
    let proxy = started(with("demanding", ""));
    let answer = proxy.call(None, "s:echo", json!({"text": "x"}));
    assert!(matches!(answer.status, 200 | 502), "{}", answer.text());
    assert_eq!(proxy.client().get("/health").status, 200);
    drop(proxy);

    let proxy = started(with("long-line", ""));
    for _ in 0..2 {
        let error = failure(&proxy, "s:echo", json!({"text": "x"}));
        assert!(error.contains("a line of more than 50 MB"), "{error}");
    }
    assert_eq!(proxy.client().get("/health").status, 200);
    drop(proxy);

    for (mode, says) in [
        (
            "endless",
            "a list of tools that doesn't end after 100 pages",
        ),
        ("toolless", "did not return tools capability"),
        (
            "garbage",
            "lines to stdout that are no JSON-RPC (the first: \\\"this is no JSON-RPC\\\")",
        ),
        ("die", "its last words: I can't go on"),
    ] {
        let proxy = with(mode, "").start();
        let line = proxy.log.wait_for("its tools can't be listed");
        assert!(line.to_string().contains(says), "{mode}: {line}");
        assert_eq!(proxy.client().get("/health").status, 200);
    }
}

/// An MCP server behind HTTP, in the older era: notes each request, and answers calls as told.
fn http_server(answer: impl Fn(&Received, &Value) -> String + Send + Sync + 'static) -> Upstream {
    writing_server(move |request, message, stream| {
        let answer = answer(request, message);
        stream.write_all(answer.as_bytes()).is_ok()
    })
}

/// The same, which writes its answers to calls as it likes, and says whether to go on.
fn writing_server(
    answer: impl Fn(&Received, &Value, &mut TcpStream) -> bool + Send + Sync + 'static,
) -> Upstream {
    particular_server(|_, _, _| None, answer)
}

/// The same, which has its own way with some requests.
fn particular_server(
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

fn with_result(message: &Value, headers: &str, result: &Value) -> String {
    let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn told(message: &Value, text: &str) -> String {
    let result = json!({"content": [{"type": "text", "text": text}]});
    with_result(message, "", &result)
}

fn over_http(upstream: &Upstream, more: &str) -> Setup {
    let text = format!(
        "[provider]\nname = \"s\"\nhandler = \"mcp\"\nmcp_transport = \"http\"\nmcp_url = \"{}/mcp\"\n{more}\n",
        upstream.url()
    );
    Setup::new().manifest("s", &text)
}

#[test]
fn tenants_never_share_a_session() {
    let seen: Arc<Mutex<HashSet<(String, String)>>> = Arc::default();
    let noted = seen.clone();
    let upstream = http_server(move |request, message| {
        let session = request.header("mcp-session-id").unwrap().to_owned();
        let credential = request.header("authorization").unwrap().to_owned();
        noted.lock().unwrap().insert((session, credential.clone()));
        // Only the last letter, because the rest is a secret.
        told(message, &credential[credential.len() - 1..])
    });
    let (signer, public) = key_pair();
    let setup = over_http(&upstream, "auth_type = \"bearer\"\nauth_key_name = \"k\"")
        .credentials(&json!({"k": "planted-shared-X", "k@a": "planted-tenants-A", "k@b": "planted-tenants-B"}))
        .jwt(&public);
    let proxy = started(setup);
    let token = |customer: &str| bearer_of(&signer, Some(customer));
    let tokens = Arc::new([("A", token("a")), ("B", token("b"))]);
    let threads: Vec<_> = (0..10)
        .map(|_| {
            let (tokens, edge) = (tokens.clone(), proxy.edge);
            std::thread::spawn(move || {
                let mut client = Client::connect(edge);
                for n in 0..100 {
                    let (expected, token) = &tokens[n % 2];
                    let body = json!({"tool_name": "s:who", "args": {}}).to_string();
                    let answer = client.send(
                        "POST",
                        "/call",
                        &[("authorization", token)],
                        body.as_bytes(),
                    );
                    assert_eq!(answer.json()["result"], *expected, "{}", answer.text());
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let seen = seen.lock().unwrap();
    let sessions: HashSet<&String> = seen.iter().map(|(session, _)| session).collect();
    assert_eq!((seen.len(), sessions.len()), (2, 2), "{} pairs", seen.len());
}

#[test]
fn what_is_minted_is_taken_out_and_replaced() {
    let setup = with(
        "good",
        "[provider.auth_generator]\ntype = \"command\"\ncommand = \"sh\"\nargs = [\"-c\", \"echo planted-minted-$(date +%N)\"]\n",
    );
    let proxy = started(setup);
    // Each call has its own, and so a server of its own.
    let mut pids = HashSet::new();
    for _ in 0..3 {
        let seen = result(&proxy, "s:env", json!({}));
        let seen = seen.as_str().unwrap();
        assert!(seen.contains("ATI_AUTH_TOKEN=[REDACTED]"), "{seen}");
        pids.insert(result(&proxy, "s:pid", json!({})).as_u64().unwrap());
    }
    assert_eq!(pids.len(), 3);
    // Which is gone with the call, also where its caller is.
    eventually("the end of the servers", || {
        pids.iter().all(|pid| !is_alive(*pid as u32)).then_some(())
    });
    let before = proxy.descriptors();
    let callers: Vec<Client> = (0..3)
        .map(|_| {
            let mut client = proxy.client();
            let body = json!({"tool_name": "s:once", "args": {"ms": 30_000}}).to_string();
            let length = body.len();
            let request =
                format!("POST /call HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}");
            client.write(request.as_bytes());
            client
        })
        .collect();
    proxy.settles(r#"ati_in_flight{route="/call"}"#, 3.0);
    drop(callers);
    eventually("the descriptors", || {
        (proxy.descriptors() <= before).then_some(())
    });
}

#[test]
fn a_server_that_forgot_the_session_is_met_anew() {
    let forgetful = Arc::new(Mutex::new(HashSet::from(["s1".to_owned()])));
    let forgotten = forgetful.clone();
    let upstream = http_server(move |request, message| {
        let session = request
            .header("mcp-session-id")
            .unwrap_or_default()
            .to_owned();
        if forgotten.lock().unwrap().contains(&session) {
            let body = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#;
            return format!(
                "HTTP/1.1 400 X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
        }
        told(message, &session)
    });
    let proxy = started(over_http(&upstream, ""));
    assert_eq!(result(&proxy, "s:who", json!({})), "s2");
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

#[test]
fn progress_is_shown_while_it_is_made() {
    let setup = with("good", "mcp_env = { GIVEN = \"${given}\" }")
        .credentials(&json!({"given": "planted-given"}));
    let steps = ati(setup.path(), &["--verbose", "run", "s:steps"]);
    assert_eq!(stdout(&steps).trim(), "\"done\"", "{}", stderr(&steps));
    let shown = stderr(&steps);
    let shown: Vec<&str> = shown
        .lines()
        .filter(|line| line.contains("of [REDACTED]"))
        .collect();
    let step = |n: u32| format!("{n}/3 step {n} [31m of [REDACTED]");
    assert_eq!(shown, [step(1), step(2), step(3)]);
    // Whoever doesn't look isn't told.
    let steps = ati(setup.path(), &["run", "s:steps"]);
    assert_eq!(stderr(&steps), "");

    let upstream = http_server(|_, message| {
        let token = &message["params"]["_meta"]["progressToken"];
        let progress = |token: &Value, message: &str| {
            let params = json!({"progressToken": token, "progress": 0.5, "message": message});
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        };
        let result = json!({"content": [{"type": "text", "text": "done"}]});
        streamed(&[
            progress(&json!("another's"), "not for us"),
            progress(token, "half way"),
            json!({"jsonrpc": "2.0", "id": message["id"], "result": result}),
        ])
    });
    let setup = over_http(&upstream, "");
    let half = ati(setup.path(), &["--verbose", "run", "s:who"]);
    assert_eq!(stdout(&half).trim(), "\"done\"", "{}", stderr(&half));
    assert!(
        stderr(&half).contains("\n0.5 half way\n"),
        "{}",
        stderr(&half)
    );
    assert!(!stderr(&half).contains("not for us"));
}

#[test]
fn what_a_server_behind_a_url_asks_us_is_answered() {
    let upstream = http_server(|_, message| {
        let ask = |id: &str, method: &str| json!({"jsonrpc": "2.0", "id": id, "method": method});
        let result = json!({"content": [{"type": "text", "text": "done"}]});
        streamed(&[
            ask("q1", "ping"),
            ask("q2", "sampling/createMessage"),
            json!({"jsonrpc": "2.0", "id": message["id"], "result": result}),
        ])
    });
    let proxy = started(over_http(&upstream, ""));
    assert_eq!(result(&proxy, "s:who", json!({})), "done");
    for (id, says) in [("q1", r#""result":{}"#), ("q2", "not offered")] {
        eventually("the answer to a question", || {
            let is_it = |request: &Received| {
                let body = String::from_utf8_lossy(&request.body);
                body.contains(id) && body.contains(says)
            };
            let all = upstream.received();
            let answer = all.iter().find(|request| is_it(request))?;
            assert_eq!(answer.header("mcp-session-id"), Some("s1"));
            assert_eq!(answer.header("content-type"), Some("application/json"));
            Some(())
        });
    }
}

#[test]
fn the_time_of_a_call_includes_the_start_of_its_server() {
    let setup = Setup::new();
    let gate = setup.path().join("gate");
    let text = manifest(
        "s",
        "good",
        &format!("mcp_env = {{ GATE = \"{}\" }}", gate.display()),
    );
    let setup = setup.manifest("s", &text);
    let proxy = started(setup.conf("[tools]\ntimeout_seconds = 1\n"));
    write(&gate, "shut");
    failure(&proxy, "s:crash", json!({}));
    let started = Instant::now();
    let error = failure(&proxy, "s:echo", json!({"text": "x"}));
    assert!(
        error.contains("timeout: the server did not answer within 1 s"),
        "{error}"
    );
    // It is less than a server has to start.
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn what_servers_behind_a_url_do_wrong_is_named() {
    let refused =
        http_server(|_, _| "HTTP/1.1 401 X\r\ncontent-length: 9\r\n\r\ngo away x".to_owned());
    let proxy = started(over_http(&refused, ""));
    assert_eq!(
        failure(&proxy, "s:who", json!({})),
        "MCP error: MCP transport error: [s] HTTP 401: go away x"
    );
    drop(proxy);

    let other = http_server(|_, _| {
        "HTTP/1.1 200 X\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi".to_owned()
    });
    let proxy = started(over_http(&other, ""));
    assert!(failure(&proxy, "s:who", json!({})).contains("neither JSON nor an event stream"));
    drop(proxy);

    // A stream of events that never comes to the point.
    let endless = writing_server(|_, _, stream| {
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        let _ = stream.write_all(head);
        let event = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}\n\n";
        while stream.write_all(event.as_bytes()).is_ok() {}
        false
    });
    let proxy = started(over_http(&endless, "").conf("[tools]\ntimeout_seconds = 2\n"));
    let started = Instant::now();
    let error = failure(&proxy, "s:forever", json!({}));
    assert!(
        error.contains("timeout: the server did not answer within 2 s"),
        "{error}"
    );
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(proxy.client().get("/health").status, 200);
}

#[test]
fn a_caller_may_bring_a_url_that_is_allowed() {
    let here = http_server(|_, message| told(message, "here"));
    let there = http_server(|_, message| told(message, "there"));
    let allowed = format!("{}/mcp", there.url());
    let plain = "[provider]\nname = \"plain\"\nbase_url = \"http://127.0.0.1:1\"\n[[tools]]\nname = \"plain_one\"\n";
    let proxy = started(
        over_http(&here, "mcp_url_env = \"S_URL\"")
            .manifest("plain", plain)
            .credentials(&json!({"s_allowed_urls": allowed})),
    );
    let call = |tool: &str, url: Option<&str>| {
        let body = json!({"tool_name": tool, "args": {}}).to_string();
        let headers: Vec<(&str, &str)> = url
            .map(|url| ("x-ati-upstream-url", url))
            .into_iter()
            .collect();
        let answer = proxy
            .client()
            .send("POST", "/call", &headers, body.as_bytes());
        (answer.status, answer.text())
    };
    assert!(call("s:who", None).1.contains("\"here\""));
    assert!(call("s:who", Some(&allowed)).1.contains("\"there\""));
    for (tool, url, status, says) in [
        ("s:who", "http://127.0.0.1:1/mcp", 403, "allowlist"),
        ("s:who", "nonsense", 400, "not a valid URL"),
        (
            "plain_one",
            allowed.as_str(),
            400,
            "does not declare mcp_url_env",
        ),
    ] {
        let (found, text) = call(tool, Some(url));
        assert_eq!(found, status, "{url}: {text}");
        assert!(text.contains(says), "{text}");
    }
    // The command line brings it where the variable is set.
    let output = crate::support::ati::command(proxy.dir.path())
        .args(["run", "s:who"])
        .env("ATI_PROXY_URL", format!("http://{}", proxy.edge))
        .env("S_URL", &allowed)
        .output()
        .unwrap();
    assert_eq!(stdout(&output).trim(), "\"there\"", "{}", stderr(&output));
}

#[test]
fn the_command_line_says_what_went_wrong_by_its_code() {
    let setup = with("good", "")
        .manifest("dead", &manifest("dead", "die", ""))
        .manifest(
            "absent",
            "[provider]\nname = \"absent\"\nhandler = \"mcp\"\nmcp_command = \"no-such-program\"\n",
        )
        .manifest("odd", &manifest("odd", "garbage", ""));
    let dir = setup.path();
    let good = ati(dir, &["run", "s:echo", "--text", "hi"]);
    assert_eq!(stdout(&good).trim(), "\"hi\"", "{}", stderr(&good));
    for (tool, code, says) in [
        ("s:error", 4, "MCP protocol error (code -32050)"),
        ("s:fail", 1, "the tool says no"),
        ("s:crash", 1, "the server ended"),
        ("s:nothing", 1, "Unknown tool"),
        ("dead:x", 1, "its last words: I can't go on"),
        (
            "absent:x",
            1,
            "Failed to spawn MCP server: [absent] no-such-program",
        ),
        ("odd:x", 4, "no JSON-RPC"),
    ] {
        let output = ati(dir, &["run", tool]);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{tool}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(says),
            "{tool}: {}",
            stderr(&output)
        );
    }
    let listed = ati(dir, &["tool", "list"]);
    assert!(stdout(&listed).contains("s:echo"));
    assert!(stderr(&listed).contains("dead: "), "{}", stderr(&listed));
    let info: Value = serde_json::from_str(&stdout(&ati(dir, &["provider", "info", "s"]))).unwrap();
    assert_eq!(info["server"]["state"], "ready");
    assert_eq!(info["server"]["protocol"], "2025-06-18");
    let described = stdout(&ati(dir, &["--output", "text", "tool", "info", "s:echo"]));
    assert!(
        described.contains("Transport:   MCP (stdio)"),
        "{described}"
    );
    let list = |args: &[&str]| {
        let list: Value = serde_json::from_str(&stdout(&ati(dir, args))).unwrap();
        let one = |name: &str| {
            let mut rows = list.as_array().unwrap().iter();
            rows.find(|row| row["name"] == name).unwrap().clone()
        };
        (one("s"), one("dead"))
    };
    let (good, dead) = list(&["provider", "list"]);
    assert!(
        good["listed"].as_str().unwrap().ends_with(" s ago"),
        "{good}"
    );
    assert!(
        good["state"].is_null() && dead["listed"].is_null(),
        "{dead}"
    );
    let (good, dead) = list(&["provider", "list", "--live"]);
    assert_eq!(
        (&good["type"], &good["state"]),
        (&json!("mcp/stdio"), &json!("ready"))
    );
    assert_eq!(dead["state"], "down");
    assert!(
        dead["error"].as_str().unwrap().contains("I can't go on"),
        "{dead}"
    );
    let loaded = ati(
        dir,
        &[
            "provider",
            "load",
            "--mcp",
            "--name",
            "t",
            "--transport",
            "stdio",
            "--command",
            server().to_str().unwrap(),
            "--args",
            "good",
        ],
    );
    let loaded: Value = serde_json::from_str(&stdout(&loaded)).unwrap();
    assert_eq!(loaded["probe"], "ok", "{loaded}");
    assert!(
        loaded["tools"]
            .as_array()
            .unwrap()
            .contains(&json!("t:echo")),
        "{loaded}"
    );
}

#[test]
fn a_supervisor_ends_what_it_supervises_when_its_input_closes() {
    let mut child = Command::new(BINARY)
        .args([
            "__supervise",
            "--",
            "sh",
            "-c",
            "trap '' TERM HUP; setsid sleep 3600 & echo $!; echo $$; sleep 3600",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let pids: Vec<u32> = (0..2)
        .map(|_| lines.next().unwrap().unwrap().parse().unwrap())
        .collect();
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    drop(child.stdin.take());
    eventually("the end of all of them", || {
        pids.iter().all(|pid| !is_alive(*pid)).then_some(())
    });
    assert!(child.wait().unwrap().success());
}
