//! What a successor takes over, and what happens where it cannot.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ati::auth::token::{Claims, Namespace};
use ati::keyring::SessionKey;
use serde_json::json;

use super::{Played, relay_replaces_the_program};
use crate::support::ati::{Log, Proxy, Setup, ati, stderr, write};
use crate::support::eventually;
use crate::support::http::Client;
use crate::support::tokens::{bearer, claims, key_pair};
use crate::support::upstream::Upstream;

#[test]
fn successor_takes_the_sockets_and_the_old_process_ends() {
    let setup = Setup::new();
    let socket = setup.path().join("edge.sock");
    let conf = format!(
        r#"
            [[listener]]
            name = "local"
            listen = "unix:{}"
        "#,
        socket.display()
    );
    let mut proxy = setup.conf(&conf).start();
    let (edge, admin) = (proxy.edge, proxy.admin);
    let mut kept = Client::connect(edge);
    assert_eq!(kept.get("/health").status, 200);
    let first = proxy.pid();

    for _ in 0..3 {
        let mut former = proxy.upgrade();
        assert_eq!(former.wait().code(), Some(0));
        former.log.wait_for("drained");
        assert_ne!(proxy.pid(), first);
        assert_eq!(Client::connect(edge).get("/health").status, 200);
        assert_eq!(Client::connect(admin).get("/ready").status, 200);
        let mut local = Client::over(UnixStream::connect(&socket).unwrap(), "local");
        assert_eq!(local.get("/health").status, 200);
    }
    assert!(kept.is_closed());
    // The mode of an inherited socket is set to what the settings say now.
    write(&proxy.path("ati.toml"), format!("{conf}mode = \"0600\"\n"));
    proxy.upgrade().wait();
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A reload and a stop still work.
    assert_eq!(proxy.reload()["message"], "reload done");
    proxy.signal("TERM");
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn successor_that_cannot_start_changes_nothing() {
    let setup = Setup::new().conf("[limits]\nconnections = 100\n");
    let mut proxy = relay_replaces_the_program(setup);
    let mut kept = proxy.client();
    assert_eq!(kept.get("/health").status, 200);
    for (conf, says) in [
        ("[limits]\nconnections = 0\n", "limits.connections"),
        (
            r#"
                [server.tls]
                certificate = "a"
                key = "b"
            "#,
            "can't be read",
        ),
        ("nonsense", "ati.toml"),
    ] {
        write(&proxy.path("ati.toml"), conf);
        let output = proxy.successor().output().unwrap();
        assert!(!output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(says), "{text}");
        assert_eq!(kept.get("/health").status, 200);
        assert_eq!(proxy.client().get("/health").status, 200);
    }
    // A further listener whose port is taken.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let conf = format!(
        r#"
            [[listener]]
            name = "more"
            listen = "{}"
        "#,
        taken.local_addr().unwrap()
    );
    write(&proxy.path("ati.toml"), &conf);
    let output = proxy.successor().output().unwrap();
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("can't listen")
    );
    assert_eq!(kept.get("/health").status, 200);
    // A successor that dies after it got the listeners.
    drop(Played::successor(&proxy));
    proxy.log.wait_for("nothing was handed over");
    drop(taken);
    let mut former = proxy.upgrade();
    assert_eq!(former.wait().code(), Some(0));
    let more: Log = proxy.log.clone();
    assert!(
        more.wait_for("ATI proxy server starting")["others"]
            .as_str()
            .unwrap()
            .starts_with("more=")
    );
    assert_eq!(proxy.client().get("/health").status, 200);
}

#[test]
fn proxy_flooded_with_connections_still_ends() {
    let mut proxy = Setup::new().conf("[server]\ndrain_seconds = 1\n").start();
    let over = Arc::new(AtomicBool::new(false));
    let flood: Vec<_> = (0..4)
        .map(|_| {
            let (over, edge) = (over.clone(), proxy.edge);
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let _ = std::net::TcpStream::connect(edge);
                }
            })
        })
        .collect();
    let started = Instant::now();
    proxy.signal("TERM");
    proxy.wait();
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
    over.store(true, Ordering::Relaxed);
    for thread in flood {
        thread.join().unwrap();
    }
}

