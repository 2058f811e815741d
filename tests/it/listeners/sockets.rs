//! Settings of listeners, Unix sockets, forwarding headers, silent connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use super::{TLS, encrypted, logged_peer};
use crate::support::ati::{Proxy, Setup};
use crate::support::http::Client;
use crate::support::tls::{self, Authority};
use crate::support::upstream::Upstream;
use crate::support::{PATIENCE, eventually};

#[test]
fn listener_settings_with_many_problems_report_all_at_once() {
    let output = Setup::new()
        .conf(
            r#"
                [server]
                proxy_protocol = true
                trusted_proxies = ["not-a-network"]
                [server.tls]
                certificate = "none.pem"

                [[listener]]
                name = "edge"
                listen = "here"

                [[listener]]
                name = "b"
                listen = "unix:/x"
                mode = "9"
                mod = 1
            "#,
        )
        .output();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    for said in [
        "server.trusted_proxies",
        "'not-a-network'",
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

#[test]
fn unix_listener_replaces_only_abandoned_sockets() {
    let setup = Setup::new();
    let path = setup.path().join("edge.sock");
    // A socket that a dead process left behind is replaced.
    drop(UnixListener::bind(&path).unwrap());
    let conf = format!(
        r#"
            [[listener]]
            name = "local"
            listen = "unix:{}"
            mode = "0600"
        "#,
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

    // A socket in use is not.
    let output = Setup::new().conf(&conf).output();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && text.contains("another process listens there"),
        "{text}"
    );
    assert_eq!(client.get("/health").status, 200);
    // A file that isn't a socket is not.
    let other = Setup::new();
    let file = other.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    let conf = format!(
        r#"
            [[listener]]
            name = "local"
            listen = "unix:{}"
        "#,
        file.display()
    );
    assert!(!other.conf(&conf).output().status.success());
}

#[test]
fn forwarded_for_is_believed_only_of_trusted_proxies() {
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
    // Without trusted proxies the header is ignored, and passed on unchanged.
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
fn silent_connections_are_closed_before_and_after_tls() {
    let authority = Authority::new();
    let conf = format!(
        r#"
            {TLS}[limits]
            header_seconds = 1
            keepalive_seconds = 1
        "#
    );
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
