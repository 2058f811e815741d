//! Start, limits, reload and drain of a proxy.

use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::ati::{Proxy, Setup};
use crate::support::eventually;
use crate::support::http::{Client, Wire};

const QUIET: &str = r#"
    [log]
    access = false
    signatures = false
"#;

#[test]
fn two_proxies_on_port_0_get_different_ports() {
    let (one, two) = (Setup::new().start(), Setup::new().start());
    assert_ne!(one.edge, two.edge);
    for proxy in [&one, &two] {
        assert_eq!(proxy.client().get("/health").status, 200);
    }
}

#[test]
fn start_on_a_taken_port_fails_with_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for flag in ["--port", "--admin"] {
        let value = if flag == "--port" {
            port.clone()
        } else {
            format!("127.0.0.1:{port}")
        };
        let dir = tempfile::tempdir().unwrap();
        let started = Instant::now();
        let mut command = crate::support::ati::command(dir.path());
        command.args(["proxy", flag, &value]);
        if flag == "--admin" {
            command.args(["--port", "0"]);
        }
        let output = command.output().unwrap();
        assert!(started.elapsed() < Duration::from_secs(5));
        assert!(!output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(
            text.contains(&format!("can't listen on 127.0.0.1:{port}")),
            "{text}"
        );
    }
}

