//! Calls that report progress, calls that are taken back, and clients that leave.

use serde_json::{Value, json};

use super::{JSON, VERSION, post, request, stateless};
use crate::mcp::manifest;
use crate::support::ati::{Proxy, Setup, write};
use crate::support::eventually;
use crate::support::http::Client;

fn started(mode: &str) -> Proxy {
    let setup = Setup::new();
    let notes = setup.path().join("notes");
    let env = format!("[provider.mcp_env]\nNOTES = \"{}\"", notes.display());
    let proxy = setup.manifest("s", &manifest("s", mode, &env)).start();
    proxy.log.wait_for("tools listed");
    proxy
}

fn events(body: &str) -> Vec<Value> {
    let lines = body.lines().filter_map(|line| line.strip_prefix("data: "));
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

const EVENTS: (&str, &str) = ("accept", "application/json, text/event-stream");

#[test]
fn progress_comes_in_the_event_stream_of_the_call() {
    let proxy = started("");
    let mut call = request(
        "tools/call",
        json!({"name": "s:steps", "_meta": {"progressToken": "tok"}}),
    );
    let answer = post(&proxy, &[EVENTS], &call);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let all = events(&answer.text());
    assert_eq!(all.len(), 4, "{all:?}");
    for (n, report) in all[..3].iter().enumerate() {
        assert_eq!(report["method"], "notifications/progress");
        assert_eq!(report["params"]["progressToken"], "tok");
        assert_eq!(report["params"]["progress"], json!((n + 1) as f64));
    }
    assert_eq!(
        (&all[3]["id"], &all[3]["result"]["content"][0]["text"]),
        (&json!(7), &json!("done"))
    );
    // Without a token, or where the client doesn't take events, the answer is JSON.
    assert!(post(&proxy, &[], &call).json()["result"].is_object());
    call["params"]["_meta"] = json!({});
    assert!(post(&proxy, &[EVENTS], &call).json()["result"].is_object());
    // An error is an event, too.
    let unknown = request(
        "tools/call",
        json!({"name": "nope", "_meta": {"progressToken": 1}}),
    );
    let answer = events(&post(&proxy, &[EVENTS], &unknown).text());
    assert_eq!(answer[0]["error"]["code"], -32602);
    // And in the other era.
    let mut call = stateless("tools/call", json!({"name": "s:steps"}));
    call["params"]["_meta"]["progressToken"] = json!(5);
    let headers = [
        EVENTS,
        VERSION,
        ("mcp-method", "tools/call"),
        ("mcp-name", "s:steps"),
    ];
    let all = events(&post(&proxy, &headers, &call).text());
    assert_eq!(
        (all.len(), &all[3]["result"]["resultType"]),
        (4, &json!("complete"))
    );
}

/// A call that waits until the file `gate` exists.
fn slow_call(proxy: &Proxy, id: u32, token: bool) -> Client {
    let mut params = json!({"name": "s:once", "arguments": {"text": proxy.path("gate")}});
    if token {
        params["_meta"] = json!({"progressToken": id});
    }
    let body =
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string();
    let mut client = proxy.client();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\n{}: {}\r\n{}: {}\r\ncontent-length: {}\r\n\r\n{body}",
        proxy.edge,
        JSON.0,
        JSON.1,
        EVENTS.0,
        EVENTS.1,
        body.len()
    );
    client.write(head.as_bytes());
    client
}

fn wait_for_calls(proxy: &Proxy, count: usize) {
    eventually("calls at the server", || {
        let held = std::fs::read_to_string(proxy.path("gate.held")).ok()?;
        (held.lines().count() >= count).then_some(())
    });
}

fn cancelled(proxy: &Proxy) -> usize {
    let notes = std::fs::read_to_string(proxy.path("notes")).unwrap_or_default();
    notes.matches("notifications/cancelled").count()
}

fn wait_for_cancellations(proxy: &Proxy, count: usize) {
    eventually("cancellations at the server", || {
        (cancelled(proxy) >= count).then_some(())
    });
}

#[test]
fn call_ends_with_its_connection_or_with_its_cancellation() {
    let proxy = started("");
    // By leaving, with and without an event stream.
    for (n, token) in [true, false].into_iter().enumerate() {
        let client = slow_call(&proxy, 1, token);
        wait_for_calls(&proxy, n + 1);
        drop(client);
        wait_for_cancellations(&proxy, n + 1);
    }
    // By a notification: the stream ends without a response, and JSON is an error.
    let cancel = |id: u32| {
        let params = json!({"requestId": id, "reason": "enough"});
        let told = post(
            &proxy,
            &[],
            &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}),
        );
        assert_eq!(told.status, 202);
    };
    let mut client = slow_call(&proxy, 11, true);
    wait_for_calls(&proxy, 3);
    cancel(11);
    let answer = client.read(false);
    assert_eq!((answer.status, events(&answer.text()).len()), (200, 0));
    let mut client = slow_call(&proxy, 12, false);
    wait_for_calls(&proxy, 4);
    cancel(12);
    assert_eq!(
        client.read(false).json()["error"]["message"],
        "Request cancelled"
    );
    wait_for_cancellations(&proxy, 4);
    // Two with the same id: it isn't known which is meant.
    let mut twins = [slow_call(&proxy, 13, false), slow_call(&proxy, 13, false)];
    wait_for_calls(&proxy, 6);
    cancel(13);
    write(&proxy.path("gate"), "");
    for client in &mut twins {
        assert_eq!(
            client.read(false).json()["result"]["content"][0]["text"],
            "done"
        );
    }
    let audit = proxy.wait_for_audit(6);
    let abandoned = audit.iter().filter(|line| {
        line["error"]
            .as_str()
            .is_some_and(|e| e.starts_with("abandoned"))
    });
    assert_eq!(abandoned.count(), 4);
    proxy.settles("ati_in_flight{route=\"/mcp\"}", 0.0);
}

#[test]
fn clients_that_vanish_leave_nothing_behind() {
    let proxy = started("");
    let before = proxy.descriptors();
    for round in 0..3 {
        let clients: Vec<Client> = (0..30).map(|n| slow_call(&proxy, n, n % 2 == 0)).collect();
        wait_for_calls(&proxy, 10 * (round + 1));
        drop(clients);
        proxy.settles("ati_in_flight{route=\"/mcp\"}", 0.0);
    }
    eventually("the end of their connections", || {
        (proxy.descriptors() <= before + 5).then_some(())
    });
    write(&proxy.path("gate"), "");
    let body = request(
        "tools/call",
        json!({"name": "s:echo", "arguments": {"text": "still here"}}),
    );
    let answer = post(&proxy, &[], &body).json();
    assert_eq!(answer["result"]["content"][0]["text"], "still here");
}
