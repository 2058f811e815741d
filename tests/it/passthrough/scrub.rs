//! A route's credentials in what its upstream sends: never in headers, and with `scrub` not in
//! bodies.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::{KEY, with_keys};
use crate::support::ati::{Proxy, Setup, tells_nothing};
use crate::support::dns::Nameserver;
use crate::support::http::{Client, Response};
use crate::support::tls::Authority;
use crate::support::upstream::{Received, Upstream};

const BEARER: &str = "auth_type = 'bearer'\nauth_key_name = 'api_key'";

/// Repeats headers and target of the request in its own headers, and whole in its body. The path
/// says how the body comes.
fn repeating() -> Upstream {
    Upstream::answering(|received, stream| {
        let sent = |name: &str| received.header(name).unwrap_or("-").to_owned();
        let head = format!(
            "HTTP/1.1 200 OK\r\nX-Auth: {}\r\nX-Token: {}\r\nX-One: {}\r\nLocation: {}\r\n\
             Set-Cookie: a={}; Path=/\r\nSet-Cookie: b=\"1\"; Path=/x\r\n",
            sent("authorization"),
            sent("x-token"),
            sent("x-one"),
            received.target,
            sent("authorization"),
        );
        let body = format!("{:?} {}", received.headers, received.target);
        let wire = match received.target.split('?').next().unwrap_or_default() {
            "/chunks" => {
                let chunk = |byte: u8| format!("1\r\n{}\r\n", char::from(byte));
                let chunks: String = body.bytes().map(chunk).collect();
                format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
            }
            "/close" => format!("{head}Connection: close\r\n\r\n{body}"),
            "/empty" => format!("{head}Content-Length: 0\r\n\r\n"),
            "/no-content" => format!("{}\r\n", head.replace("200 OK", "204 No Content")),
            "/encoded" => format!(
                "{head}Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ),
            "/partial" => format!(
                "{}Content-Range: bytes 0-9/99\r\nContent-Length: {}\r\n\r\n{body}",
                head.replace("200 OK", "206 Partial Content"),
                body.len()
            ),
            "/reason" => format!(
                "{}Content-Length: 0\r\n\r\n",
                head.replace("200 OK", &format!("200 {}", sent("authorization")))
            ),
            _ => {
                let body = if received.method == "HEAD" { "" } else { &body };
                let length = body.len().max(5);
                format!("{head}Accept-Ranges: bytes\r\nContent-Length: {length}\r\n\r\n{body}")
            }
        };
        let closes = received.target.starts_with("/close");
        stream.write_all(wire.as_bytes()).is_ok() && !closes
    })
}

fn routes(setup: Setup, url: &str) -> Setup {
    let route = |setup: Setup, name: &str, more: &str| {
        let plain = format!("path_prefix = '/{name}'\n{more}");
        let scrubbed = format!("path_prefix = '/scrub-{name}'\nscrub = true\n{more}");
        setup
            .route(name, url, &plain)
            .route(&format!("scrub-{name}"), url, &scrubbed)
    };
    let setup = route(setup, "bearer", BEARER);
    let setup = route(
        setup,
        "header",
        "auth_type = 'header'\nauth_key_name = 'api_key'\nauth_header_name = 'X-Token'\n\
         auth_value_prefix = 'Token '",
    );
    let query = "auth_type = 'query'\nauth_key_name = 'api_key'";
    let setup = route(setup, "query", query);
    let setup = route(
        setup,
        "basic",
        "auth_type = 'basic'\nauth_key_name = 'basic'",
    );
    let extra = "extra_headers = { X-One = 'v ${api_key}' }";
    let setup = route(setup, "extra", extra);
    route(setup, "none", "")
}

fn headers_tell_nothing(path: &str, response: &Response) {
    let headers = format!("{:?}", response.headers);
    tells_nothing(&format!("the header of {path}"), &headers);
}

#[test]
fn injected_credential_is_taken_out_of_response_headers_of_every_route() {
    let upstream = repeating();
    let proxy = routes(with_keys(), &upstream.url()).start();
    for kind in ["bearer", "header", "query", "basic", "extra"] {
        for scrub in ["", "scrub-"] {
            let path = format!("/{scrub}{kind}/x");
            let response = proxy.client().get(&path);
            assert_eq!(response.status, 200, "{path}");
            headers_tell_nothing(&path, &response);
            assert!(
                format!("{:?}", response.headers).contains("[REDACTED]"),
                "{path}"
            );
            // What doesn't repeat it stays byte for byte.
            let cookies: Vec<&str> = response
                .headers
                .iter()
                .filter(|(name, _)| name == "set-cookie")
                .map(|(_, value)| value.as_str())
                .collect();
            assert_eq!(cookies[1], "b=\"1\"; Path=/x", "{path}");
        }
    }
    let auth = proxy.client().get("/bearer/x");
    assert_eq!(auth.header("x-auth"), Some("Bearer [REDACTED]"));
    let cookie = auth.header("set-cookie");
    assert_eq!(cookie, Some("a=Bearer [REDACTED]; Path=/"));
    let location = proxy.client().get("/query/x?y=1");
    let location = location.header("location").map(str::to_owned);
    assert_eq!(location.as_deref(), Some("/x?y=1&api_key=[REDACTED]"));
    // A caller's own value is no secret of the route.
    let own = [("x-one", "mine"), ("X-Token", "theirs")];
    let own = proxy.client().send("GET", "/none/x", &own, b"");
    assert_eq!(
        (own.header("x-one"), own.header("x-token")),
        (Some("mine"), Some("theirs"))
    );
    let mut stream = TcpStream::connect(proxy.edge).unwrap();
    let request = b"GET /bearer/reason HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut raw = Vec::new();
    stream.read_to_end(&mut raw).unwrap();
    assert!(raw.starts_with(b"HTTP/1.1 200 "));
    tells_nothing("a reason phrase", &String::from_utf8_lossy(&raw));
}

#[test]
fn body_of_a_route_stays_byte_for_byte_without_scrub_and_loses_the_credential_with_it() {
    let upstream = repeating();
    let proxy = routes(with_keys(), &upstream.url()).start();
    for kind in ["bearer", "header", "query", "basic", "extra"] {
        for form in ["x", "chunks", "close"] {
            let plain = proxy.client().get(&format!("/{kind}/{form}"));
            let received = upstream.last();
            let sent = format!("{:?} {}", received.headers, received.target);
            assert_eq!(plain.text(), sent, "{kind} {form}");
            let path = format!("/scrub-{kind}/{form}");
            let scrubbed = proxy.client().get(&path);
            assert_eq!(scrubbed.status, 200, "{path}");
            tells_nothing(&path, &scrubbed.text());
            assert_eq!(scrubbed.header("content-length"), None, "{path}");
            let received = upstream.last();
            assert_eq!(received.header("accept-encoding"), Some("identity"));
            // All but the credential is there, up to the last byte.
            let whole = scrubbed.text();
            assert!(whole.starts_with("[(\"host\", "), "{whole}");
            assert!(whole.contains("[REDACTED]"), "{whole}");
            if kind != "query" {
                assert!(whole.ends_with(&format!("] /{form}")), "{whole}");
            }
        }
    }
    // Nothing to look for: as without `scrub`.
    let encoding = [("Accept-Encoding", "br")];
    let none = proxy.client().send("GET", "/scrub-none/x", &encoding, b"");
    assert!(none.header("content-length").is_some());
    assert_eq!(upstream.last().header("accept-encoding"), Some("br"));
}

#[test]
fn scrubbed_route_refuses_a_body_that_it_cannot_search() {
    let upstream = repeating();
    let proxy = routes(with_keys(), &upstream.url()).start();
    for form in ["encoded", "partial"] {
        let plain = proxy.client().get(&format!("/bearer/{form}"));
        assert!(plain.text().contains(KEY), "{form}");
        let refused = proxy.client().get(&format!("/scrub-bearer/{form}"));
        assert_eq!(refused.status, 502, "{form}");
        let text = refused.text();
        assert!(text.contains("can't be searched for credentials"), "{text}");
    }
    let errors = r#"ati_upstream_errors_total{kind="unsearchable",route="scrub-bearer"}"#;
    proxy.settles(errors, 2.0);
    // A caller could put a credential together out of ranges: it gets the whole body.
    let ranges = [("Range", "bytes=0-9"), ("If-Range", "\"e\"")];
    let whole = proxy.client().send("GET", "/scrub-bearer/x", &ranges, b"");
    assert_eq!((whole.status, whole.header("accept-ranges")), (200, None));
    let got = upstream.last();
    assert_eq!((got.header("range"), got.header("if-range")), (None, None));
}

#[test]
fn scrubbed_answers_without_a_body_keep_their_connection() {
    let upstream = repeating();
    let proxy = routes(with_keys(), &upstream.url()).start();
    let mut client = proxy.client();
    for _ in 0..2 {
        let head = client.send("HEAD", "/scrub-bearer/x", &[], b"");
        assert_eq!((head.status, head.header("content-length")), (200, None));
        let nothing = client.get("/scrub-bearer/no-content");
        assert_eq!((nothing.status, nothing.body.len()), (204, 0));
        let empty = client.get("/scrub-bearer/empty");
        assert_eq!(
            (empty.status, empty.header("content-length")),
            (200, Some("0"))
        );
        let chunks = client.get("/scrub-bearer/chunks");
        assert!(chunks.text().ends_with("] /chunks"), "{}", chunks.text());
    }
}

#[test]
fn size_limit_holds_on_a_scrubbed_route() {
    let upstream = Upstream::answering(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunk = format!("3e8\r\n{}\r\n", "x".repeat(1000));
        stream.write_all(head.as_bytes()).is_ok()
            && (0..50).all(|_| stream.write_all(chunk.as_bytes()).is_ok())
            && stream.write_all(b"0\r\n\r\n").is_ok()
    });
    let lines = format!("path_prefix = '/svc'\nscrub = true\nmax_response_bytes = 20000\n{BEARER}");
    let proxy = with_keys().route("svc", &upstream.url(), &lines).start();
    let answer = proxy.client().try_get("/svc/x");
    assert!(answer.is_none_or(|answer| answer.status == 502));
    proxy.settles(
        r#"ati_upstream_errors_total{kind="too_large",route="svc"}"#,
        1.0,
    );
}

