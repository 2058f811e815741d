//! What edges are run for: the caller's request, the operator's credential.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use ati::clock::unix_now;
use serde_json::json;

use crate::support::ati::{Proxy, Setup, write};
use crate::support::dns::Nameserver;
use crate::support::eventually;
use crate::support::http::Client;
use crate::support::tls::Authority;
use crate::support::tokens::{SIGNING, sign_at};
use crate::support::upstream::Upstream;

const KEY: &str = "planted-upstream-key-1c9d/+";

fn with_keys() -> Setup {
    Setup::new().credentials(&json!({
        "api_key": KEY, "BASIC": "user:planted-password", "sandbox_signing_shared_secret": SIGNING,
    }))
}

#[test]
fn each_way_to_present_a_credential() {
    let upstream = Upstream::echo();
    let url = upstream.url();
    let proxy = with_keys()
        .env("RUST_LOG", "trace")
        .route("bearer", &url, "path_prefix = '/bearer'\nauth_type = 'bearer'\nauth_key_name = 'api_key'")
        .route("header", &url, "path_prefix = '/header'\nauth_type = 'header'\nauth_key_name = 'API_KEY'\nauth_header_name = 'X-Token'\nauth_value_prefix = 'Token '")
        .route("plain-header", &url, "path_prefix = '/plain-header'\nauth_type = 'header'\nauth_key_name = 'api_key'")
        .route("query", &url, "path_prefix = '/query'\nauth_type = 'query'\nauth_key_name = 'api_key'")
        .route("basic", &url, "path_prefix = '/basic'\nauth_type = 'basic'\nauth_key_name = 'basic'")
        .route("extra", &url, "path_prefix = '/extra'\nextra_headers = { X-One = 'v ${api_key}', X-Two = '${absent}', X-Three = 'plain' }")
        .start();
    let ask = |path: &str| {
        let response = proxy.client().get(path);
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        upstream.last()
    };
    assert_eq!(
        ask("/bearer/a").header("authorization"),
        Some(format!("Bearer {KEY}").as_str())
    );
    assert_eq!(
        ask("/header/a").header("x-token"),
        Some(format!("Token {KEY}").as_str())
    );
    assert_eq!(ask("/plain-header/a").header("x-api-key"), Some(KEY));
    assert_eq!(
        ask("/query/a").target,
        "/a?api_key=planted-upstream-key-1c9d%2F%2B"
    );
    assert_eq!(
        ask("/query/a?x=%2f&y").target,
        "/a?x=%2f&y&api_key=planted-upstream-key-1c9d%2F%2B"
    );
    assert_eq!(
        ask("/basic/a").header("authorization"),
        Some("Basic dXNlcjpwbGFudGVkLXBhc3N3b3Jk")
    );
    let extra = ask("/extra/a");
    assert_eq!(extra.header("x-one"), Some(format!("v {KEY}").as_str()));
    assert_eq!(
        (extra.header("x-two"), extra.header("x-three")),
        (None, Some("plain"))
    );
    eventually("the warning", || {
        let log = proxy.log.text();
        log.contains("'absent' is not in the keyring").then_some(())
    });
    proxy.settles(r#"ati_credential_missing{name="absent"}"#, 1.0);
}

#[test]
fn what_a_caller_may_not_send_does_not_arrive() {
    let upstream = Upstream::echo();
    let proxy = with_keys()
        .route(
            "svc",
            &upstream.url(),
            "path_prefix = '/svc'\nauth_type = 'header'\nauth_key_name = 'api_key'\nauth_header_name = 'X-Key'\n\
             extra_headers = { X-Extra = 'ours' }\nforward_authorization_paths = ['/own/*']",
        )
        .start();
    let sent = [
        ("X-Key", "mine"),
        ("x-key", "mine too"),
        ("X-Extra", "mine"),
        ("Authorization", "Bearer mine"),
        ("X-Sandbox-Job-Id", "7"),
        ("x-sandbox-anything", "x"),
        ("traceparent", "00-1"),
        ("tracestate", "a=b"),
        ("Connection", "close, X-Named"),
        ("X-Named", "x"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers"),
        ("Proxy-Authorization", "Basic x"),
        ("Upgrade", "h2c"),
        ("Cookie", "a=b"),
        ("X-Forwarded-For", "1.2.3.4"),
        ("Accept-Encoding", "br"),
    ];
    assert_eq!(proxy.client().send("GET", "/svc/x", &sent, b"").status, 200);
    let got = upstream.last();
    assert_eq!(got.header("x-key"), Some(KEY));
    assert_eq!(got.header("x-extra"), Some("ours"));
    for name in [
        "authorization",
        "x-sandbox-job-id",
        "x-sandbox-anything",
        "traceparent",
        "tracestate",
        "x-named",
        "keep-alive",
        "te",
        "proxy-authorization",
        "upgrade",
    ] {
        assert_eq!(got.header(name), None, "{name}");
    }
    for (name, value) in [
        ("cookie", "a=b"),
        ("x-forwarded-for", "1.2.3.4"),
        ("accept-encoding", "br"),
    ] {
        assert_eq!(got.header(name), Some(value), "{name}");
    }
    assert_eq!(
        got.header("host"),
        Some(upstream.address.to_string().as_str())
    );

    proxy.client().send(
        "GET",
        "/svc/own/x",
        &[("Authorization", "Bearer mine"), ("X-Key", "mine")],
        b"",
    );
    let got = upstream.last();
    assert_eq!(got.header("authorization"), Some("Bearer mine"));
    assert_eq!(
        (got.header("x-key"), got.header("x-extra")),
        (Some("mine"), Some("ours"))
    );
}

#[test]
fn twins_of_names_that_matter_do_not_arrive() {
    let upstream = Upstream::echo();
    let proxy = with_keys()
        .route(
            "svc",
            &upstream.url(),
            "path_prefix = '/svc'\nauth_type = 'header'\nauth_key_name = 'api_key'",
        )
        .start();
    let sent = [
        ("X_Api_Key", "mine"),
        ("X_Sandbox_Job_Id", "7"),
        ("X-Sandbox_Id", "7"),
        ("Content_Length", "5"),
        ("Transfer_Encoding", "x"),
        ("My_Own", "fine"),
    ];
    proxy.client().send("GET", "/svc/x", &sent, b"");
    let names: Vec<String> = upstream
        .last()
        .headers
        .iter()
        .map(|(name, _)| name.clone())
        .collect();
    let left: Vec<&String> = names.iter().filter(|name| name.contains('_')).collect();
    assert_eq!(left, ["my_own"]);
}

#[test]
fn trace_would_show_the_credential() {
    let upstream = Upstream::echo();
    let proxy = Setup::new()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    let response = proxy.client().send("TRACE", "/svc/x", &[], b"");
    assert_eq!(response.status, 405);
    assert!(upstream.received().is_empty());
}

#[test]
fn old_callers_get_what_they_can_read() {
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
fn a_dead_name_holds_up_nobody_for_long() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let upstream = Upstream::echo();
    let proxy = Setup::new()
        .conf(&format!(
            "[egress]\nnameservers = [\"{}\"]\n",
            silent.local_addr().unwrap()
        ))
        .route(
            "dead",
            "http://dead.test:1",
            "path_prefix = '/dead'\nconnect_timeout_seconds = 1",
        )
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    let started = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| assert_eq!(proxy.client().get("/dead/x").status, 502));
        }
        assert_eq!(proxy.client().get("/svc/x").status, 200);
    });
    // All twelve share one answer; in turn they would take twelve seconds.
    assert!(
        started.elapsed() < std::time::Duration::from_secs(6),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn a_reload_does_not_forget_addresses() {
    let upstream = Upstream::echo();
    let nameserver = Nameserver::answering(&["127.0.0.1"]);
    let proxy = Setup::new()
        .conf(&format!(
            "[egress]\nnameservers = [\"{}\"]\n",
            nameserver.address
        ))
        .route(
            "named",
            &format!("http://up.test:{}", upstream.address.port()),
            "path_prefix = '/n'",
        )
        .start();
    assert_eq!(proxy.client().get("/n/x").status, 200);
    let asked = nameserver.asked();
    proxy.reload();
    assert_eq!(proxy.client().get("/n/x").status, 200);
    assert_eq!(nameserver.asked(), asked);
}

#[test]
fn denied_paths_stay_denied_however_they_are_written() {
    let upstream = Upstream::echo();
    let proxy = Setup::new()
        .route(
            "svc",
            &upstream.url(),
            "path_prefix = '/svc'\ndeny_paths = ['/admin/*']",
        )
        .start();
    for path in [
        "/svc/admin/x",
        "/svc//admin/x",
        "/svc/x/../admin/x",
        "/svc/%61dmin/x",
        "/svc/x/%2e%2e/admin/x",
        "/svc/admin%2fx",
        "/svc%2fadmin/x",
        "/svc/admin/%2e%2e/admin/x",
        "/svc/./admin/x",
        "/svc/admin//x",
    ] {
        let response = proxy.client().get(path);
        assert!(
            [400, 403].contains(&response.status),
            "{path}: {}",
            response.status
        );
        if response.status == 403 {
            assert_eq!(response.text(), "forbidden: path denied by policy");
        }
    }
    assert!(upstream.received().is_empty());
    proxy.client().get("/svc/@scope%2fpkg?x=%2e%2e");
    assert_eq!(upstream.last().target, "/@scope%2fpkg?x=%2e%2e");
}

#[test]
fn routes_by_host_and_prefix_with_rewrites() {
    let (one, two) = (Upstream::echo(), Upstream::echo());
    let proxy = Setup::new()
        .route(
            "one",
            &format!("{}/base/", one.url()),
            "path_prefix = '/one'\npath_replace = ['/old', '/new']",
        )
        .route(
            "whole",
            &one.url(),
            "path_prefix = '/whole'\nstrip_prefix = false\nhost_override = 'virtual.example'",
        )
        .route("two", &two.url(), "host_match = 'Two.Example'")
        .start();
    let ask = |host: &str, path: &str| {
        let mut client = proxy.client();
        client.write(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes());
        client.read(false)
    };
    assert_eq!(
        ask("x", "/one/old/a?q=1").json()["target"],
        "/base/new/a?q=1"
    );
    assert_eq!(ask("x", "/one").json()["target"], "/base/");
    assert_eq!(ask("x", "/whole/a").json()["target"], "/whole/a");
    assert_eq!(one.last().header("host"), Some("virtual.example"));
    assert_eq!(ask("two.example:8090", "/one/a").json()["target"], "/one/a");
    assert_eq!(two.received().len(), 1);
    assert_eq!(ask("two.example", "/health").json()["status"], "ok");
    assert_eq!(ask("x", "/onely").status, 404);
    assert_eq!(proxy.log.wait_for("ATI proxy")["passthrough"], 3);
    proxy.settles(
        r#"ati_requests_total{method="GET",route="two",status="2xx"}"#,
        1.0,
    );
}

#[test]
fn connections_leave_from_the_address_that_was_asked_for() {
    let upstream = Upstream::echo();
    let url = upstream.url();
    let proxy = Setup::new()
        .conf("[server]\nworkers = 1\n[egress]\nsource = \"127.0.0.2\"\n[egress.addresses]\nother = \"127.0.0.3\"\n")
        .route("default", &url, "path_prefix = '/default'")
        .route("other", &url, "path_prefix = '/other'\negress = 'other'")
        .start();
    for _ in 0..3 {
        for (path, source) in [("/default/x", "127.0.0.2"), ("/other/x", "127.0.0.3")] {
            assert_eq!(proxy.client().get(path).status, 200);
            assert_eq!(upstream.last().peer.ip().to_string(), source, "{path}");
        }
    }
    // One pooled connection for each, and none shared.
    let peers: std::collections::BTreeSet<_> = upstream.received().iter().map(|r| r.peer).collect();
    assert_eq!(peers.len(), 2);

    let output = Setup::new()
        .conf("[egress]\nsource = \"192.0.2.1\"\n")
        .output();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && text.contains("192.0.2.1 is not an address of this machine"),
        "{text}"
    );
    let unknown = Setup::new()
        .route("x", &url, "path_prefix = '/x'\negress = 'nope'")
        .output();
    assert!(
        String::from_utf8(unknown.stderr)
            .unwrap()
            .contains("'nope' is not one of")
    );
}

