//! Reloads and drains while requests are in flight.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use ati::clock::unix_now;
use serde_json::json;

use super::with_keys;
use crate::support::ati::{Proxy, Setup, write};
use crate::support::eventually;
use crate::support::http::Client;
use crate::support::tokens::{SIGNING, sign_at};
use crate::support::upstream::Upstream;

#[test]
fn reload_adds_and_removes_routes_and_keeps_them_if_it_fails() {
    let upstream = Upstream::echo();
    let proxy = with_keys()
        .route(
            "a",
            &upstream.url(),
            r#"
                path_prefix = '/a'
                auth_type = 'bearer'
                auth_key_name = 'api_key'
            "#,
        )
        .start();
    assert_eq!(proxy.client().get("/b/x").status, 404);
    let manifest = |prefix: &str| {
        format!(
            r#"
                [provider]
                name = 'b'
                handler = 'passthrough'
                base_url = '{}'
                path_prefix = '{prefix}'
            "#,
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

#[test]
fn file_that_would_block_fails_one_reload_and_no_later_one() {
    let upstream = Upstream::echo();
    let proxy = with_keys()
        .route("a", &upstream.url(), "path_prefix = '/a'")
        .start();
    let manifest = proxy.path("manifests/f.toml");
    for (name, make) in [
        ("pipe", &["mkfifo"][..]),
        ("device", &["ln", "-s", "/dev/zero"][..]),
    ] {
        let made = Command::new(make[0])
            .args(&make[1..])
            .arg(&manifest)
            .status();
        assert!(made.unwrap().success());
        let failed = proxy.reload();
        let problems = failed["problems"].as_str().unwrap();
        assert!(
            problems.contains("f.toml: it is no regular file"),
            "{name}: {problems}"
        );
        std::fs::remove_file(&manifest).unwrap();
        assert_eq!(proxy.reload()["message"], "reload done", "{name}");
    }
    assert_eq!(proxy.client().get("/a/x").status, 200);
    proxy.settles(r#"ati_reloads_total{outcome="failed"}"#, 2.0);
}

/// Sends requests that are signed with the current secret, until it is told to stop.
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
fn twenty_key_rotations_under_load_fail_no_request() {
    let upstream = Upstream::echo();
    let credentials = |key: usize| {
        json!({"api_key": format!("planted-key-{key}"), "sandbox_signing_shared_secret": SIGNING})
            .to_string()
    };
    let proxy = Setup::new()
        .file("credentials", credentials(0))
        .arg("--sig-verify-mode")
        .arg("enforce")
        .conf(
            r#"
                [log]
                access = false
                signatures = false
            "#,
        )
        .route(
            "svc",
            &upstream.url(),
            r#"
                path_prefix = '/svc'
                auth_type = 'bearer'
                auth_key_name = 'api_key'
            "#,
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
            // Requests that start after the log record carry the new key.
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
fn rotated_signing_secret_spares_requests_in_flight() {
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
fn drain_waits_for_a_passthrough_request() {
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
