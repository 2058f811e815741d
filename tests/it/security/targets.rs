//! Request targets that are a whole URL, and headers that say less than they seem to.

use std::net::TcpListener;

use crate::support::ati::{Proxy, Setup};
use crate::support::http::{Client, Response};
use crate::support::tokens::sign;
use crate::support::upstream::Upstream;

use super::{SIGNATURE, signed_setup};

fn ask(proxy: &Proxy, request: &str) -> Response {
    let mut client = proxy.client();
    client.write(request.as_bytes());
    client.read(false)
}

fn routes(setup: Setup, upstream: &Upstream) -> Setup {
    setup
        .route(
            "plain",
            &upstream.url(),
            "path_prefix = '/plain'\ndeny_paths = ['/secret']",
        )
        .route(
            "hosted",
            &format!("{}/hosted", upstream.url()),
            "host_match = 'api.host'\npath_prefix = '/'",
        )
}

#[test]
fn url_as_target_is_routed_by_its_host_and_path() {
    let upstream = Upstream::echo();
    let proxy = routes(Setup::new(), &upstream).start();
    for (target, host, expected) in [
        ("http://any/plain/x?q=1", Some("any"), "/x?q=1"),
        ("http://api.host/x?q=1", Some("api.host"), "/hosted/x?q=1"),
        ("HTTP://api.host:80/x", Some("api.host:80"), "/hosted/x"),
        ("https://api.host/x", Some("api.host"), "/hosted/x"),
        ("http://api.host", Some("api.host"), "/hosted/"),
        ("http://api.host?q=1", Some("api.host"), "/hosted/?q=1"),
        ("http://api.host/x", None, "/hosted/x"),
        // The target's host counts, whatever the header says.
        ("http://api.host/x", Some("other.host"), "/hosted/x"),
        ("http://other.host/plain/x", Some("api.host"), "/x"),
    ] {
        let host = host.map_or_else(String::new, |host| format!("Host: {host}\r\n"));
        let answer = ask(&proxy, &format!("GET {target} HTTP/1.1\r\n{host}\r\n"));
        assert_eq!(answer.status, 200, "{target} {host}: {}", answer.text());
        // The upstream gets a path, and its own host.
        let received = upstream.last();
        assert_eq!(received.target, expected, "{target} {host}");
        assert!(
            upstream.url().ends_with(received.header("host").unwrap()),
            "{target}"
        );
    }
    let health = ask(
        &proxy,
        "GET http://any/health HTTP/1.1\r\nHost: any\r\n\r\n",
    );
    assert_eq!(health.status, 200);
    let line = proxy.log.wait_for("request");
    assert_eq!(line["path"], "/plain/x", "the log has the path");
}

#[test]
fn url_as_target_keeps_the_body_and_the_next_request_apart() {
    let upstream = Upstream::echo();
    let proxy = routes(Setup::new(), &upstream).start();
    let mut client = proxy.client();
    for _ in 0..3 {
        let body = "Host: in the body";
        let request = format!(
            "POST http://api.host/x HTTP/1.1\r\nHost: other\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        client.write(request.as_bytes());
        assert_eq!(client.read(false).status, 200);
        assert_eq!(upstream.last().body, body.as_bytes());
    }
    assert_eq!(client.get("/plain/y").status, 200);
    assert_eq!(upstream.last().target, "/y");
}

#[test]
fn url_as_target_is_denied_and_signed_by_its_path() {
    let upstream = Upstream::echo();
    let proxy = routes(signed_setup("enforce"), &upstream).start();
    let get = |target: &str, signature: &str| {
        ask(
            &proxy,
            &format!("GET {target} HTTP/1.1\r\nHost: any\r\n{SIGNATURE}: {signature}\r\n\r\n"),
        )
    };
    let answer = get("http://any/plain/x?q", &sign("GET", "/plain/x"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let whole = get("http://any/plain/x", &sign("GET", "http://any/plain/x"));
    assert_eq!(
        (whole.status, whole.text().as_str()),
        (403, "hmac_mismatch")
    );
    let denied = get("http://any/plain/secret", &sign("GET", "/plain/secret"));
    assert_eq!(
        (denied.status, denied.text().as_str()),
        (403, "forbidden: path denied by policy")
    );
    let dots = get(
        "http://any/plain/../secret",
        &sign("GET", "/plain/../secret"),
    );
    assert_eq!(dots.status, 400);
    assert_eq!(upstream.received().len(), 1);
}

#[test]
fn target_that_is_neither_path_nor_url_gets_400() {
    let upstream = Upstream::echo();
    let proxy = routes(Setup::new(), &upstream).start();
    for target in [
        "plain/x",
        "api.host:80",
        "ftp://api.host/x",
        "http:/plain/x",
        "http:///plain/x",
        "http://user@api.host/x",
        "http://user:password@api.host/x",
        "*",
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: api.host\r\n\r\n");
        let mut client = proxy.client();
        client.write(request.as_bytes());
        assert_eq!(client.read(false).status, 400, "{target}");
        assert!(client.is_closed(), "{target}");
    }
    let two = "GET http://api.host/x HTTP/1.1\r\nHost: api.host\r\nHost: b\r\n\r\n";
    assert_eq!(ask(&proxy, two).status, 400);
    assert!(upstream.received().is_empty());
}

#[test]
fn url_as_target_opens_a_websocket() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut socket = tungstenite::accept(stream).unwrap();
        let message = socket.read().unwrap();
        socket.send(message).unwrap();
    });
    let proxy = Setup::new()
        .route("ws", &url, "path_prefix = '/ws'\nforward_websockets = true")
        .start();
    let mut client = Client::connect(proxy.edge);
    client.write(
        b"GET http://any/ws/x HTTP/1.1\r\nHost: other\r\nConnection: Upgrade\r\n\
          Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
          Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    assert_eq!(client.read(false).status, 101);
    // A masked text frame, whose mask is zero.
    client.write(b"\x81\x82\0\0\0\0hi");
    assert_eq!(client.read_some(), b"\x81\x02hi");
    served.join().unwrap();
}

#[test]
fn connection_header_that_names_host_gets_400() {
    let upstream = Upstream::echo();
    let proxy = routes(Setup::new(), &upstream).start();
    for path in ["/plain/x", "/health", "/nothing"] {
        for value in ["host", "close, Host", "x-one,HOST ,x-two"] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: {value}\r\n\r\n");
            let answer = ask(&proxy, &request);
            assert_eq!(
                (answer.status, answer.text().as_str()),
                (400, "bad request: the Connection header names Host"),
                "{path} {value}"
            );
        }
    }
    assert!(upstream.received().is_empty());
    let other = "GET /plain/x HTTP/1.1\r\nHost: x\r\nX-Host: y\r\nConnection: x-host\r\n\r\n";
    assert_eq!(ask(&proxy, other).status, 200);
    assert_eq!(upstream.last().header("x-host"), None);
}
