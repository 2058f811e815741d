//! The ways in: TLS of our own, HTTP/2, client certificates, PROXY headers, Unix sockets, proxies in front.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::ati::{Proxy, Setup, write};
use crate::support::http::Client;
use crate::support::tls::{self, Authority};
use crate::support::tokens::SIGNING;
use crate::support::upstream::Upstream;
use crate::support::{PATIENCE, eventually};

const TLS: &str = "[server.tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n";

/// An edge with a certificate of this authority for `edge.test`.
fn encrypted(authority: &Authority, conf: &str) -> Setup {
    let (certificate, key) = authority.issue("edge.test");
    Setup::new()
        .file("cert.pem", certificate)
        .file("key.pem", key)
        .conf(conf)
}

/// One request over HTTP/2: status and body.
fn http2(
    address: SocketAddr,
    config: &Arc<rustls::ClientConfig>,
    request: http::Request<Vec<u8>>,
) -> (u16, Vec<u8>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(config.clone());
        let name = rustls::pki_types::ServerName::try_from("edge.test").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let (parts, mut body) = request.into_parts();
        let head = http::Request::from_parts(parts, ());
        let (response, mut sending) = client.send_request(head, body.is_empty()).unwrap();
        while !body.is_empty() {
            sending.reserve_capacity(body.len());
            let room = std::future::poll_fn(|cx| sending.poll_capacity(cx)).await;
            let room = room.unwrap().unwrap().min(body.len());
            let rest = body.split_off(room);
            sending.send_data(body.into(), rest.is_empty()).unwrap();
            body = rest;
        }
        let response = tokio::time::timeout(PATIENCE, response)
            .await
            .unwrap()
            .unwrap();
        let status = response.status().as_u16();
        let mut stream = response.into_body();
        let mut received = Vec::new();
        while let Some(piece) = stream.data().await {
            let piece = piece.unwrap();
            stream.flow_control().release_capacity(piece.len()).unwrap();
            received.extend_from_slice(&piece);
        }
        (status, received)
    })
}

