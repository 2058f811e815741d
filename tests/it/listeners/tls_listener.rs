//! TLS of a listener: protocols, certificates, client certificates.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;

use super::{TLS, encrypted, http2};
use crate::support::ati::write;
use crate::support::http::Client;
use crate::support::tls::{self, Authority};
use crate::support::upstream::Upstream;
use crate::support::{eventually, free_address};

#[test]
fn tls_listener_serves_http1_and_http2() {
    let authority = Authority::new();
    let upstream = Upstream::echo();
    let proxy = encrypted(&authority, TLS)
        .credentials(&json!({"api": "planted-key-of-the-api"}))
        .route(
            "api",
            &upstream.url(),
            r#"
                path_prefix = "/api"
                auth_type = "bearer"
                auth_key_name = "api"
            "#,
        )
        .start();
    let old = authority.caller(None, &["http/1.1"]);
    let mut client = tls::connect(proxy.edge, &old);
    for _ in 0..3 {
        assert_eq!(client.get("/health").status, 200);
    }
    let answer = client.send("POST", "/api/a", &[("x-a", "1")], b"body");
    assert_eq!(answer.status, 200);
    assert_eq!(
        upstream.last().header("authorization"),
        Some("Bearer planted-key-of-the-api")
    );

    let new = authority.caller(None, &["h2", "http/1.1"]);
    let (status, body) = http2(
        proxy.edge,
        &new,
        http::Request::get("https://edge.test/health")
            .body(Vec::new())
            .unwrap(),
    );
    assert_eq!(status, 200);
    assert!(String::from_utf8_lossy(&body).contains("\"status\":\"ok\""));

    let large = vec![b'x'; 3 << 20];
    let request = http::Request::post("https://edge.test/api/b?q=1")
        .header("x-b", "2")
        .header("x-sandbox-job-id", "7")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(large.clone())
        .unwrap();
    let (status, _) = http2(proxy.edge, &new, request);
    assert_eq!(status, 200);
    let seen = upstream.last();
    assert_eq!(seen.target, "/b?q=1");
    assert_eq!(seen.body, large);
    assert_eq!(seen.header("x-b"), Some("2"));
    assert_eq!(seen.header("x-sandbox-job-id"), None);
    assert_eq!(seen.header("cookie"), Some("a=1; b=2"));
    assert_eq!(
        seen.header("authorization"),
        Some("Bearer planted-key-of-the-api")
    );
    assert_eq!(seen.all("host").len(), 1);

    // Plain HTTP on a TLS port.
    let mut plain = Client::connect(proxy.edge);
    plain.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n");
    assert!(plain.try_read(false).is_none());
    proxy.settles(r#"ati_tls_handshake_failures_total{listener="edge"}"#, 1.0);
    let expires = proxy.metric(r#"ati_certificate_expires_timestamp_seconds{listener="edge"}"#);
    assert!(expires.is_some_and(|at| at > 1.7e9), "{expires:?}");
}

#[test]
fn tls_listener_without_http2_offers_only_http1() {
    let authority = Authority::new();
    let proxy = encrypted(&authority, &format!("{TLS}http2 = false\n")).start();
    let config = authority.caller(None, &["h2", "http/1.1"]);
    let mut client = tls::connect(proxy.edge, &config);
    assert_eq!(client.get("/health").status, 200);
    let strict = authority.caller(None, &["h2"]);
    assert!(
        tls::connect(proxy.edge, &strict)
            .try_get("/health")
            .is_none()
    );
}

#[test]
fn certificate_is_replaced_by_a_reload_unless_it_is_bad() {
    let authority = Authority::new();
    let proxy = encrypted(&authority, TLS).start();
    let config = authority.caller(None, &["http/1.1"]);
    let shown = || {
        let stream = TcpStream::connect(proxy.edge).unwrap();
        let mut stream = tls::over(stream, &config);
        stream.flush().unwrap();
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).unwrap();
        }
        stream.conn.peer_certificates().unwrap()[0].to_vec()
    };
    let first = shown();

    // Under load: no connection fails, whichever certificate it gets.
    let over = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicUsize::new(0));
    let load: Vec<_> = (0..4)
        .map(|_| {
            let (over, served, config) = (over.clone(), served.clone(), config.clone());
            let edge = proxy.edge;
            std::thread::spawn(move || {
                let mut failed = 0;
                while !over.load(Ordering::Relaxed) {
                    let answer = tls::connect(edge, &config).try_get("/health");
                    failed += usize::from(answer.is_none_or(|answer| answer.status != 200));
                    served.fetch_add(1, Ordering::Relaxed);
                }
                failed
            })
        })
        .collect();
    let more = || {
        let before = served.load(Ordering::Relaxed);
        eventually("more requests", || {
            (served.load(Ordering::Relaxed) > before + 20).then_some(())
        });
    };
    let mut last = first.clone();
    for _ in 0..3 {
        more();
        let (certificate, key) = authority.issue("edge.test");
        write(&proxy.path("cert.pem"), &certificate);
        write(&proxy.path("key.pem"), &key);
        assert_eq!(proxy.reload()["message"], "reload done");
        let now = shown();
        assert_ne!(now, last);
        last = now;
    }
    let (certificate, _) = authority.issue("edge.test");
    for bad in ["", "nonsense", certificate.as_str()] {
        more();
        write(&proxy.path("cert.pem"), bad);
        let said = proxy.reload();
        assert_ne!(said["message"], "reload done");
        assert!(
            said["problems"].as_str().unwrap().contains("cert.pem"),
            "{said}"
        );
        assert_eq!(shown(), last);
    }
    over.store(true, Ordering::Relaxed);
    for thread in load {
        assert_eq!(thread.join().unwrap(), 0);
    }
    // Settings without TLS don't turn it off before a restart, and the new certificate is used.
    let (certificate, key) = authority.issue("edge.test");
    write(&proxy.path("cert.pem"), &certificate);
    write(&proxy.path("key.pem"), &key);
    write(&proxy.path("ati.toml"), "");
    assert_eq!(proxy.reload()["message"], "reload done");
    proxy
        .log
        .wait_for("server.bind, server.port or a listener has changed");
    assert_ne!(shown(), last);
}