#[test]
fn events_of_a_scrubbed_route_arrive_one_by_one() {
    let upstream = Upstream::answering(|received, stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        let event = format!("data: {:?}\n\n", received.headers);
        let _ = stream.write_all((head.to_owned() + &event).as_bytes());
        // Nothing more comes until the caller leaves.
        let mut rest = [0; 1];
        let _ = stream.read(&mut rest);
        false
    });
    let lines = format!("path_prefix = '/svc'\nscrub = true\n{BEARER}");
    let proxy = with_keys().route("svc", &upstream.url(), &lines).start();
    let mut client = proxy.client();
    client.write(b"GET /svc/x HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut got = Vec::new();
    while !String::from_utf8_lossy(&got).contains("\n\n\r\n") {
        got.extend(client.read_some());
    }
    let text = String::from_utf8_lossy(&got);
    assert!(
        text.contains("data: ") && text.contains("[REDACTED]"),
        "{text}"
    );
    tells_nothing("an event", &text);
}

fn http2_proxy(authority: &Authority, lines: &str) -> (Proxy, Nameserver) {
    let nameserver = Nameserver::answering(&["127.0.0.1"]);
    let port = authority.serve("up.test", true).port();
    let conf = format!(
        "[egress]\nca_file = \"ca.pem\"\nnameservers = [\"{}\"]\n",
        nameserver.address
    );
    let lines = format!("path_prefix = '/svc'\n{BEARER}\n{lines}");
    let setup = with_keys().file("ca.pem", authority.pem()).conf(&conf);
    let url = format!("https://up.test:{port}");
    (setup.route("svc", &url, &lines).start(), nameserver)
}

