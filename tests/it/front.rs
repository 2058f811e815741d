//! Caddy, with the Caddyfile that we ship, in front of real edges. Run by `make test-full`.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::{ClientRequestBuilder, Message};

use crate::support::ati::{Setup, tells_nothing};
use crate::support::http::{Client, Response};
use crate::support::tokens::{SIGNING, sign};
use crate::support::upstream::{Received, Upstream};
use crate::support::{PATIENCE, eventually};

/// A running Caddy, and a way to it for clients that don't speak TLS. It is killed when the test ends.
struct Caddy {
    dir: TempDir,
    child: Child,
    /// Whoever connects here talks to Caddy over TLS.
    address: SocketAddr,
}

impl Caddy {
    fn start(edges: &[SocketAddr]) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let found = Command::new(root.join("tests/deploy/tool"))
            .arg("caddy")
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(found.status.success(), "Caddy can't be had");
        let program = String::from_utf8(found.stdout).unwrap();

        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        std::fs::write(at("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(at("key.pem"), made.signing_key.serialize_pem()).unwrap();
        let edges: Vec<String> = edges.iter().map(SocketAddr::to_string).collect();
        let port = free_port();
        let mut child = Command::new(program.trim())
            .args(["run", "--adapter", "caddyfile", "--config"])
            .arg(root.join("caddy/Caddyfile"))
            .env_clear()
            .env("HOME", dir.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("ATI_SITE", "localhost, 127.0.0.1")
            .env("ATI_PORT", port.to_string())
            .env("ATI_TLS", format!("{} {}", at("cert.pem"), at("key.pem")))
            .env("ATI_EDGES", edges.join(" "))
            .env("ATI_ACCESS_LOG", format!("file {}", at("access.log")))
            .env("ATI_CADDY_LOG", format!("file {}", at("caddy.log")))
            .env("ATI_CADDY_ADMIN", format!("unix/{}", at("admin.sock")))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let theirs = SocketAddr::from(([127, 0, 0, 1], port));
        eventually("Caddy's port", || {
            assert!(child.try_wait().unwrap().is_none(), "Caddy ended");
            TcpStream::connect(theirs).ok()
        });
        let address = tls_to(theirs, made.cert.der().clone());
        Caddy {
            dir,
            child,
            address,
        }
    }

    fn client(&self) -> Client {
        Client::connect(self.address)
    }

    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        self.client().send(method, path, headers, body)
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }

    /// The access log's records, once there are so many.
    fn access_log(&self, count: usize) -> Vec<Value> {
        eventually("the access log", || {
            let text = self.file("access.log");
            let lines = text.lines().map(|line| serde_json::from_str(line).ok());
            lines
                .collect::<Option<Vec<Value>>>()
                .filter(|lines| lines.len() >= count)
        })
    }
}

impl Drop for Caddy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            tells_nothing("Caddy's access log", &self.file("access.log"));
            tells_nothing("Caddy's log", &self.file("caddy.log"));
        }
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A port that speaks TLS to another one.
fn tls_to(theirs: SocketAddr, certificate: CertificateDer<'static>) -> SocketAddr {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((mut near, _)) = listener.accept().await {
                let connector = connector.clone();
                tokio::spawn(async move {
                    let far = tokio::net::TcpStream::connect(theirs).await.unwrap();
                    let name = ServerName::try_from("localhost").unwrap();
                    let mut far = connector.connect(name, far).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
    });
    address
}

fn enforcing() -> Setup {
    Setup::new()
        .credentials(&json!({
            "api_key": "planted-upstream-key", "sandbox_signing_shared_secret": SIGNING,
        }))
        .arg("--sig-verify-mode")
        .arg("enforce")
}

#[test]
#[ignore = "needs Caddy"]
fn a_signed_request_arrives_and_an_unsigned_one_does_not() {
    let upstream = Upstream::echo();
    let proxy = enforcing()
        .route(
            "svc",
            &upstream.url(),
            "path_prefix = '/svc'\nauth_type = 'bearer'\nauth_key_name = 'api_key'",
        )
        .start();
    let caddy = Caddy::start(&[proxy.edge]);
    let signature = sign("GET", "/svc/a");
    let signed = [
        ("X-Sandbox-Signature", signature.as_str()),
        ("X-Sandbox-Job-Id", "job-5"),
    ];
    let response = caddy.send("GET", "/svc/a?b=%2f", &signed, b"");
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.json()["target"], "/a?b=%2f");
    let key = upstream.last().header("authorization").map(str::to_owned);
    assert_eq!(key.as_deref(), Some("Bearer planted-upstream-key"));
    let seen = proxy.log.wait_for("sig_verify");
    assert_eq!(
        (&seen["valid"], &seen["job_id"]),
        (&json!(true), &json!("job-5"))
    );

    let response = caddy.send("GET", "/svc/a", &[], b"");
    assert_eq!(
        (response.status, response.text().as_str()),
        (403, "missing_signature")
    );
    assert_eq!(upstream.received().len(), 1);
    // What isn't on the edge's port isn't behind Caddy either.
    for path in ["/metrics", "/keyring", "/credentials", "/ready"] {
        let signature = sign("GET", path);
        let signed = [("X-Sandbox-Signature", signature.as_str())];
        assert_eq!(caddy.send("GET", path, &signed, b"").status, 404, "{path}");
    }
    // Another name than the ones that Caddy has.
    let mut client = caddy.client();
    client.write(b"GET /health HTTP/1.1\r\nhost: elsewhere.example\r\n\r\n");
    assert_eq!(client.read(false).status, 421);
}

