//! Requests and answers that HTTP/1.1 doesn't allow, and that a lax parser would let pass.

use std::time::{Duration, Instant};

use crate::support::ati::{Proxy, Setup};
use crate::support::upstream::Upstream;

fn routed(upstream: &Upstream) -> Proxy {
    Setup::new()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start()
}

/// The status line that raw bytes are answered with.
fn answer(proxy: &Proxy, request: &str) -> String {
    let mut client = proxy.client();
    client.write(request.as_bytes());
    let answer = client.read_until_closed();
    let line = answer.split(|byte| *byte == b'\r').next().unwrap();
    String::from_utf8_lossy(line).into_owned()
}

#[test]
fn chunk_without_a_size_is_refused_wherever_it_stands() {
    let upstream = Upstream::echo();
    let proxy = routed(&upstream);
    let header = "POST /svc/x HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n";
    for body in ["\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n\r\n0\r\n\r\n"] {
        let whole = answer(&proxy, &format!("{header}{body}"));
        assert_eq!(whole, "HTTP/1.1 400 Bad Request", "{body:?}");
    }
    // In a read of its own.
    let mut client = proxy.client();
    client.write(format!("{header}5\r\nhello\r\n").as_bytes());
    proxy.settles(r#"ati_in_flight{route="svc"}"#, 1.0);
    client.write(b"\r\nGET /svc/smuggled HTTP/1.1\r\nhost: h\r\n\r\n");
    client.read_until_closed();
    let seen = upstream.received();
    assert!(
        seen.iter().all(|request| request.target != "/smuggled"),
        "{seen:?}"
    );
}

#[test]
fn chunked_requests_one_after_another_keep_the_connection() {
    let upstream = Upstream::echo();
    let proxy = routed(&upstream);
    let mut client = proxy.client();
    for _ in 0..3 {
        client.write(b"POST /svc/x HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n");
        client.write(b"3;ext=1\r\nabc\r\n0\r\ntrailer: 1\r\n\r\n");
        assert_eq!(client.read(false).json()["length"], 3);
    }
}

#[test]
fn request_line_with_blanks_and_missing_or_second_host_are_refused() {
    let upstream = Upstream::echo();
    let proxy = routed(&upstream);
    for request in [
        "GET /svc/a b HTTP/1.1\r\nhost: h\r\n\r\n",
        "GET /svc/a HTTP/1.1\r\n\r\n",
        "GET /svc/a HTTP/1.1\r\nhost: h\r\nhost: other\r\n\r\n",
    ] {
        assert_eq!(
            answer(&proxy, request),
            "HTTP/1.1 400 Bad Request",
            "{request}"
        );
    }
    assert!(upstream.received().is_empty());
    assert_eq!(
        answer(&proxy, "GET /svc/a HTTP/1.0\r\n\r\n"),
        "HTTP/1.1 200 OK"
    );
}

#[test]
fn header_without_end_is_cut_off_at_64_kib() {
    let upstream = Upstream::echo();
    let proxy = routed(&upstream);
    let mut client = proxy.client();
    client.write(b"GET /svc/x HTTP/1.1\r\nhost: h\r\n");
    let line = format!("x-filler: {}\r\n", "x".repeat(1000));
    let mut sent = 0;
    while sent < 1 << 20 && client.try_write(line.as_bytes()).is_ok() {
        sent += line.len();
    }
    client.read_until_closed();
    assert!(upstream.received().is_empty());
    proxy.settles(r#"ati_refusals_total{reason="header_too_large"}"#, 1.0);
    let record = proxy.log.wait_for("request");
    assert_eq!(
        (&record["status"], &record["refused"]),
        (&431.into(), &"header_too_large".into())
    );
    // A large one that is allowed.
    let allowed = "x".repeat(60 << 10);
    let response = proxy
        .client()
        .send("GET", "/svc/x", &[("x-large", &allowed)], b"");
    assert_eq!(response.status, 200);
}

#[test]
fn request_that_cannot_be_parsed_has_an_access_line_and_a_metric() {
    let proxy = Setup::new().start();
    assert_eq!(
        answer(&proxy, "\x01\x02 nonsense\r\n\r\n"),
        "HTTP/1.1 400 Bad Request"
    );
    let record = proxy.log.wait_for("request");
    assert_eq!(record["refused"], "malformed_request");
    assert_eq!(record["status"], 400);
    assert!(record["peer"].is_string(), "{record}");
    proxy.settles(r#"ati_refusals_total{reason="malformed_request"}"#, 1.0);
    proxy.settles(
        r#"ati_requests_total{method="other",route="unmatched",status="4xx"}"#,
        1.0,
    );
}

#[test]
fn close_in_a_second_connection_header_closes_the_connection() {
    let upstream = Upstream::echo();
    let proxy = routed(&upstream);
    let mut client = proxy.client();
    client.write(b"GET /svc/x HTTP/1.1\r\nhost: h\r\nconnection: x\r\nconnection: close\r\n\r\n");
    assert_eq!(client.read(false).status, 200);
    assert!(client.is_closed());
}

#[test]
fn two_signature_headers_are_refused() {
    let proxy = Setup::new()
        .credentials(&serde_json::json!({
            "sandbox_signing_shared_secret": crate::support::tokens::SIGNING,
        }))
        .arg("--sig-verify-mode")
        .arg("enforce")
        .start();
    let good = crate::support::tokens::sign("GET", "/tools");
    let header = ("x-sandbox-signature", good.as_str());
    let once = proxy.client().send("GET", "/tools", &[header], b"");
    assert_eq!(once.status, 200);
    let twice = proxy.client().send("GET", "/tools", &[header, header], b"");
    assert_eq!(
        (twice.status, twice.text().as_str()),
        (403, "malformed_signature")
    );
}

#[test]
fn answer_with_two_lengths_is_502() {
    for lengths in [
        "content-length: 5\r\ncontent-length: 5",
        "content-length: 5, 5",
    ] {
        let upstream = Upstream::fixed(format!("HTTP/1.1 200 OK\r\n{lengths}\r\n\r\nhello"));
        let proxy = routed(&upstream);
        assert_eq!(proxy.client().get("/svc/x").status, 502, "{lengths}");
    }
    let both = "content-length: 5\r\ntransfer-encoding: chunked";
    let chunked = format!("HTTP/1.1 200 OK\r\n{both}\r\n\r\n2\r\nhi\r\n0\r\n\r\n");
    let response = routed(&Upstream::fixed(chunked)).client().get("/svc/x");
    assert_eq!(response.text(), "hi");
    assert_eq!(response.header("content-length"), None);
    let empty = Upstream::fixed("HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n");
    let response = routed(&empty).client().get("/svc/x");
    assert_eq!(
        (response.status, response.header("content-length")),
        (204, None)
    );
}

#[test]
fn idle_connection_is_closed_after_keepalive_seconds() {
    let proxy = Setup::new()
        .conf("[limits]\nkeepalive_seconds = 1\nheader_seconds = 60\n")
        .start();
    let mut client = proxy.client();
    assert_eq!(client.get("/health").status, 200);
    let started = Instant::now();
    assert!(client.is_closed());
    // With both limits added it would be over a minute.
    assert!(started.elapsed() < Duration::from_secs(30));
}
