//! Requests and answers that two programs could read differently, each followed by a canary on the
//! same connections: what the upstream saw, what the caller got, and whether what comes next is
//! sane.

use super::caller::{Caller, End, Received, Step};
use super::scripted::{Answer, CANARY, Scripted, Then, When, find};
use super::{on, routes, signed};
use crate::support::ati::Proxy;
use crate::support::eventually;

fn start() -> (Proxy, Scripted) {
    let upstream = Scripted::start();
    let proxy = routes(signed(on()), 0, &upstream.url()).start();
    (proxy, upstream)
}

fn answer(text: &str, then: Then) -> Answer {
    Answer {
        when: When::Whole,
        pieces: vec![text.as_bytes().to_vec()],
        then,
        is_cut_for_head: false,
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Sends the bytes; returns the answers, and whether the connection was kept. A canary passes
/// through ati afterwards: on the same connection if it is open, or else on a new one.
fn send(proxy: &Proxy, upstream: &Scripted, bytes: &[u8], answers: usize) -> (Vec<Received>, bool) {
    let mut caller = Caller::connect(proxy.edge);
    // A plain request first, so that the connections of both sides are kept ones.
    let canary = format!("GET /open0/{CANARY} HTTP/1.1\r\nHost: c\r\n\r\n");
    assert_eq!(caller.canary(&canary), End::Open);
    let steps = [Step::Send(bytes.to_vec()), Step::Read(answers)];
    let (received, end) = caller.run(&steps, &[], upstream);
    let what = String::from_utf8_lossy(bytes).into_owned();
    match &end {
        None => {}
        Some(End::Closed) => {}
        Some(other) => panic!("{what:?} left the connection {other:?}: {received:?}"),
    }
    upstream.wait_until_played();
    let same = match end {
        None => caller.canary(&canary),
        Some(_) => End::Closed,
    };
    let is_kept = same == End::Open;
    if !is_kept {
        assert_eq!(same, End::Closed, "{what:?}");
        let again = Caller::connect(proxy.edge).canary(&canary);
        assert_eq!(again, End::Open, "{what:?}");
    }
    (received, is_kept)
}

/// The target and the framing headers of what the upstream saw.
fn targets(upstream: &Scripted) -> Vec<String> {
    let line = |head: &[u8]| {
        let end = find(head, b"\r\n").unwrap_or(head.len());
        String::from_utf8_lossy(&head[..end]).into_owned()
    };
    upstream
        .seen()
        .iter()
        .map(|seen| line(&seen.head))
        .collect()
}

/// A request in these words; `\r\n` ends each line. A second one hides in its body.
const SMUGGLED: &str = "GET /open0/smuggled HTTP/1.1\r\nHost: h\r\n\r\n";

#[test]
fn ambiguous_requests_are_refused_before_the_upstream_and_end_the_connection() {
    let (proxy, upstream) = start();
    let heads = [
        "Content-Length: 44\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 44",
        "Content-Length: 44\r\nContent-Length: 0",
        "Content-Length: 0\r\nContent-Length: 44",
        "Content-Length: 44, 44",
        "Content-Length: 44, 0",
        "Content-Length: +44",
        "Content-Length: -1",
        "Content-Length: 0x2c",
        "Content-Length: 4 4",
        "Content-Length: 44\x0b",
        "Content-Length:",
        "Content-Length : 44",
        "Content-Length: 99999999999999999999999",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding:\r\n chunked",
        "Transfer-Encoding: \x0bchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "X: a\r\n Transfer-Encoding: chunked",
        "X: a\rTransfer-Encoding: chunked",
        "X: a\0b",
        "X Y: a",
        " X: a",
        ": a",
        "no colon",
        "Host: second",
        "Connection: host",
    ];
    for more in heads {
        let request = format!("POST /open0/x HTTP/1.1\r\nHost: h\r\n{more}\r\n\r\n");
        for body in ["", "0\r\n\r\n"] {
            upstream.play(&[answer(OK, Then::Keep), answer(OK, Then::Keep)]);
            let bytes = format!("{request}{body}{SMUGGLED}");
            let (received, is_kept) = send(&proxy, &upstream, bytes.as_bytes(), 2);
            let statuses: Vec<u16> = received.iter().map(|received| received.status).collect();
            assert_eq!((statuses, is_kept), (vec![400], false), "{more:?} {body:?}");
            assert_eq!(targets(&upstream), [""; 0], "{more:?} {body:?}");
        }
    }
}

#[test]
fn length_that_connection_names_frames_the_body_all_the_same() {
    let (proxy, upstream) = start();
    for named in [
        "content-length",
        "Content-Length, close",
        "transfer-encoding",
    ] {
        upstream.play(&[answer(OK, Then::Keep), answer(OK, Then::Keep)]);
        let length = SMUGGLED.len();
        let bytes = format!(
            "POST /open0/x HTTP/1.1\r\nHost: h\r\nConnection: {named}\r\nContent-Length: {length}\r\n\r\n{SMUGGLED}"
        );
        send(&proxy, &upstream, bytes.as_bytes(), 1);
        // The body stays a body: it is never a request of its own.
        assert!(
            !targets(&upstream)
                .iter()
                .any(|line| line.contains("smuggled")),
            "{named}: {:?}",
            targets(&upstream)
        );
    }
}

#[test]
fn body_that_looks_like_a_request_stays_a_body() {
    let (proxy, upstream) = start();
    for method in ["GET", "POST", "DELETE", "HEAD"] {
        upstream.play(&[answer(OK, Then::Keep), answer(OK, Then::Keep)]);
        upstream.play(&[Answer {
            is_cut_for_head: true,
            ..answer(OK, Then::Keep)
        }]);
        let length = SMUGGLED.len();
        let bytes = format!(
            "{method} /open0/x HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{SMUGGLED}"
        );
        let mut caller = Caller::connect(proxy.edge);
        let steps = [Step::Send(bytes.into_bytes()), Step::Read(1)];
        let (received, _) = caller.run(&steps, &[method == "HEAD"], &upstream);
        assert_eq!(received[0].status, 200, "{method}");
        assert_eq!(upstream.seen().len(), 1, "{method}");
        assert_eq!(upstream.seen()[0].body, SMUGGLED.as_bytes(), "{method}");
    }
}

#[test]
fn header_of_the_upstream_cannot_be_forged_by_a_caller() {
    let (proxy, upstream) = start();
    upstream.play(&[answer(OK, Then::Keep)]);
    let request = "GET /key0/x HTTP/1.1\r\nHost: h\r\nX-Api-Key: mine\r\nx_api_key: mine\r\n\
                   X-API-KEY: mine\r\nX-Extra: mine\r\nX_Secret: mine\r\nAuthorization: mine\r\n\
                   X-Sandbox-Token: mine\r\nConnection: x-extra, x-api-key\r\n\r\n";
    let (received, is_kept) = send(&proxy, &upstream, request.as_bytes(), 1);
    assert_eq!((received[0].status, is_kept), (200, true));
    let head = String::from_utf8(upstream.seen()[0].head.clone()).unwrap();
    assert!(!head.contains("mine"), "{head}");
    let head = head.to_lowercase();
    for line in [
        "x-api-key: planted-upstream-key-0001\r\n",
        "x-extra: one\r\n",
    ] {
        assert_eq!(head.matches(line).count(), 1, "{head}");
    }
    assert!(head.contains("host: api.test\r\n"), "{head}");
}

/// What an upstream may answer to get bytes taken for the answer to another request.
#[test]
fn answers_that_hold_another_answer_never_reach_the_next_caller() {
    const FORGED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
    let (proxy, upstream) = start();
    // The head and what follows it, and the status that the caller gets.
    let tricks = [
        ("200 OK\r\nContent-Length: 2\r\n\r\nok", 200),
        ("200 OK\r\nContent-Length: 0\r\n\r\n", 200),
        ("204 No Content\r\n\r\n", 204),
        ("304 Not Modified\r\nContent-Length: 55\r\n\r\n", 304),
        (
            "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            200,
        ),
        (
            "200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 70\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            200,
        ),
        (
            "200 OK\r\nContent-Length: 2\r\nContent-Length: 60\r\n\r\nok",
            502,
        ),
        (
            "200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
            502,
        ),
        ("200 OK\r\nContent-Length: 2, 2\r\n\r\nok", 502),
        (
            "101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            502,
        ),
    ];
    for (text, status) in tricks {
        for then in [Then::Keep, Then::Close] {
            for pieces in [1, 2] {
                let bytes = format!("HTTP/1.1 {text}{FORGED}");
                // Surplus bytes that come after the next request was sent can't be told from its
                // answer, so the first piece has some of them.
                let at = if pieces == 1 {
                    bytes.len()
                } else {
                    bytes.len() - 10
                };
                let (first, second) = bytes.split_at(at);
                let mut trick = answer(first, then);
                trick.pieces.push(second.as_bytes().to_vec());
                upstream.play(&[trick, answer(OK, Then::Keep), answer(OK, Then::Keep)]);
                // The second request comes on the same connection, and may use the same upstream
                // connection.
                let two = "GET /open0/one HTTP/1.1\r\nHost: h\r\n\r\nGET /open0/two HTTP/1.1\r\nHost: h\r\n\r\n";
                let (received, _) = send(&proxy, &upstream, two.as_bytes(), 2);
                assert_eq!(received[0].status, status, "{text:?} {then:?} {pieces}");
                for received in &received {
                    assert_ne!(received.body, b"forged", "{text:?} {then:?} {pieces}");
                }
                if received.len() == 2 {
                    assert_eq!(received[1].body, b"ok", "{text:?} {then:?} {pieces}");
                }
            }
        }
    }
}

#[test]
fn answers_that_http_does_not_allow_are_502_and_end_the_upstreams_connection() {
    let (proxy, upstream) = start();
    let length = "Content-Length: 2\r\n\r\nok";
    let tricks = [
        format!("HTTP/1.1 200 OK\r\nX Y: a\r\n{length}"),
        format!("HTTP/1.1 200 OK\r\nX: a\0b\r\n{length}"),
        format!("HTTP/1.1 200 OK\r\nX: a\rb\r\n{length}"),
        "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok".to_owned(),
        "HTTP/1.1 abc\r\n\r\n".to_owned(),
        "SSH-2.0-OpenSSH_9.2\r\n\r\n".to_owned(),
    ];
    for trick in tricks {
        upstream.play(&[answer(&trick, Then::Keep), answer(OK, Then::Keep)]);
        let request = b"POST /open0/x HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nb";
        let (received, is_kept) = send(&proxy, &upstream, request, 1);
        assert_eq!((received[0].status, is_kept), (502, false), "{trick:?}");
        let last = upstream.seen().last().map(|seen| seen.connection);
        assert_ne!(upstream.canaries().last().copied(), last, "{trick:?}");
    }
}

/// Pingora reads both somehow: this is on purpose.
#[test]
fn answers_that_only_pingora_reads_are_refused_or_cut_off() {
    let (proxy, upstream) = start();
    let request = b"POST /open0/x HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nb";
    upstream.play(&[answer(&format!("\r\n{OK}"), Then::Keep)]);
    let (received, is_kept) = send(&proxy, &upstream, request, 1);
    assert_eq!((received[0].status, is_kept), (502, false));
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in [
        "\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nbad trailer\r\n\r\n",
    ] {
        upstream.play(&[answer(&format!("{head}{body}"), Then::Keep)]);
        let (received, is_kept) = send(&proxy, &upstream, request, 1);
        let is_refused = received[0].status == 502 || !received[0].is_whole;
        assert!(is_refused && !is_kept, "{body:?}: {received:?}");
        let connection = upstream.seen()[0].connection;
        eventually("the end of the upstream's connection", || {
            (!upstream.is_open(connection)).then_some(())
        });
    }
}