/// What a caller could say in order to be taken for somebody else.
const FORGED: &[(&str, &str)] = &[
    ("X-Forwarded-For", "203.0.113.66"),
    ("x-forwarded-for", "203.0.113.67"),
    ("X-Forwarded-Proto", "gopher-203.0.113.66"),
    ("X-Forwarded-Host", "203.0.113.66"),
    ("X-Forwarded-Port", "203.0.113.66"),
    ("X-Forwarded-Client-Cert", "203.0.113.66"),
    ("Forwarded", "for=203.0.113.66"),
    ("X-Real-IP", "203.0.113.66"),
    ("Via", "1.1 203.0.113.66"),
    ("True-Client-IP", "203.0.113.66"),
    ("CF-Connecting-IP", "203.0.113.66"),
    ("X-Client-IP", "203.0.113.66"),
    ("X-Cluster-Client-IP", "203.0.113.66"),
    ("X-Original-URL", "/203.0.113.66"),
    ("X-Sandbox-Id", "203.0.113.66"),
    ("x-sandbox-customer", "203.0.113.66"),
    ("X_Sandbox_Signature", "203.0.113.66"),
    ("X-Sandbox_Signature", "203.0.113.66"),
    ("X_Forwarded_For", "203.0.113.66"),
    ("X-Forwarded_For", "203.0.113.66"),
    ("X-Real_IP", "203.0.113.66"),
    ("Proxy", "203.0.113.66"),
    ("Connection", "X-Forwarded-For, X-Forwarded-Proto"),
];

fn shows_no_forgery(received: &Received) {
    for (name, value) in &received.headers {
        assert!(!value.contains("203.0.113"), "{name}: {value}");
        assert!(!name.contains('_'), "{name}: {value}");
    }
    for name in ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"] {
        assert!(received.all(name).len() < 2, "{name} came twice");
    }
}

