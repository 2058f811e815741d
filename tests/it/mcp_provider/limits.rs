//! How long requests and streams last.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::{Session, read_until, request, started, text, with_program};
use crate::support::tokens::{bearer, claims, key_pair};

#[test]
fn server_that_says_nothing_to_a_request_fails_it_after_a_while() {
    // Ten times the time of a call.
    let conf = "[tools]\ntimeout_seconds = 1\n";
    let proxy = started(with_program("").conf(conf));
    let session = Session::open(&proxy);
    let held = json!({"text": proxy.path("never")});
    let answer = session.call("slow", held);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert!(
        text(&answer).ends_with("timeout: the server did not answer within 10 s"),
        "{answer}"
    );
    let audit = proxy.wait_for_audit(1);
    assert_eq!(
        (&audit[0]["tool"], &audit[0]["status"]),
        (&json!("s:slow"), &json!("error"))
    );
    // The session goes on.
    assert_eq!(text(&session.call("echo", json!({"text": "on"}))), "on");
}

#[test]
fn stream_without_an_end_of_its_own_ends_with_the_callers_token() {
    let (signer, public) = key_pair();
    let proxy = started(with_program("").jwt(&public));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut short = claims();
    short.scope = "tool:s:*".to_owned();
    short.exp = now.as_secs() + 8;
    let session = Session::open_as(&proxy, Some(&bearer(&signer, &short)));
    let mut standing = session.begin("GET", None);
    read_until(&mut standing, "text/event-stream");
    let call = request(
        "tools/call",
        json!({"name": "slow", "arguments": {"text": proxy.path("gate")}}),
    );
    let mut calling = session.begin("POST", Some(&call));
    // To its end.
    read_until(&mut standing, "0\r\n\r\n");
    let ended = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    assert!(ended.as_secs() >= short.exp, "{ended:?} {}", short.exp);
    // A request that was begun in time is answered.
    std::fs::write(proxy.path("gate"), "").unwrap();
    read_until(&mut calling, "\"result\"");
}
