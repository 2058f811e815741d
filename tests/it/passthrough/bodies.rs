//! Bodies of requests and answers: framing, streaming, caps.

use std::io::Write;
use std::sync::{Mutex, mpsc};

use crate::support::ati::Setup;
use crate::support::eventually;
use crate::support::http::Client;
use crate::support::upstream::Upstream;

#[test]
fn http_1_0_caller_gets_an_unchunked_answer() {
    let upstream = Upstream::fixed(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    );
    let proxy = Setup::new()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    let mut client = proxy.client();
    client.write(b"GET /svc/x HTTP/1.0\r\nconnection: keep-alive\r\n\r\n");
    let response = client.read(false);
    assert_eq!(
        (
            response.header("transfer-encoding"),
            response.text().as_str()
        ),
        (None, "abc")
    );
}

#[test]
fn request_bodies_of_every_method_and_framing_arrive() {
    let upstream = Upstream::echo();
    let proxy = Setup::new()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    let mut client = proxy.client();
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        let response = client.send(method, "/svc/x", &[], b"hello body");
        assert_eq!(response.status, 200, "{method}");
        assert_eq!(upstream.last().body, b"hello body", "{method}");
        assert_eq!(upstream.last().header("content-length"), Some("10"));
    }
    client.write(b"POST /svc/x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n");
    assert_eq!(client.read(false).json()["length"], 11);
    assert_eq!(upstream.last().body, b"hello world");
    let head = client.send("HEAD", "/svc/x", &[], b"");
    assert!(head.header("content-length").is_some());
    let big = vec![b'x'; 5 << 20];
    assert_eq!(
        client.send("POST", "/svc/x", &[], &big).json()["length"],
        5 << 20
    );
    // All requests use at most one connection per worker.
    let peers: std::collections::BTreeSet<_> = upstream.received().iter().map(|r| r.peer).collect();
    assert!(peers.len() <= 2, "{}", peers.len());
}