#[test]
#[ignore = "needs Caddy"]
fn what_a_caller_says_about_itself_does_not_arrive() {
    let upstream = Upstream::echo();
    let proxy = enforcing()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    let caddy = Caddy::start(&[proxy.edge]);
    let signature = sign("GET", "/svc/a");
    let mut headers = FORGED.to_vec();
    headers.push(("X-Sandbox-Signature", &signature));
    assert_eq!(caddy.send("GET", "/svc/a", &headers, b"").status, 200);
    shows_no_forgery(&upstream.last());
    assert!(!proxy.log.text().contains("203.0.113"));

    // What an edge gets, without one in between.
    let edge = Upstream::echo();
    let caddy = Caddy::start(&[edge.address]);
    let wanted = |caddy: &Caddy, headers: &[(&str, &str)]| {
        let host = caddy.address.to_string();
        assert_eq!(caddy.send("GET", "/svc/a", headers, b"").status, 200);
        let received = edge.received();
        let received = received.iter().rfind(|r| r.target == "/svc/a").unwrap();
        shows_no_forgery(received);
        assert_eq!(received.header("x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!(received.header("x-forwarded-proto"), Some("https"));
        assert_eq!(received.header("x-forwarded-host"), Some(host.as_str()));
        received.clone()
    };
    headers.push(("X-Sandbox-Job-Id", "{env.HOME}"));
    headers.push(("X-Api-Key", "planted-callers-own"));
    let received = wanted(&caddy, &headers);
    let sandbox: Vec<_> = received
        .headers
        .iter()
        .filter(|(name, _)| name.starts_with("x-sandbox"))
        .collect();
    assert_eq!(sandbox.len(), 2, "{sandbox:?}");
    assert_eq!(
        received.header("x-sandbox-signature"),
        Some(signature.as_str())
    );
    // As it was sent: a caller can't have Caddy look something up.
    assert_eq!(received.header("x-sandbox-job-id"), Some("{env.HOME}"));
    assert_eq!(received.header("x-api-key"), Some("planted-callers-own"));
    // What wasn't there isn't there now.
    let received = wanted(&caddy, FORGED);
    assert_eq!(received.header("x-sandbox-signature"), None);
    assert_eq!(received.header("x-sandbox-job-id"), None);
}

#[test]
#[ignore = "needs Caddy"]
fn the_logs_tell_no_secret() {
    let upstream = Upstream::echo();
    let proxy = enforcing()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    let headers = [
        ("Authorization", "Bearer planted-bearer"),
        ("Cookie", "session=planted-cookie"),
        ("X-Sandbox-Signature", "t=1,s=planted-signature"),
        ("X-Api-Key", "planted-key"),
        ("Referer", "https://example.com/?token=planted-referer"),
    ];
    let caddy = Caddy::start(&[proxy.edge]);
    for query in [
        "api_key=planted-a",
        "x=1&token=planted-b",
        "%61pi_key=planted-c?key=planted-d",
    ] {
        caddy.send("GET", &format!("/svc/a?{query}"), &headers, b"");
    }
    let mut client = caddy.client();
    client.write(b"GET /svc/b?key=planted-f HTTP/1.1\r\nhost: LOCALHOST:443\r\n\r\n");
    client.read(false);
    let lines = caddy.access_log(4);
    assert_eq!(lines[3]["request"]["uri"], "/svc/b");
    assert_eq!(lines[0]["request"]["uri"], "/svc/a");
    assert_eq!(lines[0]["status"], 403);
    assert_eq!(lines[0]["request"]["headers"], Value::Null);
    drop(caddy);

    // An edge that breaks off: Caddy says so in its own log, with the request.
    let edge = Upstream::answering(|received, stream| {
        received.target == "/health"
            && stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                .is_ok()
    });
    let caddy = Caddy::start(&[edge.address]);
    let response = caddy.send("GET", "/svc/a?api_key=planted-e", &headers, b"");
    assert_eq!(response.status, 502);
    eventually("Caddy's own record", || {
        caddy.file("caddy.log").contains("/svc/a").then_some(())
    });
    // Both are looked at when they end.
}

#[test]
#[ignore = "needs Caddy"]
fn websockets_pass() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut socket = tungstenite::accept(stream).unwrap();
                while let Ok(message) = socket.read() {
                    if message.is_text() || message.is_binary() {
                        let _ = socket.send(message);
                    }
                }
            });
        }
    });
    let more = "path_prefix = '/ws'\nforward_websockets = true";
    let proxy = enforcing()
        .route("ws", &format!("http://{address}"), more)
        .start();
    let caddy = Caddy::start(&[proxy.edge]);
    let url = format!("ws://{}/ws/room", caddy.address);
    let request = ClientRequestBuilder::new(url.parse().unwrap())
        .with_header("X-Sandbox-Signature", sign("GET", "/ws/room"));
    let stream = TcpStream::connect(caddy.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut socket, _) = tungstenite::client(request, stream).unwrap();
    for size in [0, 125, 126, 65_536, 1 << 20] {
        socket.send(Message::Binary(vec![7; size].into())).unwrap();
        assert_eq!(socket.read().unwrap().len(), size);
    }
    socket.send(Message::Text("hello é".into())).unwrap();
    assert_eq!(socket.read().unwrap().to_text().unwrap(), "hello é");
    socket.close(None).unwrap();
    while socket.read().is_ok() {}
}

const LARGE: usize = 64 << 20;

/// Half of a large body is there before the other half is sent, and all of it is what was sent.
#[test]
#[ignore = "needs Caddy"]
fn a_large_upload_is_streamed() {
    let arrived = Arc::new(AtomicUsize::new(0));
    let counted = arrived.clone();
    let upstream = Upstream::raw(move |mut stream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read(&mut byte).unwrap_or(0) == 0 {
                return;
            }
            head.push(byte[0]);
        }
        let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
        let mut buffer = vec![0; 1 << 16];
        let mut total = 0;
        while total < LARGE {
            let Ok(count @ 1..) = stream.read(&mut buffer) else {
                return;
            };
            digest.update(&buffer[..count]);
            total += count;
            counted.store(total, Ordering::SeqCst);
        }
        let mut text = String::new();
        for byte in digest.finish().as_ref() {
            write!(text, "{byte:02x}").unwrap();
        }
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        );
        let _ = stream.write_all(answer.as_bytes());
    });
    let proxy = enforcing()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    let caddy = Caddy::start(&[proxy.edge]);

    let body: Vec<u8> = (0..LARGE)
        .map(|i| (i % 251) as u8 ^ (i >> 16) as u8)
        .collect();
    let mut client = caddy.client();
    let head = format!(
        "POST /svc/up HTTP/1.1\r\nhost: localhost\r\ncontent-length: {LARGE}\r\nx-sandbox-signature: {}\r\n\r\n",
        sign("POST", "/svc/up")
    );
    client.write(head.as_bytes());
    client.write(&body[..LARGE / 2]);
    // What is still on its way fits into the buffers of sockets.
    eventually("the first half", || {
        (arrived.load(Ordering::SeqCst) > LARGE / 4).then_some(())
    });
    client.write(&body[LARGE / 2..]);
    let mut wanted = String::new();
    for byte in ring::digest::digest(&ring::digest::SHA256, &body).as_ref() {
        write!(wanted, "{byte:02x}").unwrap();
    }
    let response = client.read(false);
    assert_eq!((response.status, response.text()), (200, wanted));
}