#[test]
fn upgrade_without_a_running_proxy_fails_with_one_line() {
    let output = Setup::new().arg("--upgrade").output();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("start without --upgrade"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn upgrade_socket_is_accessible_to_its_owner_only() {
    let proxy = Setup::new().start();
    let mode = |name: &str| {
        let at = std::fs::metadata(proxy.path(name)).unwrap();
        at.permissions().mode() & 0o777
    };
    assert_eq!(mode("run"), 0o700);
    assert_eq!(mode("run/upgrade.sock"), 0o600);
    // A second proxy on the same folder runs, and can't be upgraded.
    let mut second = second_proxy(&proxy);
    let log = Log::follow(second.stderr.take().unwrap());
    log.wait_for("this process can't be upgraded");
    log.wait_for("ATI proxy server starting");
    second.kill().unwrap();
    second.wait().unwrap();
    assert_eq!(proxy.client().get("/health").status, 200);
    // That it looked for the socket is no hand-over. The answer to a request that came after it
    // says that it is dealt with.
    assert!(ati(proxy.dir.path(), &["status"]).status.success());
    for message in ["a new process asks", "nothing was handed over"] {
        assert!(proxy.log.find_all(message).is_empty(), "{message}");
    }
}

#[test]
fn proxy_started_during_a_drain_can_be_upgraded() {
    let upstream = Upstream::echo();
    let mut proxy = Setup::new()
        .route("up", &upstream.url(), "path_prefix = '/up'")
        .start();
    let mut slow = proxy.client();
    slow.write(super::HALF);
    proxy.settles(r#"ati_in_flight{route="/call"}"#, 1.0);
    proxy.signal("TERM");
    proxy.log.wait_for("draining");
    let pid = |output: &std::process::Output| {
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        status["pid"].as_u64()
    };
    let mut second = second_proxy(&proxy);
    let asked = eventually("the new process to answer for the folder", || {
        pid(&ati(proxy.dir.path(), &["status"]))
    });
    assert_eq!(asked, u64::from(second.id()));
    assert!(proxy.is_running());
    let mut third = crate::support::ati::command(proxy.dir.path());
    let third = third.args(["proxy", "--port", "0", "--upgrade"]);
    let mut third = third.stderr(Stdio::piped()).spawn().unwrap();
    let log = Log::follow(third.stderr.take().unwrap());
    log.wait_for("ATI proxy server starting");
    assert!(second.wait().unwrap().success());
    third.kill().unwrap();
    third.wait().unwrap();
    slow.write(b"cd");
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn second_proxy_takes_the_upgrade_socket_once_the_first_has_ended() {
    let mut proxy = Setup::new().start();
    let mut second = second_proxy(&proxy);
    let log = Log::follow(second.stderr.take().unwrap());
    log.wait_for("this process can't be upgraded");
    log.wait_for("ATI proxy server starting");
    proxy.signal("KILL");
    proxy.wait();
    log.wait_for("the upgrade socket is this process's now");
    let output = ati(proxy.dir.path(), &["reload"]);
    assert!(output.status.success(), "{}", stderr(&output));
    log.wait_for("reload done");
    second.kill().unwrap();
    second.wait().unwrap();
}

fn second_proxy(proxy: &Proxy) -> std::process::Child {
    let mut command = crate::support::ati::command(proxy.dir.path());
    let command = command
        .args(["proxy", "--port", "0"])
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn upgrade_with_a_sealed_keyring_needs_its_key_again() {
    let setup = Setup::new();
    let key = SessionKey::generate().unwrap();
    let keyring = json!({"name": "planted-value-of-the-keyring"}).to_string();
    let sealed = key.seal(keyring.as_bytes()).unwrap();
    let one_shot = setup.path().join("one-shot");
    let provision = || write(&one_shot, key.to_base64().as_bytes());
    provision();
    let mut proxy = setup.file("keyring.enc", sealed).start();
    assert!(!one_shot.exists());
    let output = proxy.successor().output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && text.contains("keyring.enc"),
        "{text}"
    );
    assert_eq!(proxy.client().get("/health").status, 200);
    provision();
    let mut former = proxy.upgrade();
    assert_eq!(former.wait().code(), Some(0));
    let started = proxy.log.wait_for("ATI proxy server starting");
    assert_eq!(started["keyring"], "keyring.enc (sealed key)");
}

#[test]
fn rate_limits_count_calls_from_before_the_hand_over() {
    let upstream = Upstream::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
    let (signer, public) = key_pair();
    let mut proxy = Setup::new()
        .tools(
            "t",
            &upstream.url(),
            "",
            r#"
                [[tools]]
                name = "t_one"
                description = "d"
                endpoint = "/"
                method = "GET"
                scope = "tool:t_one"
            "#,
        )
        .jwt(&public)
        .start();
    let limited = Namespace {
        v: 1,
        rate: [("tool:*".to_owned(), "4/hour".to_owned())].into(),
        customer_id: None,
        delegation: None,
    };
    let claims = Claims {
        ati: Some(limited),
        ..claims()
    };
    let token = bearer(&signer, &claims);
    let ask = |proxy: &Proxy| proxy.call(Some(&token), "t_one", json!({})).status;
    assert_eq!([ask(&proxy), ask(&proxy), ask(&proxy)], [200; 3]);
    let mut former = proxy.upgrade();
    assert_eq!([ask(&proxy), ask(&proxy)], [200, 429]);
    former.wait();
    assert_eq!(ask(&proxy), 429);
}
