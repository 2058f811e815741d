//! Clients that try to get more than their scopes, their limits and the audit allow.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;

use super::over_http::provider;
use super::scopes::token;
use super::*;
use crate::mcp::{particular_server, told};
use crate::support::tokens::key_pair;
use crate::support::upstream::Upstream;
use crate::support::{POLL, eventually};

fn server() -> Upstream {
    particular_server(
        |_, _, _| None,
        |_, message, stream| stream.write_all(told(message, "ran").as_bytes()).is_ok(),
    )
}

/// Whether the server got a message with this text.
fn reached(upstream: &Upstream, what: &str) -> bool {
    upstream.saw(|request| String::from_utf8_lossy(&request.body).contains(what))
}

#[test]
fn server_never_gets_a_member_that_it_could_take_for_another() {
    let (signer, public) = key_pair();
    let upstream = server();
    let proxy = started(provider(&upstream, "").jwt(&public));
    let session = Session::open_as(&proxy, Some(&token(&signer, "one", "tool:s:who")));
    for (rest, code) in [
        (
            r#""id":3,"method":"tools/call","params":{"name":"who","Name":"wipe"}"#,
            -32602,
        ),
        (
            r#""id":4,"method":"ping","Method":"tools/call","params":{"name":"wipe"}"#,
            -32600,
        ),
        (
            r#""id":77,"result":{},"Method":"tools/call","Params":{"name":"wipe"}"#,
            -32600,
        ),
        (r#""method":"tools/call","params":{"name":"wipe"}"#, -32600),
    ] {
        let answer = session.send("POST", format!(r#"{{"jsonrpc":"2.0",{rest}}}"#).as_bytes());
        assert_eq!(answer.json()["error"]["code"], code, "{rest}");
    }
    let extra =
        br#"{"jsonrpc":"2.0","other":"wipe","id":5,"method":"tools/call","params":{"name":"who"}}"#;
    let answer = session.send("POST", extra).json();
    assert_eq!(text(&answer), "ran");
    assert!(reached(&upstream, "tools/call") && !reached(&upstream, "wipe"));
}

#[test]
fn program_gets_no_request_without_an_id() {
    let (signer, public) = key_pair();
    let proxy = started(with_program("").jwt(&public));
    let session = Session::open_as(&proxy, Some(&token(&signer, "one", "tool:s:echo")));
    let crash = json!({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "crash"}});
    let refused = session.post(&crash);
    assert_eq!(
        (refused.status, &refused.json()["error"]["code"]),
        (400, &json!(-32600))
    );
    assert_eq!(text(&session.call("echo", json!({"text": "x"}))), "x");
}

#[test]
fn arguments_are_recorded_or_the_call_is_refused() {
    let upstream = server();
    let proxy = started(provider(&upstream, ""));
    let session = Session::open(&proxy);
    for value in ["1e999", r#""\ud800""#] {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"who","arguments":{{"x":{value}}}}}}}"#
        );
        let refused = session.send("POST", call.as_bytes()).json();
        assert_eq!(refused["error"]["code"], -32602, "{value}");
    }
    assert!(!reached(&upstream, "tools/call"));
    let padded = json!({"path": "/etc", "padding": " ".repeat(100 << 10)});
    assert_eq!(text(&session.call("who", padded)), "ran");
    let line = &proxy.wait_for_audit(1)[0];
    assert_eq!(line["args"]["path"], "/etc", "{line}");
}

#[test]
fn sessions_that_are_being_opened_count_against_the_limit() {
    let (release, refused) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
    let released = release.clone();
    let upstream = particular_server(
        move |_, message, stream| {
            let is_of_client = message["params"]["clientInfo"]["name"] == "test";
            is_of_client.then(|| {
                while !released.load(Ordering::SeqCst) {
                    std::thread::sleep(POLL);
                }
                let result = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
                let answer = crate::mcp::with_result(message, "", &result);
                stream.write_all(answer.as_bytes()).is_ok()
            })
        },
        |_, _, _| true,
    );
    let proxy = started(provider(&upstream, ""));
    let session = Session {
        edge: proxy.edge,
        id: String::new(),
        bearer: None,
    };
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let post = || {
            let status = session.post(&initialize()).status;
            refused.fetch_add(usize::from(status == 503), Ordering::SeqCst);
            status
        };
        let all: Vec<_> = (0..110).map(|_| scope.spawn(post)).collect();
        eventually("refusals", || {
            (refused.load(Ordering::SeqCst) >= 10).then_some(())
        });
        release.store(true, Ordering::SeqCst);
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let count = |status: u16| statuses.iter().filter(|one| **one == status).count();
    assert_eq!((count(200), count(503)), (100, 10));
}
