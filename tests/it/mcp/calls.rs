//! Calls of MCP tools: results, cancellation, progress, timeouts.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    Gate, failure, http_server, listed, manifest, over_http, result, started, streamed, with,
};
use crate::support::ati::{Setup, ati, stderr, stdout, write};
use crate::support::eventually;
use crate::support::http::Client;

#[test]
fn mcp_tools_are_listed_and_called_in_one_session() {
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
fn health_answers_while_mcp_servers_hang() {
    let setup = with("good", "").manifest("hung", &manifest("hung", "silent", ""));
    let proxy = started(setup);
    let gate = Gate::new(&proxy);
    let threads: Vec<_> = (0..10).map(|_| gate.call(&proxy, "s:slow")).collect();
    let in_flight = r#"ati_in_flight{route="/call"}"#;
    proxy.settles(in_flight, 10.0);
    for _ in 0..20 {
        assert_eq!(proxy.client().get("/health").status, 200);
    }
    // No call has ended meanwhile, so /health didn't wait for one.
    assert_eq!(proxy.metric(in_flight), Some(10.0));
    gate.open();
    for thread in threads {
        assert_eq!(thread.join().unwrap().0, 200);
    }
    let states = Client::connect(proxy.admin).get("/providers").json();
    assert_eq!(states["hung"]["state"], "starting");
}

#[test]
fn callers_that_leave_cancel_their_calls_at_the_server() {
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
    // Calls that had reached the server were cancelled there.
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
fn progress_of_a_call_is_shown_when_verbose() {
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
    // Without --verbose no progress is shown.
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
fn call_timeout_includes_the_start_of_its_server() {
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
    // Less than the time that a server has to start.
    assert!(started.elapsed() < Duration::from_secs(20));
}