#[test]
fn credential_is_taken_out_of_answers_over_http2() {
    let authority = Authority::new();
    let (plain, _names) = http2_proxy(&authority, "");
    let (scrubbed, _others) = http2_proxy(&authority, "scrub = true");
    for form in ["x", "pieces", "trailers"] {
        let path = format!("/svc/{form}");
        let as_it_is = plain.client().get(&path);
        assert_eq!(as_it_is.status, 200, "{path}: {}", as_it_is.text());
        headers_tell_nothing(&path, &as_it_is);
        assert!(
            as_it_is.text().ends_with(&format!("Bearer {KEY}")),
            "{path}"
        );
        let clean = scrubbed.client().get(&path);
        headers_tell_nothing(&path, &clean);
        let text = clean.text();
        assert!(text.starts_with(&format!("h2 /{form} ")), "{text}");
        assert!(text.ends_with("Bearer [REDACTED]"), "{text}");
    }
}

#[test]
fn end_of_a_body_that_begins_like_the_credential_is_not_lost() {
    let begin = &KEY[..KEY.len() - 1];
    let body = format!("text {begin}");
    let upstream = Upstream::answering(move |received: &Received, stream| {
        let wire = match received.target.as_str() {
            "/chunks" => format!(
                "Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
                body.len()
            ),
            _ => format!("Content-Length: {}\r\n\r\n{body}", body.len()),
        };
        stream
            .write_all(format!("HTTP/1.1 200 OK\r\n{wire}").as_bytes())
            .is_ok()
    });
    let lines = format!("path_prefix = '/svc'\nscrub = true\n{BEARER}");
    let proxy = with_keys().route("svc", &upstream.url(), &lines).start();
    let mut client: Client = proxy.client();
    for form in ["chunks", "x", "chunks"] {
        let answer = client.get(&format!("/svc/{form}"));
        assert_eq!(answer.text(), format!("text {begin}"), "{form}");
    }
}

#[test]
fn websocket_loses_the_credential_in_its_handshake_and_keeps_its_frames() {
    let upstream = Upstream::answering(|received, stream| {
        let sent = received.header("authorization").unwrap_or("-").to_owned();
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             X-Auth: {sent}\r\n\r\n"
        );
        // An unmasked text frame of less than 126 bytes.
        let frame = [&[0x81, sent.len() as u8], sent.as_bytes()].concat();
        let _ = stream.write_all(&[head.as_bytes(), &frame].concat());
        false
    });
    let lines = format!("path_prefix = '/ws'\nforward_websockets = true\nscrub = true\n{BEARER}");
    let proxy = with_keys().route("ws", &upstream.url(), &lines).start();
    let mut stream = TcpStream::connect(proxy.edge).unwrap();
    let request = "GET /ws/x HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut raw = Vec::new();
    stream.read_to_end(&mut raw).unwrap();
    let text = String::from_utf8_lossy(&raw);
    let (head, frames) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("Bearer [REDACTED]"), "{head}");
    tells_nothing("a handshake", head);
    assert!(frames.ends_with(&format!("Bearer {KEY}")), "{frames}");
}