#[test]
#[ignore = "needs Caddy"]
fn an_answer_is_streamed() {
    let (go, went) = mpsc::channel::<()>();
    let went = std::sync::Mutex::new(went);
    let upstream = Upstream::answering(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        // Only once the caller has the first part.
        went.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        stream.write_all(b"3\r\ntwo\r\n0\r\n\r\n").is_ok()
    });
    let proxy = enforcing()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    let caddy = Caddy::start(&[proxy.edge]);
    let mut client = caddy.client();
    let head = format!(
        "GET /svc/events HTTP/1.1\r\nhost: localhost\r\nx-sandbox-signature: {}\r\n\r\n",
        sign("GET", "/svc/events")
    );
    client.write(head.as_bytes());
    let mut answer = Vec::new();
    while !answer.ends_with(b"3\r\none\r\n") {
        answer.extend(client.read_some());
    }
    go.send(()).unwrap();
    while !answer.ends_with(b"3\r\ntwo\r\n0\r\n\r\n") {
        answer.extend(client.read_some());
    }

    // An answer of known length too, as far as it is Caddy's to decide.
    let (go, went) = mpsc::channel::<()>();
    let went = std::sync::Mutex::new(went);
    let edge = Upstream::answering(move |received, stream| {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\none";
        stream.write_all(head.as_bytes()).unwrap();
        if received.target != "/health" {
            went.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        }
        stream.write_all(b"two").is_ok()
    });
    let caddy = Caddy::start(&[edge.address]);
    let mut client = caddy.client();
    client.write(b"GET /svc/events HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let mut answer = Vec::new();
    while !answer.ends_with(b"one") {
        answer.extend(client.read_some());
    }
    go.send(()).unwrap();
    while !answer.ends_with(b"onetwo") {
        answer.extend(client.read_some());
    }
}

#[test]
#[ignore = "needs Caddy"]
fn an_edge_ends_and_requests_go_on() {
    let upstream = Upstream::echo();
    let edge = || {
        enforcing()
            .route("svc", &upstream.url(), "path_prefix = '/svc'")
            .start()
    };
    let (mut one, two) = (edge(), edge());
    let caddy = Caddy::start(&[one.edge, two.edge]);
    let ask = |method: &str, body: &[u8]| {
        let signature = sign(method, "/svc/a");
        let headers = [("X-Sandbox-Signature", signature.as_str())];
        caddy.send(method, "/svc/a", &headers, body)
    };
    let get = || {
        let response = ask("GET", b"");
        assert_eq!(response.status, 200, "{}", response.text());
    };
    (0..10).for_each(|_| get());
    let served = r#"ati_requests_total{method="GET",route="svc",status="2xx"}"#;
    one.settles(served, 5.0);
    two.settles(served, 5.0);

    one.signal("TERM");
    // While it ends, and after. With a body, only once Caddy has noticed; what fails until then has reached nobody.
    let mut rounds_without = 0;
    while rounds_without < 10 {
        get();
        ask("POST", b"body");
        rounds_without += usize::from(!one.is_running());
    }
    assert!(one.wait().success());
    eventually("only the other edge", || {
        let all = (0..4).all(|_| ask("POST", b"body").status == 200);
        all.then_some(())
    });
    let served = upstream.received();
    let posts = served.iter().filter(|request| request.method == "POST");
    assert!(posts.clone().all(|post| post.body == b"body"));
    let metrics = Client::connect(two.admin).get("/metrics").text();
    for line in metrics.lines() {
        if line.starts_with(r#"ati_requests_total{method="POST""#) {
            assert!(line.contains(r#"status="2xx""#), "{line}");
        }
    }
}

#[test]
#[ignore = "needs Caddy"]
fn what_an_edge_may_have_received_is_not_sent_again() {
    let healthy = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let breaks_off = || {
        Upstream::answering(move |received, stream| {
            received.target == "/health" && stream.write_all(healthy).is_ok()
        })
    };
    let (one, two) = (breaks_off(), breaks_off());
    let caddy = Caddy::start(&[one.address, two.address]);
    for method in ["GET", "POST"] {
        assert_eq!(caddy.send(method, "/once", &[], b"").status, 502);
    }
    let times = |edge: &Upstream| {
        let received = edge.received();
        received.iter().filter(|r| r.target == "/once").count()
    };
    assert_eq!(times(&one) + times(&two), 2);
}
