//! Connections to the HTTP/1 upstreams of tools: when they are used again, and when they are not.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::{BEARER, KEY, json_upstream, with_key};
use crate::support::ati::{Proxy, Setup, tool};
use crate::support::tls::Authority;
use crate::support::upstream::Upstream;

fn proxy(url: &str, fields: &str) -> Proxy {
    with_key(Setup::new())
        .conf("[server]\nworkers = 1\n")
        .tools("p", url, BEARER, &tool("p", fields))
        .start()
}

/// From how many connections requests came.
fn connections(api: &Upstream) -> usize {
    let received = api.received();
    let peers: BTreeSet<_> = received.iter().map(|request| request.peer).collect();
    peers.len()
}

#[test]
fn calls_one_after_another_share_a_connection() {
    let api = json_upstream(json!({"ok": true}));
    let proxy = proxy(&api.url(), "endpoint = '/x'");
    for _ in 0..5 {
        assert_eq!(proxy.call(None, "p", json!({"q": 1})).status, 200);
    }
    assert_eq!((api.received().len(), connections(&api)), (5, 1));
    let seen = api.last();
    let key = format!("Bearer {KEY}");
    assert_eq!(seen.header("authorization"), Some(key.as_str()));
    assert_eq!(seen.header("host"), Some(&*api.address.to_string()));
    assert_eq!(seen.header("accept"), Some("*/*"));
    assert!(seen.header("user-agent").unwrap().starts_with("ati/"));
    assert!(seen.header("content-length").is_none() && seen.header("connection").is_none());
}

#[test]
fn answer_whose_end_is_doubtful_is_an_error_and_closes_its_connection() {
    for (head, why) in [
        (
            "Content-Length: 2\r\nContent-Length: 3",
            "it has two different content-lengths",
        ),
        (
            "Content-Length: 2\r\nTransfer-Encoding: chunked",
            "it has a content-length and a transfer-encoding",
        ),
        (
            "Transfer-Encoding: gzip, chunked",
            "its transfer-encoding isn't chunked alone",
        ),
        (
            "Transfer-Encoding: chunked\r\nX: y\r\n folded",
            "a header's name is malformed, or the header goes on in a second line",
        ),
        ("Content-Length: +2", "its content-length is no number"),
        (
            "Content-Length: 2\nX: y",
            "its head has a line that doesn't end with CR and LF",
        ),
        (
            "Transfer-Encoding: chunked",
            "the size of a chunk is malformed",
        ),
    ] {
        let api = Upstream::fixed(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{{}}{KEY}"));
        let proxy = proxy(&api.url(), "endpoint = '/x'");
        for _ in 0..2 {
            let answer = proxy.call(None, "p", json!({}));
            assert_eq!(answer.status, 502, "{head}");
            let error = answer.json()["error"].clone();
            let expected = format!(
                "Upstream API error: HTTP request failed: the answer can't be used, because {why}"
            );
            assert_eq!(error, expected.as_str());
        }
        assert_eq!((api.received().len(), connections(&api)), (2, 2), "{head}");
    }
}

#[test]
fn bytes_behind_an_answer_reach_no_later_call() {
    let forged = "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n\"forged\"";
    let api = Upstream::fixed(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n\"mine\"{forged}"
    ));
    let proxy = proxy(&api.url(), "endpoint = '/x'");
    for _ in 0..3 {
        let answer = proxy.call(None, "p", json!({}));
        assert_eq!(
            (answer.status, answer.json()["result"].clone()),
            (200, json!("mine"))
        );
    }
    assert_eq!((api.received().len(), connections(&api)), (3, 3));
}

#[test]
fn chunked_answer_in_pieces_is_whole_and_keeps_its_connection() {
    let api = Upstream::answering(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x\r\n\r\n";
        let body = "3\r\n{\"a\r\n5;ext=1\r\n\":[1,\r\n2\r\n2]\r\n1\r\n}\r\n0\r\nx: y\r\n\r\n";
        let text = format!("{head}{body}");
        text.bytes().all(|byte| stream.write_all(&[byte]).is_ok())
    });
    let proxy = proxy(&api.url(), "endpoint = '/x'");
    for _ in 0..3 {
        let answer = proxy.call(None, "p", json!({}));
        assert_eq!(answer.text(), r#"{"result":{"a":[1,2]}}"#);
    }
    assert_eq!(connections(&api), 1);
}

/// Answers the first request of each connection. On the first connection it reads a second one, and
/// closes without an answer.
fn stale() -> (Upstream, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let (seen, accepted) = (requests.clone(), AtomicUsize::new(0));
    let upstream = Upstream::raw(move |mut stream: TcpStream| {
        let is_first = accepted.fetch_add(1, Ordering::Relaxed) == 0;
        let mut read = [0; 4096];
        for request in 0.. {
            if stream.read(&mut read).unwrap_or(0) == 0 {
                return;
            }
            seen.fetch_add(1, Ordering::Relaxed);
            if is_first && request == 1 {
                return;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
        }
    });
    (upstream, requests)
}

#[test]
fn stale_connection_repeats_a_get_and_never_what_is_not_idempotent() {
    let (api, requests) = stale();
    let get = proxy(&api.url(), "endpoint = '/x'");
    for _ in 0..2 {
        assert_eq!(get.call(None, "p", json!({})).status, 200);
    }
    assert_eq!(requests.load(Ordering::Relaxed), 3);

    let declared = "endpoint = '/x'\n[tools.effects]\nidempotent = false";
    for tool in ["endpoint = '/x'\nmethod = 'POST'", declared] {
        let (api, requests) = stale();
        let once = proxy(&api.url(), tool);
        assert_eq!(once.call(None, "p", json!({})).status, 200);
        let lost = once.call(None, "p", json!({}));
        assert_eq!(lost.status, 502);
        assert_eq!(
            lost.json()["error"],
            "Upstream API error: HTTP request failed: it closed the connection"
        );
        assert_eq!(requests.load(Ordering::Relaxed), 2);
    }
}

#[test]
fn upstream_with_tls_and_http1_answers_every_call() {
    let authority = Authority::new();
    let api = authority.answering("127.0.0.1", |head, body| {
        let first = head.lines().next().unwrap_or_default().to_owned();
        (
            200,
            json!([first, String::from_utf8_lossy(body)]).to_string(),
        )
    });
    let proxy = with_key(Setup::new())
        .file("ca.pem", authority.pem())
        .conf("[server]\nworkers = 1\n[egress]\nca_file = 'ca.pem'\n")
        .tools(
            "p",
            &format!("https://{api}/v1"),
            BEARER,
            &tool("p", "endpoint = '/x'\nmethod = 'POST'"),
        )
        .start();
    for n in 0..4 {
        let answer = proxy.call(None, "p", json!({"n": n})).json();
        let body = format!(r#"{{"n":{n}}}"#);
        assert_eq!(answer["result"], json!(["POST /v1/x HTTP/1.1", body]));
    }
}