#[test]
fn names_are_resolved_cached_and_tried_in_turn() {
    let upstream = Upstream::echo();
    // Nothing listens on the first two at this port.
    let nameserver = Nameserver::answering(&["127.9.9.8", "127.9.9.9", "127.0.0.1"]);
    let proxy = Setup::new()
        .conf(&format!(
            "[egress]\nnameservers = [\"{}\"]\n",
            nameserver.address
        ))
        .route(
            "named",
            &format!("http://upstream.test:{}", upstream.address.port()),
            "path_prefix = '/n'",
        )
        .start();
    for _ in 0..10 {
        let response = proxy.client().send("POST", "/n/x", &[], b"body");
        assert_eq!(response.status, 200, "{}", response.text());
    }
    assert_eq!(
        upstream.last().header("host"),
        Some(format!("upstream.test:{}", upstream.address.port()).as_str())
    );
    // A and AAAA, once.
    assert!(nameserver.asked() <= 2, "{}", nameserver.asked());

    let nobody = Nameserver::answering(&[]);
    let proxy = Setup::new()
        .conf(&format!(
            "[egress]\nnameservers = [\"{}\"]\n",
            nobody.address
        ))
        .route("named", "http://upstream.test:1", "path_prefix = '/n'")
        .start();
    let response = proxy.client().get("/n/x");
    assert_eq!(
        (response.status, response.text().as_str()),
        (
            502,
            "bad gateway: upstream error: its name can't be resolved"
        )
    );
    proxy.settles(
        r#"ati_upstream_errors_total{kind="dns",route="named"}"#,
        1.0,
    );
}

