//! Listeners that expect PROXY headers.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::{TLS, encrypted, logged_peer};
use crate::support::ati::{Setup, write};
use crate::support::http::Client;
use crate::support::tls::{self, Authority};
use crate::support::{PATIENCE, eventually};

/// A PROXY header of version 2 for TCP over IPv4, from 192.0.2.7:1234.
fn header() -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    bytes.extend([192, 0, 2, 7, 127, 0, 0, 1, 4, 210, 1, 187]);
    bytes
}

const ASK: &[u8] = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n";

/// Sends these bytes on a new connection, and returns all that comes back until it ends.
fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn proxy_protocol_listener_refuses_connections_without_a_whole_header() {
    let proxy = Setup::new()
        .conf(
            r#"
                [server]
                proxy_protocol = true
                trusted_proxies = ["127.0.0.1"]
                [limits]
                header_seconds = 1

                [[listener]]
                name = "plain"
                listen = "127.0.0.1:0"
            "#,
        )
        .start();
    let ask = |path: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").into_bytes()
    };
    let good = exchange(proxy.edge, &[header(), ask("/a")].concat());
    assert!(good.starts_with("HTTP/1.1 404"), "{good}");
    assert_eq!(logged_peer(&proxy, "/a"), "192.0.2.7:1234");

    // A LOCAL header, as in a proxy's health check, has no address.
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
    // The two whole headers are counted as HTTP: the second of them is no request.
    proxy.settles(r#"ati_refusals_total{reason="proxy_protocol"}"#, 6.0);

    // Half a header, then silence.
    let started = Instant::now();
    let mut silent = Client::connect(proxy.edge);
    silent.write(&whole[..14]);
    assert!(silent.is_closed());
    assert!(started.elapsed() < Duration::from_secs(10));

    // On a listener without PROXY protocol the header is invalid HTTP, and its address is ignored.
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
fn proxy_header_without_an_address_makes_the_caller_untrusted() {
    let proxy = Setup::new()
        .conf(
            r#"
                [server]
                proxy_protocol = true
                trusted_proxies = ["127.0.0.1"]
            "#,
        )
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
        // A LOCAL header is a request of the proxy itself, which is trusted.
        let believed = line["client"] == "6.6.6.6";
        assert_eq!(believed, path == "/own", "{line}");
    }
}

#[test]
fn proxy_header_of_an_untrusted_peer_is_refused() {
    let proxy = Setup::new()
        .conf(
            r#"
                [server]
                proxy_protocol = true
                trusted_proxies = ["127.0.0.9"]
            "#,
        )
        .start();
    assert_eq!(exchange(proxy.edge, &[header(), ASK.to_vec()].concat()), "");
    proxy.settles(r#"ati_refusals_total{reason="untrusted_proxy"}"#, 1.0);
}

#[test]
fn reload_that_drops_proxy_protocol_is_refused() {
    let with = r#"
        [server]
        proxy_protocol = true
        trusted_proxies = ["127.0.0.1"]
    "#;
    let proxy = Setup::new().conf(with).start();
    let serves = || exchange(proxy.edge, &[header(), ASK.to_vec()].concat());
    assert!(serves().starts_with("HTTP/1.1 200"));
    for conf in [
        "[server]\n",
        r#"
            [server]
            proxy_protocol = false
            trusted_proxies = ["unix"]
        "#,
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
fn proxy_header_before_tls_is_read_where_expected() {
    let authority = Authority::new();
    let conf = format!(
        r#"
            [server]
            proxy_protocol = true
            trusted_proxies = ["127.0.0.0/8"]
            {TLS}
        "#
    );
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

    // A forged header on a TLS listener that expects none.
    let proxy = encrypted(&authority, TLS).start();
    let mut stream = TcpStream::connect(proxy.edge).unwrap();
    stream.write_all(&header()).unwrap();
    let mut client = Client::over(tls::over(stream, &config), "edge.test");
    assert!(client.try_get("/health").is_none());
}
