//! Starting, reloading, being too busy, ending.

use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::ati::{Proxy, Setup};
use crate::support::eventually;
use crate::support::http::{Client, Wire};

const QUIET: &str = "[log]\naccess = false\nsignatures = false\n";

#[test]
fn two_at_once_get_ports_of_their_own() {
    let (one, two) = (Setup::new().start(), Setup::new().start());
    assert_ne!(one.edge, two.edge);
    for proxy in [&one, &two] {
        assert_eq!(proxy.client().get("/health").status, 200);
    }
}

#[test]
fn a_taken_port_is_one_line_at_once() {
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
fn idle_it_ends_at_once_whoever_is_still_connected() {
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
fn a_request_in_flight_is_waited_for() {
    let mut proxy = Setup::new().start();
    let mut slow = proxy.client();
    // The refusal is written, then the rest of the body is read away: the request is in flight until it came.
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
fn the_drain_has_a_deadline() {
    let mut proxy = Setup::new().conf("[server]\ndrain_seconds = 0\n").start();
    let mut slow = proxy.client();
    slow.write(b"POST /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nab");
    proxy.settles(r#"ati_in_flight{route="unmatched"}"#, 1.0);
    proxy.signal("TERM");
    assert_eq!(proxy.wait().code(), Some(0));
    proxy.log.wait_for("drain deadline reached");
}

#[test]
fn more_requests_than_allowed_get_503() {
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
fn more_connections_than_allowed_get_503() {
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
fn a_header_that_never_ends_is_cut_off() {
    let proxy = Setup::new()
        .conf("[limits]\nheader_seconds = 1\nkeepalive_seconds = 1\n")
        .start();
    for first_request in [true, false] {
        let mut client = proxy.client();
        if !first_request {
            assert_eq!(client.get("/health").status, 200);
        }
        let started = Instant::now();
        client.write(b"GET /health HTTP/1.1\r\nx: ");
        // A byte now and then: each read is quick, the header never comes.
        while client.try_write(b"a").is_ok() {
            assert!(started.elapsed() < Duration::from_secs(20), "still open");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_caller_that_takes_nothing_is_cut_off() {
    let proxy = Setup::new()
        .conf("[limits]\nstall_seconds = 1\nrequests_in_flight = 1\n[log]\naccess = false\nsignatures = false\n")
        .start();
    let mut greedy = proxy.client();
    let request = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1000);
    // Asks for more and more, and reads nothing, until it is thrown out.
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
fn it_ends_even_when_nobody_reads_its_log() {
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
fn more_connections_than_descriptors_are_refused_not_left_hanging() {
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

/// Whoever still connects while the proxy stops is answered or refused.
fn drains_without_losing<S: Wire>(
    mut proxy: Proxy,
    connect: impl Fn() -> Option<Client<S>> + Sync,
) {
    let unanswered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                // A new connection per request, until nobody listens any more.
                while let Some(mut client) = connect() {
                    if client.try_get("/health").is_none() {
                        unanswered.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        proxy.rises_to(r#"ati_requests_total{method="GET",route="/health",status="2xx"}"#, 201.0);
        proxy.signal("TERM");
        assert_eq!(proxy.wait().code(), Some(0));
    });
    assert_eq!(unanswered.into_inner(), 0);
}

#[test]
fn a_drain_answers_whoever_got_through() {
    let proxy = Setup::new().conf(QUIET).start();
    let edge = proxy.edge;
    drains_without_losing(proxy, || Client::try_connect(edge).ok());
}

#[test]
fn a_drain_answers_whoever_got_through_a_unix_socket() {
    let setup = Setup::new();
    let path = setup.path().join("edge.sock");
    let listener = format!(
        "[[listener]]\nname = \"local\"\nlisten = \"unix:{}\"\n",
        path.display()
    );
    let proxy = setup.conf(&format!("{QUIET}{listener}")).start();
    drains_without_losing(proxy, || {
        let stream = UnixStream::connect(&path).ok()?;
        Some(Client::over(stream, "local"))
    });
}

#[test]
fn settings_are_reloaded_whole_or_not_at_all() {
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
        "[signature]\nmode = \"log\"\n[server]\nworkers = 7\n",
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
        "[signature]\nmode = \"warn\"\ntypo = 1\n",
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