#[test]
fn tls_is_verified_for_names_and_addresses_and_speaks_http2() {
    let (ours, foreign) = (Authority::new(), Authority::new());
    let nameserver = Nameserver::answering(&["127.0.0.1"]);
    let port = |address: std::net::SocketAddr| address.port();
    let named = port(ours.serve("up.test", true));
    let setup = with_keys().file("ca.pem", ours.pem());
    let proxy = setup
        .conf(&format!(
            "[egress]\nca_file = \"ca.pem\"\nnameservers = [\"{}\"]\n",
            nameserver.address
        ))
        .route(
            "h2",
            &format!("https://up.test:{named}"),
            "path_prefix = '/h2'\nauth_type = 'bearer'\nauth_key_name = 'api_key'\nmax_request_bytes = 1000",
        )
        .route(
            "wrong-name",
            &format!("https://other.test:{named}"),
            "path_prefix = '/wrong-name'",
        )
        .route(
            "address",
            &format!("https://127.0.0.1:{}", port(ours.serve("127.0.0.1", false))),
            "path_prefix = '/address'",
        )
        .route(
            "wrong-address",
            &format!("https://127.0.0.1:{named}"),
            "path_prefix = '/wrong-address'",
        )
        .route(
            "foreign",
            &format!("https://up.test:{}", port(foreign.serve("up.test", false))),
            "path_prefix = '/foreign'",
        )
        .start();
    let ask = |path: &str| proxy.client().get(path);
    assert_eq!(
        ask("/h2/a").text(),
        format!("h2 /a up.test:{named} Bearer {KEY}")
    );
    assert_eq!(ask("/address/a").text(), "h1");
    // The cap holds at once, over HTTP/2 too.
    let mut client = proxy.client();
    client.write(b"POST /h2/a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    client.write(format!("7d0\r\n{}\r\n", "x".repeat(2000)).as_bytes());
    assert_eq!(client.read(false).status, 413);
    for path in ["/wrong-name/a", "/wrong-address/a", "/foreign/a"] {
        let response = ask(path);
        assert_eq!(
            (response.status, response.text().as_str()),
            (502, "bad gateway: upstream error: the TLS handshake failed"),
            "{path}"
        );
    }
}

#[test]
fn bodies_of_every_method_and_framing() {
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
    // All of it over as few connections as there are workers.
    let peers: std::collections::BTreeSet<_> = upstream.received().iter().map(|r| r.peer).collect();
    assert!(peers.len() <= 2, "{}", peers.len());
}

#[test]
fn answers_arrive_as_they_were_given() {
    let answers = [
        ("204", "HTTP/1.1 204 No Content\r\nx-a: 1\r\n\r\n"),
        ("304", "HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\n\r\n"),
        (
            "302",
            "HTTP/1.1 302 Found\r\nlocation: http://elsewhere/\r\ncontent-length: 2\r\n\r\nno",
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
fn trailers_do_not_confuse_what_follows() {
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
    // From the caller, too.
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
fn an_answer_that_trickles_arrives_as_it_comes() {
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
fn ten_thousand_routes_are_found_as_quickly_as_one() {
    let upstream = Upstream::echo();
    let mut setup = Setup::new();
    for n in 0..10_000 {
        setup = setup.route(
            &format!("r{n}"),
            &upstream.url(),
            &format!("path_prefix = '/r{n}/x'"),
        );
    }
    let proxy = setup.start();
    let mut client = proxy.client();
    for n in [0, 1, 4_999, 9_999] {
        assert_eq!(client.get(&format!("/r{n}/x/y")).json()["target"], "/y");
    }
    // Routes that nobody uses have no series.
    let metrics = Client::connect(proxy.admin).get("/metrics").text();
    assert!(
        metrics.lines().count() < 1_000,
        "{}",
        metrics.lines().count()
    );
}

#[test]
fn informational_answers_pass() {
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
fn caps_hold_before_and_after_contact() {
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

    // Cut short, or refused where nothing of it was sent yet.
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
fn events_pass_as_they_come() {
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
fn who_leaves_frees_the_other_side() {
    let hang = Upstream::answering(|_, stream| {
        // Waits for the proxy to hang up.
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
    eventually("nothing in flight", || {
        (proxy.metric(r#"ati_in_flight{route="hang"}"#) == 0.0).then_some(())
    });

    assert!(proxy.client().try_get("/quit/x").is_none());
    assert_eq!(proxy.client().get("/health").status, 200);
}

#[test]
fn routes_and_keys_are_swapped_while_it_runs() {
    let upstream = Upstream::echo();
    let proxy = with_keys()
        .route(
            "a",
            &upstream.url(),
            "path_prefix = '/a'\nauth_type = 'bearer'\nauth_key_name = 'api_key'",
        )
        .start();
    assert_eq!(proxy.client().get("/b/x").status, 404);
    let manifest = |prefix: &str| {
        format!(
            "[provider]\nname = 'b'\nhandler = 'passthrough'\nbase_url = '{}'\npath_prefix = '{prefix}'\n",
            upstream.url()
        )
    };
    write(&proxy.path("manifests/b.toml"), manifest("/b"));
    proxy.reload();
    assert_eq!(proxy.client().get("/b/x").status, 200);
    write(&proxy.path("manifests/b.toml"), manifest("b"));
    assert!(
        proxy.reload()["problems"]
            .as_str()
            .unwrap()
            .contains("passthrough path_prefix must start with '/'")
    );
    assert_eq!(proxy.client().get("/b/x").status, 200);
    std::fs::remove_file(proxy.path("manifests/b.toml")).unwrap();
    proxy.reload();
    assert_eq!(proxy.client().get("/b/x").status, 404);
}

/// Requests that are signed with whatever secret is current, as fast as they go.
fn load(proxy: &Proxy, secret: &Arc<Mutex<String>>, stop: &AtomicBool, done: &AtomicUsize) {
    let mut client = proxy.client();
    while !stop.load(Ordering::Relaxed) {
        let secret = secret.lock().unwrap().clone();
        let signature = sign_at(&secret, unix_now(), "GET", "/svc/x");
        let response = client.send("GET", "/svc/x", &[("x-sandbox-signature", &signature)], b"");
        assert_eq!(response.status, 200, "{}", response.text());
        done.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn twenty_rotations_under_load_fail_no_request() {
    let upstream = Upstream::echo();
    let credentials = |key: usize| {
        json!({"api_key": format!("planted-key-{key}"), "sandbox_signing_shared_secret": SIGNING})
            .to_string()
    };
    let proxy = Setup::new()
        .file("credentials", credentials(0))
        .arg("--sig-verify-mode")
        .arg("enforce")
        .conf("[log]\naccess = false\nsignatures = false\n")
        .route(
            "svc",
            &upstream.url(),
            "path_prefix = '/svc'\nauth_type = 'bearer'\nauth_key_name = 'api_key'",
        )
        .start();
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let secret = Arc::new(Mutex::new(SIGNING.to_owned()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| load(&proxy, &secret, &stop, &done));
        }
        for key in 1..=20 {
            let before = done.load(Ordering::Relaxed);
            eventually("some requests", || {
                (done.load(Ordering::Relaxed) > before + 50).then_some(())
            });
            write(&proxy.path("credentials"), credentials(key));
            assert_eq!(proxy.reload()["message"], "reload done");
            // Whatever starts after the log line carries the new key.
            let signature = sign_at(SIGNING, unix_now(), "GET", "/svc/new");
            let response = proxy.client().send(
                "GET",
                "/svc/new",
                &[("x-sandbox-signature", &signature)],
                b"",
            );
            assert_eq!(
                response.json()["authorization"][0],
                format!("Bearer planted-key-{key}")
            );
        }
        stop.store(true, Ordering::Relaxed);
    });
    proxy.settles(r#"ati_reloads_total{outcome="ok"}"#, 20.0);
}

#[test]
fn a_rotated_signing_secret_does_not_touch_what_is_under_way() {
    let gate = Arc::new(AtomicBool::new(false));
    let opened = gate.clone();
    let upstream = Upstream::answering(move |_, stream| {
        eventually("the gate", || opened.load(Ordering::Relaxed).then_some(()));
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            .is_ok()
    });
    let proxy = with_keys()
        .arg("--sig-verify-mode")
        .arg("enforce")
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    let signature = sign_at(SIGNING, unix_now(), "GET", "/svc/x");
    let mut slow: Vec<Client> = (0..50).map(|_| proxy.client()).collect();
    for client in &mut slow {
        client.write(
            format!("GET /svc/x HTTP/1.1\r\nhost: x\r\nx-sandbox-signature: {signature}\r\n\r\n")
                .as_bytes(),
        );
    }
    eventually("fifty under way", || {
        (upstream.received().len() == 50).then_some(())
    });
    write(
        &proxy.path("credentials"),
        json!({"sandbox_signing_shared_secret": "planted-new"}).to_string(),
    );
    proxy.reload();
    let old = proxy
        .client()
        .send("GET", "/svc/x", &[("x-sandbox-signature", &signature)], b"");
    assert_eq!(old.text(), "hmac_mismatch");
    gate.store(true, Ordering::Relaxed);
    for client in &mut slow {
        assert_eq!(client.read(false).text(), "ok");
    }
}

#[test]
fn a_request_under_way_ends_before_the_server_does() {
    let (release, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let upstream = Upstream::answering(move |_, stream| {
        gate.lock().unwrap().recv().unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            .is_ok()
    });
    let mut proxy = Setup::new()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    let mut client = proxy.client();
    client.write(b"GET /svc/x HTTP/1.1\r\nhost: x\r\n\r\n");
    eventually("the request", || {
        (upstream.received().len() == 1).then_some(())
    });
    proxy.signal("TERM");
    proxy.log.wait_for("draining");
    assert!(TcpStream::connect(proxy.edge).is_err());
    release.send(()).unwrap();
    let response = client.read(false);
    assert_eq!((response.status, response.text().as_str()), (200, "ok"));
    assert_eq!(proxy.wait().code(), Some(0));
}