#[test]
fn sigterm_with_only_idle_connections_ends_at_once() {
    let mut proxy = Setup::new().start();
    let mut idle = proxy.client();
    idle.get("/health");
    let _silent = proxy.client();
    let started = Instant::now();
    proxy.signal("TERM");
    assert_eq!(proxy.wait().code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(idle.is_closed());
    proxy.log.wait_for("drained");
}

#[test]
fn drain_waits_for_a_request_in_flight() {
    let mut proxy = Setup::new().start();
    let mut slow = proxy.client();
    // After the refusal the rest of the body is read: the request is in flight until then.
    slow.write(b"POST /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nab");
    proxy.settles(r#"ati_in_flight{route="unmatched"}"#, 1.0);
    proxy.signal("TERM");
    proxy.log.wait_for("draining");
    let mut admin = Client::connect(proxy.admin);
    assert_eq!(admin.get("/ready").status, 503);
    assert_eq!(admin.get("/healthz").status, 200);
    assert!(std::net::TcpStream::connect(proxy.edge).is_err());
    assert!(proxy.is_running());
    slow.write(b"cde");
    assert_eq!(slow.read(false).status, 404);
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn drain_past_its_deadline_ends_the_process() {
    let mut proxy = Setup::new().conf("[server]\ndrain_seconds = 0\n").start();
    let mut slow = proxy.client();
    slow.write(b"POST /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nab");
    proxy.settles(r#"ati_in_flight{route="unmatched"}"#, 1.0);
    proxy.signal("TERM");
    assert_eq!(proxy.wait().code(), Some(0));
    proxy.log.wait_for("drain deadline reached");
}

#[test]
fn requests_over_the_limit_get_503() {
    let proxy = Setup::new()
        .conf("[limits]\nrequests_in_flight = 1\n")
        .start();
    let mut slow = proxy.client();
    slow.write(b"POST /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nab");
    proxy.settles(r#"ati_in_flight{route="unmatched"}"#, 1.0);
    let refused = proxy.client().get("/health");
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    slow.write(b"cde");
    slow.read(false);
    eventually("room again", || {
        (proxy.client().get("/health").status == 200).then_some(())
    });
}

#[test]
fn connections_over_the_limit_get_503() {
    let proxy = Setup::new().conf("[limits]\nconnections = 2\n").start();
    let (mut one, mut two) = (proxy.client(), proxy.client());
    one.get("/health");
    two.get("/health");
    let refused = proxy.client().get("/health");
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("too many connections"));
    drop(one);
    eventually("room again", || {
        (proxy.client().get("/health").status == 200).then_some(())
    });
    proxy.rises_to(r#"ati_refusals_total{reason="too_many_connections"}"#, 1.0);
}

#[test]
fn request_header_that_never_ends_is_cut_off() {
    let proxy = Setup::new()
        .conf(
            r#"
                [limits]
                header_seconds = 1
                keepalive_seconds = 1
            "#,
        )
        .start();
    for first_request in [true, false] {
        let mut client = proxy.client();
        if !first_request {
            assert_eq!(client.get("/health").status, 200);
        }
        let started = Instant::now();
        client.write(b"GET /health HTTP/1.1\r\nx: ");
        // A byte now and then: each read is quick, the header never ends.
        while client.try_write(b"a").is_ok() {
            assert!(started.elapsed() < Duration::from_secs(20), "still open");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn caller_that_reads_nothing_is_cut_off() {
    let proxy = Setup::new()
        .conf(
            r#"
                [limits]
                stall_seconds = 1
                requests_in_flight = 1
                [log]
                access = false
                signatures = false
            "#,
        )
        .start();
    let mut greedy = proxy.client();
    let request = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1000);
    // Sends requests and reads no answer, until the connection is closed.
    while greedy.try_write(&request).is_ok() {}
    eventually("room for others", || {
        (proxy.client().get("/health").status == 200).then_some(())
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let proxy = Setup::new().start();
    let mut client = proxy.client();
    client.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\nGET /nothing HTTP/1.1\r\nhost: x\r\n\r\nGET /health HTTP/1.1\r\nhost: x\r\n\r\n");
    let statuses: Vec<u16> = (0..3).map(|_| client.read(false).status).collect();
    assert_eq!(statuses, [200, 404, 200]);
}

#[test]
fn sigterm_with_an_unread_log_still_ends() {
    let setup = Setup::new();
    let mut child = setup
        .command()
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let ready = setup.path().join("ready");
    let addresses: serde_json::Value = eventually("the ready file", || {
        serde_json::from_slice(&std::fs::read(&ready).ok()?).ok()
    });
    let mut client = Client::connect(addresses["edge"].as_str().unwrap().parse().unwrap());
    for _ in 0..2000 {
        client.get("/health");
    }
    std::process::Command::new("kill")
        .arg(child.id().to_string())
        .status()
        .unwrap();
    let status = eventually("the end", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}

#[test]
fn connections_beyond_the_descriptor_limit_get_503() {
    let setup = Setup::new();
    let inner = setup.command();
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", "ulimit -n 164 && exec \"$@\"", "sh"])
        .arg(inner.get_program())
        .args(inner.get_args());
    shell.env_clear().envs(
        inner
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let proxy = setup.start_with(shell);
    eventually("the warning", || {
        proxy
            .log
            .text()
            .contains("open files allow 50")
            .then_some(())
    });
    let mut idle: Vec<Client> = (0..50).map(|_| proxy.client()).collect();
    for client in &mut idle {
        assert_eq!(client.get("/health").status, 200);
    }
    assert_eq!(proxy.client().get("/health").status, 503);
    assert_eq!(Client::connect(proxy.admin).get("/ready").status, 200);
}

/// Connections that are made while the proxy stops are answered or refused, never dropped.
fn drains_without_losing<S: Wire>(
    mut proxy: Proxy,
    connect: impl Fn() -> Option<Client<S>> + Sync,
) {
    let unanswered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                // A new connection per request, until connections are refused.
                while let Some(mut client) = connect() {
                    if client.try_get("/health").is_none() {
                        unanswered.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        proxy.rises_to(
            r#"ati_requests_total{method="GET",route="/health",status="2xx"}"#,
            201.0,
        );
        proxy.signal("TERM");
        assert_eq!(proxy.wait().code(), Some(0));
    });
    assert_eq!(unanswered.into_inner(), 0);
}

#[test]
fn drain_answers_every_accepted_tcp_connection() {
    let proxy = Setup::new().conf(QUIET).start();
    let edge = proxy.edge;
    drains_without_losing(proxy, || Client::try_connect(edge).ok());
}

#[test]
fn drain_answers_every_accepted_unix_connection() {
    let setup = Setup::new();
    let path = setup.path().join("edge.sock");
    let listener = format!(
        r#"
            [[listener]]
            name = "local"
            listen = "unix:{}"
        "#,
        path.display()
    );
    let proxy = setup.conf(&format!("{QUIET}{listener}")).start();
    drains_without_losing(proxy, || {
        let stream = UnixStream::connect(&path).ok()?;
        Some(Client::over(stream, "local"))
    });
}

#[test]
fn reload_with_a_bad_setting_applies_none() {
    let proxy = Setup::new().conf("[signature]\nmode = \"warn\"\n").start();
    let header = |proxy: &crate::support::ati::Proxy| {
        proxy
            .client()
            .get("/x")
            .header("x-signature-status")
            .map(str::to_owned)
    };
    assert!(header(&proxy).is_some());
    crate::support::ati::write(
        &proxy.path("ati.toml"),
        r#"
            [signature]
            mode = "log"
            [server]
            workers = 7
        "#,
    );
    assert_eq!(proxy.reload()["message"], "reload done");
    assert!(header(&proxy).is_none());
    assert!(
        proxy
            .log
            .text()
            .contains("server.workers has changed; a restart is needed")
    );
    crate::support::ati::write(
        &proxy.path("ati.toml"),
        r#"
            [signature]
            mode = "warn"
            typo = 1
        "#,
    );
    let failed = proxy.reload();
    assert!(
        failed["problems"]
            .as_str()
            .unwrap()
            .contains("signature.typo: unknown key")
    );
    assert!(header(&proxy).is_none());
}