#[test]
fn tls_speaks_http1_and_http2_to_routes_and_to_itself() {
    let authority = Authority::new();
    let upstream = Upstream::echo();
    let proxy = encrypted(&authority, TLS)
        .credentials(&json!({"api": "planted-key-of-the-api"}))
        .route(
            "api",
            &upstream.url(),
            "path_prefix = \"/api\"\nauth_type = \"bearer\"\nauth_key_name = \"api\"",
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

    // Plain HTTP on a TLS port, and a TLS version that nobody should speak any more.
    let mut plain = Client::connect(proxy.edge);
    plain.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n");
    assert!(plain.try_read(false).is_none());
    proxy.settles(r#"ati_tls_handshake_failures_total{listener="edge"}"#, 1.0);
    let expires = proxy.metric(r#"ati_certificate_expires_timestamp_seconds{listener="edge"}"#);
    assert!(expires.is_some_and(|at| at > 1.7e9), "{expires:?}");
}

#[test]
fn without_http2_only_http1_is_offered() {
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
fn a_new_certificate_is_shown_from_the_reload_on_and_a_bad_one_never() {
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
    // Without TLS altogether, which would be worse than any certificate: what listens stays what it is.
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
fn who_has_no_certificate_of_the_right_authority_stays_outside() {
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
        // What guards the door goes only with a restart.
        write(&proxy.path("ati.toml"), TLS);
        let said = proxy.reload()["message"].as_str().unwrap().to_owned();
        assert_eq!(said == "reload done", without, "{said}");
    }
}

#[test]
fn a_reload_never_lends_a_listener_the_settings_of_another() {
    let ours = Authority::new();
    let listener = |name: &str, port: u16, more: &str| {
        format!(
            "[[listener]]\nname = \"{name}\"\nlisten = \"127.0.0.1:{port}\"\n[listener.tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n{more}"
        )
    };
    let free = || {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.local_addr().unwrap()
    };
    let (open, guarded) = (free(), free());
    let both = |one: &str, two: &str| {
        listener(one, open.port(), "") + &listener(two, guarded.port(), "client_ca = \"ca.pem\"\n")
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
    // Plain stays plain until the restart.
    assert_eq!(proxy.client().get("/health").status, 200);
    write(&proxy.path("ati.toml"), both("a", "b") + TLS);
    assert_eq!(proxy.reload()["message"], "reload done");
    assert_eq!(proxy.client().get("/health").status, 200);
}

#[test]
fn what_is_wrong_with_listeners_is_said_at_once() {
    let output = Setup::new()
        .conf(
            "[server]\nproxy_protocol = true\ntrusted_proxies = [\"somebody\"]\n[server.tls]\ncertificate = \"none.pem\"\n\
             [[listener]]\nname = \"edge\"\nlisten = \"here\"\n[[listener]]\nname = \"b\"\nlisten = \"unix:/x\"\nmode = \"9\"\nmod = 1\n",
        )
        .output();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    for said in [
        "server.trusted_proxies",
        "'somebody'",
        "server.tls.key",
        "listener.name",
        "'here'",
        "'9' is no file mode",
        "did you mean 'mode'",
        "listener 'edge' has proxy_protocol",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let authority = Authority::new();
    let (certificate, _) = authority.issue("a");
    let (_, key) = authority.issue("b");
    let output = Setup::new()
        .file("cert.pem", certificate)
        .file("key.pem", key)
        .conf(TLS)
        .output();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("the certificate and the key can't be used"),
        "{text}"
    );
    assert!(!text.contains("PRIVATE"), "{text}");
}

/// A PROXY header of version 2 for TCP over IPv4, from 192.0.2.7:1234.
fn header() -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    bytes.extend([192, 0, 2, 7, 127, 0, 0, 1, 4, 210, 1, 187]);
    bytes
}

const ASK: &[u8] = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n";

/// What comes back on a fresh connection, until it ends.
fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn logged_peer(proxy: &Proxy, path: &str) -> String {
    let line = eventually("the access line", || {
        let lines = proxy.log.find_all("request");
        lines.into_iter().find(|line| line["path"] == path)
    });
    line["peer"].as_str().unwrap_or("none").to_owned()
}

#[test]
fn a_listener_that_expects_proxy_headers_takes_nothing_else() {
    let proxy = Setup::new()
        .conf(
            "[server]\nproxy_protocol = true\ntrusted_proxies = [\"127.0.0.1\"]\n[limits]\nheader_seconds = 1\n\
             [[listener]]\nname = \"plain\"\nlisten = \"127.0.0.1:0\"\n",
        )
        .start();
    let ask = |path: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").into_bytes()
    };
    let good = exchange(proxy.edge, &[header(), ask("/a")].concat());
    assert!(good.starts_with("HTTP/1.1 404"), "{good}");
    assert_eq!(logged_peer(&proxy, "/a"), "192.0.2.7:1234");

    // The proxy's own health check names nobody.
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".to_vec();
    let good = exchange(proxy.edge, &[local, ask("/b")].concat());
    assert!(good.starts_with("HTTP/1.1 404"), "{good}");
    assert!(logged_peer(&proxy, "/b").starts_with("127.0.0.1:"));

    let mut long = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff".to_vec();
    long.resize(70_000, 0);
    let (whole, one) = (
        header(),
        b"PROXY TCP4 192.0.2.7 127.0.0.1 1234 443\r\n".to_vec(),
    );
    let bad = [
        ask("/"),
        [one, ask("/")].concat(),
        whole[..5].to_vec(),
        whole[..20].to_vec(),
        [header(), header(), ask("/")].concat(),
        long,
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".to_vec(),
    ];
    for bytes in &bad {
        let started = Instant::now();
        let answer = exchange(proxy.edge, bytes);
        assert!(!answer.starts_with("HTTP/1.1 200"), "{bytes:?}: {answer}");
        assert!(started.elapsed() < Duration::from_secs(5), "{bytes:?}");
    }
    // The two whole ones reach HTTP, where the second is no request.
    proxy.settles(r#"ati_refusals_total{reason="proxy_protocol"}"#, 6.0);

    // Half a header and then silence.
    let started = Instant::now();
    let mut silent = Client::connect(proxy.edge);
    silent.write(&whole[..14]);
    assert!(silent.is_closed());
    assert!(started.elapsed() < Duration::from_secs(10));

    // Where none is expected, it is no HTTP, and no address is believed.
    let plain: SocketAddr = proxy.listeners["plain"].as_str().unwrap().parse().unwrap();
    for bytes in [
        header(),
        b"PROXY TCP4 192.0.2.7 127.0.0.1 1234 443\r\n".to_vec(),
    ] {
        let started = Instant::now();
        let answer = exchange(plain, &[bytes, ask("/forged")].concat());
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 400"),
            "{answer}"
        );
        assert!(started.elapsed() < Duration::from_secs(5));
    }
    assert!(Client::connect(plain).get("/health").status == 200);
    let text = proxy.log.text();
    assert!(
        text.contains("it doesn't begin with a PROXY header"),
        "{text}"
    );
    assert!(!text.contains("/forged"), "{text}");
}

#[test]
fn a_caller_whom_the_proxy_does_not_name_is_trusted_in_nothing() {
    let proxy = Setup::new()
        .conf("[server]\nproxy_protocol = true\ntrusted_proxies = [\"127.0.0.1\"]\n")
        .start();
    for (command, path) in [(0x21, "/relayed"), (0x20, "/own")] {
        let mut bytes = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
        bytes.extend([command, 0, 0, 0]);
        bytes.extend(format!("GET {path} HTTP/1.1\r\nhost: x\r\nx-forwarded-for: 6.6.6.6\r\nconnection: close\r\n\r\n").bytes());
        exchange(proxy.edge, &bytes);
        let line = eventually("the access line", || {
            let lines = proxy.log.find_all("request");
            lines.into_iter().find(|line| line["path"] == path)
        });
        // A proxy that asks for itself is a trusted one.
        let believed = line["client"] == "6.6.6.6";
        assert_eq!(believed, path == "/own", "{line}");
    }
}

#[test]
fn who_is_no_trusted_proxy_may_not_speak_for_others() {
    let proxy = Setup::new()
        .conf("[server]\nproxy_protocol = true\ntrusted_proxies = [\"127.0.0.9\"]\n")
        .start();
    assert_eq!(exchange(proxy.edge, &[header(), ASK.to_vec()].concat()), "");
    proxy.settles(r#"ati_refusals_total{reason="untrusted_proxy"}"#, 1.0);
}

#[test]
fn a_reload_leaves_nobody_outside_of_a_listener_that_goes_on_expecting_proxy_headers() {
    let with = "[server]\nproxy_protocol = true\ntrusted_proxies = [\"127.0.0.1\"]\n";
    let proxy = Setup::new().conf(with).start();
    let serves = || exchange(proxy.edge, &[header(), ASK.to_vec()].concat());
    assert!(serves().starts_with("HTTP/1.1 200"));
    for conf in [
        "[server]\n",
        "[server]\nproxy_protocol = false\ntrusted_proxies = [\"unix\"]\n",
    ] {
        write(&proxy.path("ati.toml"), conf);
        let said = proxy.reload();
        let problems = said["problems"].as_str().unwrap_or_default();
        assert!(problems.contains("'edge' has proxy_protocol"), "{said}");
        assert!(serves().starts_with("HTTP/1.1 200"));
    }
    write(&proxy.path("ati.toml"), with);
    assert_eq!(proxy.reload()["message"], "reload done");
}

#[test]
fn proxy_headers_come_before_tls() {
    let authority = Authority::new();
    let conf =
        format!("[server]\nproxy_protocol = true\ntrusted_proxies = [\"127.0.0.0/8\"]\n{TLS}");
    let proxy = encrypted(&authority, &conf).start();
    let config = authority.caller(None, &["http/1.1"]);
    let mut stream = TcpStream::connect(proxy.edge).unwrap();
    stream.write_all(&header()).unwrap();
    let mut client = Client::over(tls::over(stream, &config), "edge.test");
    assert_eq!(client.get("/inside").status, 404);
    assert_eq!(logged_peer(&proxy, "/inside"), "192.0.2.7:1234");
    assert!(
        tls::connect(proxy.edge, &config)
            .try_get("/health")
            .is_none()
    );

    // A forged one on a TLS listener that expects none.
    let proxy = encrypted(&authority, TLS).start();
    let mut stream = TcpStream::connect(proxy.edge).unwrap();
    stream.write_all(&header()).unwrap();
    let mut client = Client::over(tls::over(stream, &config), "edge.test");
    assert!(client.try_get("/health").is_none());
}

#[test]
fn unix_sockets_serve_and_only_whom_they_let_in() {
    let setup = Setup::new();
    let path = setup.path().join("edge.sock");
    // Left behind by a process that is gone.
    drop(UnixListener::bind(&path).unwrap());
    let conf = format!(
        "[[listener]]\nname = \"local\"\nlisten = \"unix:{}\"\nmode = \"0600\"\n",
        path.display()
    );
    let proxy = setup.conf(&conf).start();
    let mut client = Client::over(UnixStream::connect(&path).unwrap(), "local");
    for _ in 0..2 {
        assert_eq!(client.get("/health").status, 200);
    }
    assert_eq!(logged_peer(&proxy, "/health"), "none");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    proxy.settles(r#"ati_connections{listener="local"}"#, 1.0);

    // Somebody lives there.
    let output = Setup::new().conf(&conf).output();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && text.contains("another process listens there"),
        "{text}"
    );
    assert_eq!(client.get("/health").status, 200);
    // Something else lies there, and stays.
    let other = Setup::new();
    let file = other.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    let conf = format!(
        "[[listener]]\nname = \"local\"\nlisten = \"unix:{}\"\n",
        file.display()
    );
    assert!(!other.conf(&conf).output().status.success());
}

#[test]
fn forwarded_for_is_believed_of_trusted_proxies_only_and_goes_no_further() {
    let upstream = Upstream::echo();
    let headers = [
        ("x-forwarded-for", "6.6.6.6, 192.0.2.44"),
        ("x-forwarded-proto", "https"),
        ("x-real-ip", "6.6.6.6"),
        ("forwarded", "for=6.6.6.6"),
        ("x_forwarded_for", "6.6.6.6"),
    ];
    let client_of = |proxy: &Proxy| {
        let line = eventually("the access line", || {
            let lines = proxy.log.find_all("request");
            lines.into_iter().find(|line| line["path"] == "/api/x")
        });
        line["client"].as_str().map(str::to_owned)
    };
    let start = |trusted: &str| {
        Setup::new()
            .route("api", &upstream.url(), "path_prefix = \"/api\"")
            .conf(&format!("[server]\ntrusted_proxies = [{trusted}]\n"))
            .start()
    };
    let proxy = start("\"127.0.0.1\"");
    assert_eq!(
        proxy.client().send("GET", "/api/x", &headers, b"").status,
        200
    );
    assert_eq!(client_of(&proxy).as_deref(), Some("192.0.2.44"));
    let seen = upstream.last();
    for (name, _) in headers {
        assert_eq!(seen.header(name), None, "{name}");
    }
    // Nobody is trusted: nothing is believed, and everything passes as it always did.
    let proxy = start("");
    assert_eq!(
        proxy.client().send("GET", "/api/x", &headers, b"").status,
        200
    );
    assert_eq!(client_of(&proxy), None);
    assert_eq!(
        upstream.last().header("x-forwarded-for"),
        Some("6.6.6.6, 192.0.2.44")
    );
}

#[test]
fn silence_ends_a_connection_before_and_after_tls() {
    let authority = Authority::new();
    let conf = format!("{TLS}[limits]\nheader_seconds = 1\nkeepalive_seconds = 1\n");
    let proxy = encrypted(&authority, &conf).start();
    let started = Instant::now();
    assert!(Client::connect(proxy.edge).is_closed());
    // Over HTTP/2: no preface, and no request after it.
    let config = authority.caller(None, &["h2"]);
    for preface in [
        &b""[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    ] {
        let stream = TcpStream::connect(proxy.edge).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut stream = tls::over(stream, &config);
        stream.write_all(preface).unwrap();
        stream.flush().unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "{:?}",
        started.elapsed()
    );
    proxy.settles(r#"ati_connections{listener="edge"}"#, 0.0);
}

#[test]
fn a_drain_lets_requests_over_http2_end() {
    let authority = Authority::new();
    let (begun, go) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (seen, may) = (begun.clone(), go.clone());
    let upstream = Upstream::answering(move |_, stream| {
        seen.store(true, Ordering::Release);
        eventually("the word to go on", || {
            may.load(Ordering::Acquire).then_some(())
        });
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate";
        stream.write_all(answer).is_ok()
    });
    let mut proxy = encrypted(&authority, TLS)
        .route("api", &upstream.url(), "path_prefix = \"/api\"")
        .start();
    let config = authority.caller(None, &["h2"]);
    let edge = proxy.edge;
    let asking = std::thread::spawn(move || {
        let request = http::Request::get("https://edge.test/api/slow");
        http2(edge, &config, request.body(Vec::new()).unwrap())
    });
    eventually("the request", || {
        begun.load(Ordering::Acquire).then_some(())
    });
    proxy.signal("TERM");
    proxy.log.wait_for("draining");
    go.store(true, Ordering::Release);
    assert_eq!(asking.join().unwrap(), (200, b"late".to_vec()));
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn requests_given_up_over_http2_take_no_room_and_leave_nothing() {
    let authority = Authority::new();
    // Takes a request, and never answers.
    let upstream = Upstream::raw(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let tool =
        "[[tools]]\nname = \"hang\"\ndescription = \"d\"\nendpoint = \"/\"\nmethod = \"GET\"\n";
    let proxy = encrypted(&authority, TLS)
        .tools("t", &upstream.url(), "", tool)
        .start();
    let config = authority.caller(None, &["h2"]);
    // The series exists from the first request on, which is this one.
    let invalid = http::Request::post("https://edge.test/call").body(Vec::new());
    assert_eq!(http2(proxy.edge, &config, invalid.unwrap()).0, 422);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(proxy.edge).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(config.clone());
        let name = rustls::pki_types::ServerName::try_from("edge.test").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(async move {
            let _ = connection.await;
        });
        for _ in 0..300 {
            let Ok(mut ready) = client.clone().ready().await else {
                break;
            };
            let request = http::Request::post("https://edge.test/call")
                .body(())
                .unwrap();
            let Ok((response, mut body)) = ready.send_request(request, false) else {
                break;
            };
            let _ = body.send_data(r#"{"tool_name":"hang","args":{}}"#.into(), true);
            tokio::task::yield_now().await;
            body.send_reset(h2::Reason::CANCEL);
            drop(response);
        }
    });
    proxy.settles(r#"ati_in_flight{route="/call"}"#, 0.0);
    runtime.shutdown_background();
    proxy.settles(r#"ati_connections{listener="edge"}"#, 0.0);
    assert_eq!(
        Client::over(
            tls::over(
                TcpStream::connect(proxy.edge).unwrap(),
                &authority.caller(None, &["http/1.1"])
            ),
            "edge.test"
        )
        .get("/health")
        .status,
        200
    );
}

#[test]
fn a_call_whose_body_stalls_over_http2_is_given_up() {
    let authority = Authority::new();
    let conf = format!("{TLS}[limits]\nstall_seconds = 1\n");
    let proxy = encrypted(&authority, &conf).start();
    let config = authority.caller(None, &["h2"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let status = runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(proxy.edge).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(config.clone());
        let name = rustls::pki_types::ServerName::try_from("edge.test").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let request = http::Request::post("https://edge.test/call")
            .body(())
            .unwrap();
        let (response, mut body) = client.send_request(request, false).unwrap();
        // The rest never comes.
        body.send_data(r#"{"tool_name":"#.into(), false).unwrap();
        let response = tokio::time::timeout(PATIENCE, response).await.unwrap();
        response.unwrap().status().as_u16()
    });
    assert_eq!(status, 400);
    proxy.settles(r#"ati_in_flight{route="/call"}"#, 0.0);
}

#[test]
fn signatures_hold_over_http2() {
    let authority = Authority::new();
    let proxy = encrypted(&authority, TLS)
        .credentials(&json!({"sandbox_signing_shared_secret": SIGNING}))
        .arg("--sig-verify-mode")
        .arg("enforce")
        .start();
    let config = authority.caller(None, &["h2"]);
    let ask = |signature: Option<String>| {
        let mut request = http::Request::get("https://edge.test/tools");
        if let Some(signature) = signature {
            request = request.header("x-sandbox-signature", signature);
        }
        http2(proxy.edge, &config, request.body(Vec::new()).unwrap())
    };
    assert_eq!(ask(None), (403, b"missing_signature".to_vec()));
    assert_eq!(
        ask(Some(crate::support::tokens::sign("GET", "/tools"))).0,
        200
    );
}
