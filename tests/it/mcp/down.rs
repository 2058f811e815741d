//! Calls of servers that haven't listed their tools: they wait for a server that starts, and are
//! told why one is down.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use ati::auth::token::Claims;
use serde_json::{Value, json};

use super::{
    failure, kill, manifest, over_http, particular_server, result, server, started, told, with,
};
use crate::support::ati::{Proxy, Setup, command, stderr, write};
use crate::support::http::{Client, Response};
use crate::support::tokens::{bearer, claims, key_pair};
use crate::support::upstream::{Received, Upstream};
use crate::support::{POLL, eventually, free_address};

const UP: &str = r#"ati_provider_up{provider="s"}"#;

/// A call in a thread of its own.
fn call_later(proxy: &Proxy, tool: &str) -> JoinHandle<Response> {
    let body = json!({"tool_name": tool, "args": {"text": "hi"}}).to_string();
    let edge = proxy.edge;
    std::thread::spawn(move || Client::connect(edge).send("POST", "/call", &[], body.as_bytes()))
}

/// Waits until as many calls are under way.
fn wait_for_calls(proxy: &Proxy, calls: u32) {
    proxy.settles(r#"ati_in_flight{route="/call"}"#, f64::from(calls));
}

fn error(answer: &Response) -> String {
    answer.json()["error"].as_str().unwrap().to_owned()
}

fn retry_after(answer: &Response) -> u64 {
    let header = answer.header("retry-after");
    header.unwrap().parse().unwrap()
}

/// A server over HTTP that answers `tools/list` once `open` is true.
fn slow_lister(open: &Arc<AtomicBool>) -> Upstream {
    let open = open.clone();
    let way = move |_: &Received, message: &Value, _: &mut std::net::TcpStream| {
        while message["method"] == "tools/list" && !open.load(Ordering::SeqCst) {
            std::thread::sleep(POLL);
        }
        None
    };
    let answer = |_: &Received, message: &Value, stream: &mut std::net::TcpStream| {
        let told = told(message, "hello");
        std::io::Write::write_all(stream, told.as_bytes()).is_ok()
    };
    particular_server(way, answer)
}

/// A manifest of a server that dies unless the file exists.
fn gated(file: &Path) -> String {
    let line = format!(
        "test -e {0} || {{ echo no key >&2; exit 1; }}; exec {1} good",
        file.display(),
        server().display()
    );
    format!(
        "[provider]\nname = \"s\"\nhandler = \"mcp\"\nmcp_command = \"sh\"\nmcp_args = [\"-c\", \"{line}\"]\n"
    )
}

#[test]
fn call_of_a_server_that_is_still_listing_waits_and_succeeds() {
    let open = Arc::new(AtomicBool::new(false));
    let upstream = slow_lister(&open);
    let proxy = over_http(&upstream, "").start();
    let calls = ["s:who", "s_who", "s:nothing"].map(|tool| call_later(&proxy, tool));
    wait_for_calls(&proxy, 3);
    eventually("the question for the tools", || {
        let listing = |one: &Received| one.body.windows(10).any(|part| part == b"tools/list");
        upstream.saw(listing).then_some(())
    });
    assert_eq!(proxy.metric(UP), None, "nothing is known yet");
    open.store(true, Ordering::SeqCst);
    let [who, alias, nothing] = calls.map(|call| call.join().unwrap());
    assert_eq!(who.json(), json!({"result": "hello"}));
    assert_eq!(alias.status, 200, "{}", alias.text());
    // The list is in, and doesn't have it.
    assert_eq!(nothing.status, 404, "{}", nothing.text());
    assert_eq!(error(&nothing), "Unknown tool: 's:nothing'");
    proxy.settles(UP, 1.0);
}

#[test]
fn call_of_a_server_that_dies_is_503_with_its_last_words() {
    let proxy = with("die", "").start();
    // The first call waits for the end of the first attempt, the second doesn't wait.
    for _ in 0..2 {
        let answer = proxy.call(None, "s:echo", json!({}));
        assert_eq!(answer.status, 503, "{}", answer.text());
        let says = "provider 's' is down: MCP transport error: [s] the server ended; its last words: I can't go on";
        assert_eq!(answer.json(), json!({"result": null, "error": says}));
        assert!((1..=300).contains(&retry_after(&answer)));
    }
    // What an agent asks for first says the same.
    let described = proxy.client().get("/tools/s:echo");
    assert_eq!(described.status, 503, "{}", described.text());
    assert!(error(&described).starts_with("provider 's' is down: "));
    proxy.settles(UP, 0.0);
    proxy.rises_to(r#"ati_refusals_total{reason="provider_down"}"#, 2.0);
    let audited = proxy.wait_for_audit(2);
    assert_eq!(audited[0]["tool"], "s:echo");
    assert_eq!(audited[0]["status"], "error");
    assert!(
        audited[0]["error"]
            .as_str()
            .unwrap()
            .starts_with("provider 's' is down"),
        "{audited:?}"
    );
    // Other names are as unknown as before, and the caller's are no labels.
    assert_eq!(proxy.call(None, "other:echo", json!({})).status, 404);
    let metrics = Client::connect(proxy.admin).get("/metrics").text();
    assert!(!metrics.contains("s:echo"), "{metrics}");
}

#[test]
fn caller_without_the_scope_is_not_told_why_a_provider_is_down() {
    let (signer, public) = key_pair();
    let tools = "[[tools]]\nname = \"wipe\"\nscope = \"admin:wipe\"\n";
    let proxy = with("die", tools).jwt(&public).start();
    let call = |scope: &str, tool: &str| {
        let scope = scope.to_owned();
        let token = bearer(&signer, &Claims { scope, ..claims() });
        proxy.call(Some(&token), tool, json!({}))
    };
    for (scope, tool, status) in [
        ("tool:s:*", "s:echo", 503),
        ("tool:s:echo", "s_echo", 503),
        ("tool:other:*", "s:echo", 403),
        ("tool:s:other", "s:echo", 403),
        // The manifest names another scope for this one.
        ("tool:s:*", "s:wipe", 403),
        ("admin:wipe", "s:wipe", 503),
    ] {
        let answer = call(scope, tool);
        assert_eq!(answer.status, status, "{scope} {tool}: {}", answer.text());
        assert_eq!(answer.text().contains("go on"), status == 503);
    }
    let denied = call("tool:other:*", "s_echo");
    assert_eq!(
        error(&denied),
        "Access denied: 's:echo' is not in your scopes"
    );
    assert!(denied.header("retry-after").is_none());
}

#[test]
fn server_that_is_repaired_is_used_after_the_next_attempt() {
    let setup = Setup::new();
    let key = setup.path().join("key");
    let text = gated(&key);
    let proxy = setup.manifest("s", &text).start();
    let answer = proxy.call(None, "s:echo", json!({"text": "hi"}));
    assert!(error(&answer).contains("no key"), "{}", answer.text());
    write(&key, "");
    eventually("the next attempt", || {
        let answer = proxy.call(None, "s:echo", json!({"text": "hi"}));
        (answer.status == 200).then_some(())
    });
    proxy.settles(UP, 1.0);
    proxy.log.wait_for("tools listed");
}

#[test]
fn reload_with_another_server_is_waited_for_and_old_series_are_removed() {
    let proxy = with("die", "")
        .manifest("t", &manifest("t", "die", ""))
        .start();
    assert_eq!(proxy.call(None, "s:echo", json!({})).status, 503);
    assert_eq!(proxy.call(None, "t:echo", json!({})).status, 503);
    proxy.settles(r#"ati_provider_up{provider="t"}"#, 0.0);
    write(&proxy.path("manifests/s.toml"), manifest("s", "good", ""));
    std::fs::remove_file(proxy.path("manifests/t.toml")).unwrap();
    assert_eq!(proxy.reload()["message"], "reload done");
    // What was known of the old server says nothing about the new one.
    assert_eq!(result(&proxy, "s:echo", json!({"text": "hi"})), "hi");
    assert_eq!(proxy.call(None, "t:echo", json!({})).status, 404);
    proxy.settles(UP, 1.0);
    assert_eq!(proxy.metric(r#"ati_provider_up{provider="t"}"#), None);
}

#[test]
fn server_that_is_lost_later_keeps_its_tools_and_is_reported_as_down() {
    let setup = Setup::new();
    let key = setup.path().join("key");
    write(&key, "");
    let text = gated(&key);
    let proxy = started(setup.manifest("s", &text));
    proxy.settles(UP, 1.0);
    let pid = result(&proxy, "s:pid", json!({})).as_u64().unwrap() as u32;
    std::fs::remove_file(&key).unwrap();
    kill(pid);
    eventually("a call that finds the server gone", || {
        let answer = proxy.call(None, "s:pid", json!({}));
        answer.text().contains("no key").then_some(())
    });
    // The tool is known: its call tells what happened to itself.
    assert!(failure(&proxy, "s:pid", json!({})).starts_with("MCP error: "));
    assert_eq!(proxy.call(None, "s:nothing", json!({})).status, 404);
    proxy.settles(UP, 0.0);
    write(&key, "");
    proxy.settles(UP, 1.0);
}

#[test]
fn wait_ends_with_the_time_of_the_call() {
    let proxy = with("silent", "")
        .conf("[tools]\ntimeout_seconds = 1\n")
        .start();
    let answer = proxy.call(None, "s:echo", json!({}));
    assert_eq!(answer.status, 503, "{}", answer.text());
    let says = "provider 's' is down: it has not listed its tools within 1 s";
    assert_eq!(error(&answer), says);
    assert_eq!(retry_after(&answer), 1);
}

#[test]
fn wait_ends_when_the_process_stops() {
    let mut proxy = with("silent", "").start();
    let call = call_later(&proxy, "s:echo");
    wait_for_calls(&proxy, 1);
    proxy.signal("TERM");
    let answer = call.join().unwrap();
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(error(&answer), "provider 's' is down: ati is stopping");
    assert!(proxy.wait().success());
}

#[test]
fn run_through_the_proxy_tells_a_provider_that_is_down_by_its_code() {
    let proxy = with("die", "").start();
    let run = command(proxy.dir.path())
        .env("ATI_PROXY_URL", format!("http://{}", proxy.edge))
        .args(["run", "s:echo"])
        .output()
        .unwrap();
    let said = stderr(&run);
    assert_eq!(run.status.code(), Some(4), "{said}");
    assert!(said.contains(r#""code":"provider.unavailable""#), "{said}");
    assert!(said.contains("provider 's' is down: "), "{said}");
}

#[test]
fn address_of_an_unreachable_server_is_told_to_operators_only() {
    let address = free_address();
    let text = format!(
        "[provider]\nname = \"s\"\nhandler = \"mcp\"\nmcp_transport = \"http\"\nmcp_url = \"http://me:planted-pw@{address}/mcp?key=planted-key\"\n"
    );
    let proxy = Setup::new().manifest("s", &text).start();
    let answer = proxy.call(None, "s:echo", json!({}));
    let says = "provider 's' is down: MCP transport error: [s] HTTP request failed: connection refused or unreachable";
    assert_eq!(error(&answer), says);
    let address = address.to_string();
    let line = proxy.log.wait_for("its tools can't be listed");
    assert!(line.to_string().contains(&address), "{line}");
    let states = Client::connect(proxy.admin).get("/providers").json();
    let shown = states["s"]["error"].as_str().unwrap();
    assert!(
        shown.ends_with(&format!(": the server is at {address}")),
        "{shown}"
    );
    let run = command(proxy.dir.path())
        .args(["run", "s:echo"])
        .output()
        .unwrap();
    let said = stderr(&run);
    assert_eq!(run.status.code(), Some(4), "{said}");
    assert!(
        said.contains(&format!(
            "[s] HTTP request failed: connection refused or unreachable: the server is at {address}"
        )),
        "{said}"
    );
    assert!(said.contains(r#""code":"provider.unavailable""#), "{said}");
}