#[test]
fn answers_arrive_unchanged_without_hop_by_hop_headers() {
    let answers = [
        ("204", "HTTP/1.1 204 No Content\r\nx-a: 1\r\n\r\n"),
        ("304", "HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\n\r\n"),
        (
            "302",
            "HTTP/1.1 302 Found\r\nlocation: http://other.example/\r\ncontent-length: 2\r\n\r\nno",
        ),
        (
            "200",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
        (
            "200",
            "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\nkeep-alive: x\r\nproxy-authenticate: x\r\n\r\n\x1f\x7f\x08\x01",
        ),
        (
            "500",
            "HTTP/1.1 500 Oh\r\ncontent-length: 3\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\r\nbad",
        ),
    ];
    for (status, answer) in answers {
        let upstream = Upstream::fixed(answer);
        let proxy = Setup::new()
            .route("svc", &upstream.url(), "path_prefix = '/svc'")
            .start();
        let mut client = proxy.client();
        for _ in 0..2 {
            let response = client.get("/svc/x");
            assert_eq!(response.status.to_string(), status);
            let body = answer.split_once("\r\n\r\n").unwrap().1;
            let expected = if answer.contains("chunked") {
                "abc"
            } else {
                body
            };
            assert_eq!(response.text(), expected);
            assert_eq!(response.header("keep-alive"), None);
            assert_eq!(response.header("proxy-authenticate"), None);
            let cookies = response
                .headers
                .iter()
                .filter(|(name, _)| name == "set-cookie")
                .count();
            assert_eq!(cookies, answer.matches("set-cookie").count());
        }
    }
}

#[test]
fn trailers_do_not_reach_the_next_request() {
    let upstream = Upstream::fixed(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n3\r\nabc\r\n0\r\nx-sum: 1\r\n\r\n",
    );
    let proxy = Setup::new()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    let mut client = proxy.client();
    for _ in 0..3 {
        assert_eq!(client.get("/svc/x").text(), "abc");
    }
    // The trailers of a caller, too.
    client.write(
        b"POST /svc/x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nauthorization: smuggled\r\n\r\n",
    );
    assert_eq!(client.read(false).text(), "abc");
    assert_eq!(client.get("/svc/x").text(), "abc");
    assert!(
        upstream
            .received()
            .iter()
            .all(|request| request.header("authorization").is_none())
    );
}

#[test]
fn answer_of_known_length_is_streamed() {
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let gone = std::sync::Mutex::new(gone);
    let upstream = Upstream::answering(move |_, stream| {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc")
            .unwrap();
        // The rest waits until the first half has arrived.
        gone.lock().unwrap().recv().unwrap();
        stream.write_all(b"def").is_ok()
    });
    let proxy = Setup::new()
        .route("api", &upstream.url(), "path_prefix = \"/api\"")
        .start();
    let mut client = proxy.client();
    client.write(b"GET /api/x HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut seen = Vec::new();
    while !seen.ends_with(b"abc") {
        seen.extend(client.read_some());
    }
    go.send(()).unwrap();
    while !seen.ends_with(b"def") {
        seen.extend(client.read_some());
    }
}

#[test]
fn answer_whose_status_has_no_body_is_passed_on_without_transfer_encoding() {
    let ok = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    for (status, behind) in [
        ("204 No Content", ""),
        ("304 Not Modified", ""),
        ("103 Hints", ok),
    ] {
        let upstream = Upstream::fixed(format!(
            "HTTP/1.1 {status}\r\ntransfer-encoding: chunked\r\nx-own: 1\r\n\r\n{behind}"
        ));
        // Routes with scrub are Pingora's.
        let proxy = Setup::new()
            .route("short", &upstream.url(), "path_prefix = '/short'")
            .route(
                "long",
                &upstream.url(),
                "path_prefix = '/long'\nscrub = true",
            )
            .start();
        for path in ["/short/x", "/long/x"] {
            let mut client = proxy.client();
            let answer = client.get(path);
            assert!(status.starts_with(&answer.status.to_string()), "{path}");
            assert_eq!(
                (answer.header("transfer-encoding"), answer.header("x-own")),
                (None, Some("1")),
                "{path} {status}"
            );
            if !behind.is_empty() {
                assert_eq!(client.read(false).text(), "ok", "{path}");
            }
        }
    }
}

#[test]
fn informational_answers_are_passed_on() {
    let upstream = Upstream::fixed(
        "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    );
    let proxy = Setup::new()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    let mut client = proxy.client();
    let first = client.get("/svc/x");
    assert_eq!((first.status, first.header("link")), (103, Some("</a>")));
    assert_eq!(client.read(false).text(), "ok");
    assert_eq!(client.get("/svc/x").status, 103);
}

#[test]
fn bodies_over_the_caps_are_refused_or_cut_off() {
    let upstream = Upstream::echo();
    let big = Upstream::fixed(
        [
            b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n".as_slice(),
            &[b'x'; 5000],
        ]
        .concat(),
    );
    let caps = "max_request_bytes = 1000\nmax_response_bytes = 2000";
    let proxy = Setup::new()
        .route(
            "svc",
            &upstream.url(),
            &format!("path_prefix = '/svc'\n{caps}"),
        )
        .route("big", &big.url(), &format!("path_prefix = '/big'\n{caps}"))
        .route(
            "free",
            &big.url(),
            "path_prefix = '/free'\nmax_response_bytes = 0",
        )
        .start();
    let response = proxy.client().send("POST", "/svc/x", &[], &[b'x'; 1001]);
    assert_eq!(
        (response.status, response.text().as_str()),
        (413, "payload too large: request exceeds max_request_bytes")
    );
    assert!(upstream.received().is_empty());
    assert_eq!(
        proxy
            .client()
            .send("POST", "/svc/x", &[], &[b'x'; 1000])
            .status,
        200
    );
    let mut client = proxy.client();
    client.write(b"POST /svc/x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    client.write(
        format!(
            "1f4\r\n{0}\r\n258\r\n{1}\r\n0\r\n\r\n",
            "x".repeat(500),
            "x".repeat(600)
        )
        .as_bytes(),
    );
    assert_eq!(client.read(false).status, 413);

    // The answer is cut off, or refused if none of it was sent yet.
    if let Some(response) = proxy.client().try_get("/big/x") {
        let expected = (
            502,
            "bad gateway: upstream error: its answer exceeds max_response_bytes",
        );
        assert_eq!((response.status, response.text().as_str()), expected);
    }
    proxy.settles(
        r#"ati_upstream_errors_total{kind="too_large",route="big"}"#,
        1.0,
    );
    assert_eq!(proxy.client().get("/free/x").body.len(), 5000);
    assert_eq!(
        proxy.client().get("/free/x").header("content-length"),
        Some("5000")
    );
}

#[test]
fn server_sent_events_are_streamed() {
    let (send, events) = mpsc::channel::<&str>();
    let events = Mutex::new(events);
    let upstream = Upstream::answering(move |_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
        while let Ok(event) = events.lock().unwrap().recv() {
            stream
                .write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())
                .unwrap();
        }
        false
    });
    let proxy = Setup::new()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    let mut client = proxy.client();
    client.write(b"GET /svc/events HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut seen = String::new();
    for event in ["data: one\n\n", "data: two\n\n"] {
        send.send(event).unwrap();
        // The next event is sent only once this one has arrived.
        while !seen.contains(event) {
            seen += &String::from_utf8(client.read_some()).unwrap();
        }
    }
}

#[test]
fn caller_or_upstream_leaving_releases_the_other_connection() {
    let hang = Upstream::answering(|_, stream| {
        // Waits until the proxy closes the connection.
        let _ = std::io::Read::read(stream, &mut [0; 1]);
        false
    });
    let quit = Upstream::answering(|_, stream| {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
            .unwrap();
        false
    });
    let proxy = Setup::new()
        .route("hang", &hang.url(), "path_prefix = '/hang'")
        .route("quit", &quit.url(), "path_prefix = '/quit'")
        .start();
    let mut clients: Vec<Client> = (0..20).map(|_| proxy.client()).collect();
    for client in &mut clients {
        client.write(b"GET /hang/x HTTP/1.1\r\nhost: x\r\n\r\n");
    }
    eventually("all upstream connections", || {
        (hang.open_connections() == 20).then_some(())
    });
    drop(clients);
    hang.wait_until_left();
    proxy.settles(r#"ati_in_flight{route="hang"}"#, 0.0);

    assert!(proxy.client().try_get("/quit/x").is_none());
    assert_eq!(proxy.client().get("/health").status, 200);
}