#[test]
fn client_certificate_of_another_authority_is_refused() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (good, bad) = (ours.issue("sandbox"), theirs.issue("sandbox"));
    for (which, without) in [("required", false), ("optional", true)] {
        let conf = format!("{TLS}client_ca = \"ca.pem\"\nclient_certificates = \"{which}\"\n");
        let proxy = encrypted(&ours, &conf).file("ca.pem", ours.pem()).start();
        let asks = |own: Option<&(String, String)>| {
            let config = ours.caller(own, &["http/1.1"]);
            let answer = tls::connect(proxy.edge, &config).try_get("/health");
            answer.is_some_and(|answer| answer.status == 200)
        };
        assert!(asks(Some(&good)), "{which}");
        assert!(!asks(Some(&bad)), "{which}");
        assert_eq!(asks(None), without, "{which}");
        // Required client certificates are dropped only by a restart.
        write(&proxy.path("ati.toml"), TLS);
        let said = proxy.reload()["message"].as_str().unwrap().to_owned();
        assert_eq!(said == "reload done", without, "{said}");
    }
}

#[test]
fn reload_with_swapped_listener_names_keeps_each_listeners_guard() {
    let ours = Authority::new();
    let listener = |name: &str, address: SocketAddr, more: &str| {
        format!(
            r#"
                [[listener]]
                name = "{name}"
                listen = "{address}"
                [listener.tls]
                certificate = "cert.pem"
                key = "key.pem"
                {more}
            "#
        )
    };
    let (open, guarded) = (free_address(), free_address());
    let both = |one: &str, two: &str| {
        listener(one, open, "") + &listener(two, guarded, "client_ca = 'ca.pem'")
    };
    let proxy = encrypted(&ours, &both("a", "b"))
        .file("ca.pem", ours.pem())
        .start();
    let config = ours.caller(None, &["http/1.1"]);
    let asks = |address| {
        let answer = tls::connect(address, &config).try_get("/health");
        answer.is_some_and(|answer| answer.status == 200)
    };
    assert_eq!((asks(open), asks(guarded)), (true, false));
    write(&proxy.path("ati.toml"), both("b", "a"));
    proxy.reload();
    assert_eq!((asks(open), asks(guarded)), (true, false));
    // A plain listener gets TLS only with a restart.
    assert_eq!(proxy.client().get("/health").status, 200);
    write(&proxy.path("ati.toml"), both("a", "b") + TLS);
    assert_eq!(proxy.reload()["message"], "reload done");
    assert_eq!(proxy.client().get("/health").status, 200);
}
