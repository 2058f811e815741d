//! How upstreams are reached: names, source addresses, TLS.

use super::{KEY, with_keys};
use crate::support::ati::Setup;
use crate::support::dns::Nameserver;
use crate::support::tls::Authority;
use crate::support::upstream::Upstream;

#[test]
fn unresolvable_name_delays_only_its_own_route() {
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
    // All twelve share one resolution; one after the other would take twelve seconds.
    assert!(
        started.elapsed() < std::time::Duration::from_secs(6),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn reload_keeps_resolved_addresses() {
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
fn connections_leave_from_the_configured_source_address() {
    let upstream = Upstream::echo();
    let url = upstream.url();
    let proxy = Setup::new()
        .conf(
            r#"
                [server]
                workers = 1
                [egress]
                source = "127.0.0.2"
                [egress.addresses]
                other = "127.0.0.3"
            "#,
        )
        .route("default", &url, "path_prefix = '/default'")
        .route("other", &url, "path_prefix = '/other'\negress = 'other'")
        .start();
    for _ in 0..3 {
        for (path, source) in [("/default/x", "127.0.0.2"), ("/other/x", "127.0.0.3")] {
            assert_eq!(proxy.client().get(path).status, 200);
            assert_eq!(upstream.last().peer.ip().to_string(), source, "{path}");
        }
    }
    // One pooled connection for each source address.
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
fn resolved_addresses_are_cached_and_tried_in_turn() {
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
    let access = proxy.log.wait_for("request");
    assert_eq!(
        (&access["attempts"], &access["level"]),
        (&3.into(), &"INFO".into())
    );
    // One question for A and one for AAAA.
    assert!(nameserver.asked() <= 2, "{}", nameserver.asked());

    let empty = Nameserver::answering(&[]);
    let proxy = Setup::new()
        .conf(&format!(
            "[egress]\nnameservers = [\"{}\"]\n",
            empty.address
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
fn upstream_certificate_is_verified_for_names_and_addresses() {
    let (ours, foreign) = (Authority::new(), Authority::new());
    let nameserver = Nameserver::answering(&["127.0.0.1"]);
    let port = |address: std::net::SocketAddr| address.port();
    let named = port(ours.serve("up.test", true));
    let setup = with_keys().file("ca.pem", ours.pem());
    let proxy = setup
        .conf(&format!(
            r#"
                [egress]
                ca_file = "ca.pem"
                nameservers = ["{}"]
            "#,
            nameserver.address
        ))
        .route(
            "h2",
            &format!("https://up.test:{named}"),
            r#"
                path_prefix = '/h2'
                auth_type = 'bearer'
                auth_key_name = 'api_key'
                max_request_bytes = 1000
            "#,
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
    // The cap holds over HTTP/2 too.
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
