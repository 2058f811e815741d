//! Upstreams that misbehave. docs/passthrough.md has this as a table.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::ati::{Proxy, Setup};
use crate::support::free_address;
use crate::support::upstream::Upstream;

/// Reads one request's header.
fn read_head(stream: &mut TcpStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n > 0) {
        head.push(byte[0]);
    }
}

/// Answers with these bytes, then closes the connection.
fn says(bytes: &'static [u8]) -> Upstream {
    Upstream::raw(move |mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(bytes);
    })
}

fn start(upstream: &Upstream, more: &str) -> Proxy {
    let good = Upstream::echo();
    Setup::new()
        .route(
            "bad",
            &upstream.url(),
            &format!("path_prefix = '/bad'\n{more}"),
        )
        .route("good", &good.url(), "path_prefix = '/good'")
        .start()
}

/// The refusal and its words. It says that the caller's connection ends, ends it, and the next
/// connection is served.
fn refused(proxy: &Proxy, status: u16, words: &str) {
    let mut client = proxy.client();
    let response = client.get("/bad/x");
    assert_eq!(response.status, status, "{}", response.text());
    assert!(response.text().contains(words), "{}", response.text());
    assert_eq!(response.header("connection"), Some("close"));
    assert!(client.is_closed());
    assert_eq!(proxy.client().get("/good/x").status, 200);
}

#[test]
fn upstream_without_a_listener_gets_502() {
    let closed = free_address();
    let proxy = Setup::new()
        .route("bad", &format!("http://{closed}"), "path_prefix = '/bad'")
        .start();
    let response = proxy.client().get("/bad/x");
    assert_eq!(
        (response.status, response.text().as_str()),
        (
            502,
            "bad gateway: upstream error: connection refused or unreachable"
        )
    );
    assert!(!response.text().contains(&closed.port().to_string()));
    proxy.settles(
        r#"ati_upstream_errors_total{kind="connect",route="bad"}"#,
        1.0,
    );
}

#[test]
fn upstream_closing_without_an_answer_gets_502() {
    refused(&start(&says(b""), ""), 502, "it closed the connection");
}

#[test]
fn upstream_resetting_the_connection_gets_502() {
    let upstream = Upstream::raw(|mut stream| {
        read_head(&mut stream);
        // Closing with unread bytes in the buffer sends a reset.
    });
    let proxy = start(&upstream, "");
    let response = proxy.client().send("POST", "/bad/x", &[], &[b'x'; 100_000]);
    assert_eq!(response.status, 502, "{}", response.text());
}

#[test]
fn upstream_that_never_answers_gets_504() {
    let upstream = Upstream::raw(|mut stream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let proxy = start(&upstream, "read_timeout_seconds = 1");
    refused(
        &proxy,
        504,
        "gateway timeout: upstream error: timed out while waiting for data",
    );
    proxy.settles(
        r#"ati_upstream_errors_total{kind="timeout",route="bad"}"#,
        1.0,
    );
}

#[test]
fn upstream_stalling_in_its_answer_cuts_the_answer_off() {
    let upstream = Upstream::raw(|mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf");
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let proxy = start(&upstream, "read_timeout_seconds = 1");
    assert!(proxy.client().try_get("/bad/x").is_none());
    assert_eq!(proxy.client().get("/good/x").status, 200);
}

/// As many bytes as take longer than two seconds, at 60 ms each.
const TRICKLED: &[u8; 40] = b"a body that comes slowly, byte for byte.";

#[test]
fn upstream_slower_in_all_than_the_read_timeout_is_waited_for() {
    let upstream = Upstream::raw(|mut stream| {
        read_head(&mut stream);
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 40\r\n\r\n";
        for byte in head.iter().chain(TRICKLED) {
            let _ = stream.write_all(&[*byte]);
            std::thread::sleep(Duration::from_millis(60));
        }
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let proxy = start(&upstream, "read_timeout_seconds = 2");
    let started = Instant::now();
    assert_eq!(proxy.client().get("/bad/x").body, TRICKLED);
    // Header and body each took longer than the timeout, which applies to a single read.
    let took = started.elapsed();
    assert!(took > Duration::from_millis(4600), "{took:?}");
}

#[test]
fn upstream_sending_less_than_promised_cuts_the_answer_off() {
    let proxy = start(
        &says(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf"),
        "",
    );
    assert!(proxy.client().try_get("/bad/x").is_none());
    assert_eq!(proxy.client().get("/good/x").status, 200);
}

#[test]
fn upstream_sending_more_than_promised_cannot_forge_an_answer() {
    let upstream = Upstream::fixed(
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged",
    );
    let proxy = start(&upstream, "");
    for _ in 0..5 {
        // The surplus bytes are never taken for the answer to another request.
        let mut client = proxy.client();
        assert_eq!(client.get("/bad/x").text(), "ok");
        assert_eq!(client.get("/good/x").status, 200);
        assert_eq!(client.get("/bad/x").text(), "ok");
    }
}

#[test]
fn upstream_not_speaking_http_gets_502() {
    refused(
        &start(&says(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), ""),
        502,
        "bad gateway: upstream error: ",
    );
    refused(
        &start(&says(b"HTTP/1.1 abc\r\n\r\n"), ""),
        502,
        "bad gateway: upstream error: ",
    );
    refused(
        &start(
            &says(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello"),
            "",
        ),
        502,
        "bad gateway: upstream error: ",
    );
}

#[test]
fn upstream_switching_protocols_unasked_gets_502() {
    let upstream = says(
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nraw bytes",
    );
    refused(&start(&upstream, ""), 502, "it did not answer in HTTP");
}

#[test]
fn upstream_failure_closes_the_callers_connection() {
    let proxy = start(&says(b""), "");
    let mut client = proxy.client();
    let response = client.get("/bad/x");
    assert_eq!(
        (response.status, response.header("connection")),
        (502, Some("close"))
    );
    assert!(client.is_closed());
}

#[test]
fn upstream_with_too_many_headers_gets_502() {
    let upstream = Upstream::raw(|mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        for n in 0..20_000 {
            if stream
                .write_all(format!("x-{n}: {}\r\n", "y".repeat(50)).as_bytes())
                .is_err()
            {
                return;
            }
        }
        let _ = stream.write_all(b"content-length: 0\r\n\r\n");
    });
    refused(&start(&upstream, ""), 502, "bad gateway: upstream error: ");
}

#[test]
fn upstream_answering_before_the_request_is_whole_is_passed_on() {
    let upstream =
        says(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno");
    let proxy = start(&upstream, "");
    let mut client = proxy.client();
    client.write(b"POST /bad/x HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\nstart");
    assert_eq!(client.read(false).status, 403);
    assert_eq!(proxy.client().get("/good/x").status, 200);
}
