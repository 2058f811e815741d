//! SSRF: no tool can be made to reach the operator's own network.
//!
//! These tests run in a network namespace that has only loopback, so that a public address can be
//! given to a server of the test, and a mistake reaches no other host.

use std::io::Write;
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::support::ati::{Proxy, Setup};
use crate::support::dns::Nameserver;
use crate::support::skip::skip;
use crate::support::upstream::Upstream;

const INSIDE: &str = "ATI_TEST_INSIDE";
/// A public address, which belongs to the test inside of the namespace.
pub const PUBLIC: &str = "93.184.216.34";

/// Runs the calling test again, in a namespace. True if this is that run.
pub fn in_namespace(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let script =
        format!("ip link set lo up && ip addr add {PUBLIC}/32 dev lo && exec \"$0\" \"$@\"");
    for flags in [&["--net"][..], &["--map-root-user", "--net"]] {
        let possible = Command::new("unshare")
            .args(flags)
            .args(["ip", "link"])
            .output();
        if !possible.is_ok_and(|output| output.status.success()) {
            continue;
        }
        let output = Command::new("unshare")
            .args(flags)
            .args(["sh", "-c", &script])
            .arg(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        assert!(text.contains("1 passed"), "{text}");
        return false;
    }
    skip("this machine allows no network namespaces");
    false
}

/// A server on loopback that no call may reach, and a public one on the same port.
struct Trap {
    port: u16,
    sprung: Arc<AtomicUsize>,
}

impl Trap {
    fn set(public: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let sprung = Arc::new(AtomicUsize::new(0));
        let counted = sprung.clone();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                counted.fetch_add(1, Ordering::SeqCst);
                let _ = std::io::Read::read(&mut stream, &mut [0; 1 << 16]);
                let _ = stream.write_all(
                    b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 8\r\n\r\n\"inside\"",
                );
            }
        });
        Upstream::answering_at(&format!("{PUBLIC}:{port}"), move |received, stream| {
            stream
                .write_all(public(&received.target).as_bytes())
                .is_ok()
        });
        Trap { port, sprung }
    }

    fn sprung(&self) -> usize {
        self.sprung.load(Ordering::SeqCst)
    }
}

fn ok(_: &str) -> String {
    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 8\r\n\r\n\"public\"".to_owned()
}

fn tool(setup: Setup, name: &str, base_url: &str) -> Setup {
    setup.tools(
        name,
        base_url,
        "",
        &format!(
            r#"
                [[tools]]
                name = '{name}'
                endpoint = '/{name}'
            "#
        ),
    )
}

fn call(proxy: &Proxy, tool: &str) -> String {
    let answer = proxy.call(None, tool, json!({})).json();
    answer["error"]
        .as_str()
        .or(answer["result"].as_str())
        .unwrap_or_default()
        .to_owned()
}

const INSIDES: [&str; 9] = [
    "http://127.0.0.1",
    "http://169.254.169.254",
    "http://[::ffff:127.0.0.1]",
    "http://0x7f.1",
    "http://2130706433",
    "http://localhost.",
    "http://localhost",
    "http://db.internal",
    "http://0.0.0.0",
];

#[test]
fn name_that_rebinds_to_loopback_is_never_reached() {
    if !in_namespace("ssrf::name_that_rebinds_to_loopback_is_never_reached") {
        return;
    }
    let trap = Trap::set(ok);
    let changing = Nameserver::in_turn(&[&[PUBLIC], &["127.0.0.1"]]);
    let proxy = tool(
        Setup::new(),
        "rebind",
        &format!("http://rebind.test:{}", trap.port),
    )
    .env("ATI_SSRF_PROTECTION", "1")
    .conf(&format!(
        "[egress]\nnameservers = ['{}']\n",
        changing.address
    ))
    .start();
    let answers: Vec<String> = (0..20).map(|_| call(&proxy, "rebind")).collect();
    assert!(
        answers.iter().any(|answer| answer == "public"),
        "{answers:?}"
    );
    let origin = format!("http://rebind.test:{}", trap.port);
    let refused = format!(
        "Upstream API error: SSRF protection: URL '{origin}' targets a private/internal network address"
    );
    assert!(answers.contains(&refused), "{answers:?}");
    assert!(
        answers
            .iter()
            .all(|answer| answer == "public" || *answer == refused),
        "{answers:?}"
    );
    assert_eq!(trap.sprung(), 0);

    // One internal address among the answers is enough for a refusal.
    let both = Nameserver::answering(&[PUBLIC, "127.0.0.1"]);
    let proxy = tool(
        Setup::new(),
        "both",
        &format!("http://both.test:{}", trap.port),
    )
    .env("ATI_SSRF_PROTECTION", "true")
    .conf(&format!("[egress]\nnameservers = ['{}']\n", both.address))
    .start();
    assert!(call(&proxy, "both").contains("SSRF protection"));
    assert_eq!(trap.sprung(), 0);
}

#[test]
fn internal_addresses_in_any_spelling_or_redirect_are_refused() {
    if !in_namespace("ssrf::internal_addresses_in_any_spelling_or_redirect_are_refused") {
        return;
    }
    let port = Arc::new(AtomicUsize::new(0));
    let known = port.clone();
    let trap = Trap::set(move |target| {
        let nth: usize = target.trim_start_matches("/hop").parse().unwrap();
        let location = format!("{}:{}/x", INSIDES[nth], known.load(Ordering::SeqCst));
        format!(
            "HTTP/1.1 302 Found\r\nlocation: {location}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        )
    });
    port.store(trap.port.into(), Ordering::SeqCst);
    let mut setup = Setup::new().env("ATI_SSRF_PROTECTION", "1");
    for (n, inside) in INSIDES.iter().enumerate() {
        setup = tool(
            setup,
            &format!("direct{n}"),
            &format!("{inside}:{}", trap.port),
        );
        setup = tool(
            setup,
            &format!("hop{n}"),
            &format!("http://{PUBLIC}:{}", trap.port),
        );
    }
    let proxy = setup
        .credentials(&json!({"zone": "planted-zone"}))
        .tools(
            "zoned",
            "http://${zone}.internal",
            "auth_type = 'url'",
            "[[tools]]\nname = 'zoned'",
        )
        .start();
    // A key that is part of the host isn't shown.
    assert_eq!(
        call(&proxy, "zoned"),
        "Upstream API error: SSRF protection: URL 'http://${zone}.internal' targets a private/internal network address"
    );
    for (n, inside) in INSIDES.iter().enumerate() {
        for kind in ["direct", "hop"] {
            let answer = call(&proxy, &format!("{kind}{n}"));
            assert!(
                answer.starts_with("Upstream API error: SSRF protection: URL '"),
                "{kind} {inside}: {answer}"
            );
        }
    }
    assert_eq!(trap.sprung(), 0);
}

#[test]
fn loopback_without_ssrf_protection_is_reached_and_warn_mode_logs() {
    if !in_namespace("ssrf::loopback_without_ssrf_protection_is_reached_and_warn_mode_logs") {
        return;
    }
    let trap = Trap::set(ok);
    let inside = format!("http://127.0.0.1:{}", trap.port);
    let proxy = tool(Setup::new(), "inside", &inside).start();
    assert_eq!(call(&proxy, "inside"), "inside");
    let proxy = tool(Setup::new(), "inside", &inside)
        .env("ATI_SSRF_PROTECTION", "warn")
        .start();
    assert_eq!(call(&proxy, "inside"), "inside");
    assert_eq!(proxy.log.wait_for("SSRF protection")["host"], "127.0.0.1");
    let refused = tool(Setup::new(), "inside", &inside)
        .env("ATI_SSRF_PROTECTION", "maybe")
        .output();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(
        text.contains("ATI_SSRF_PROTECTION: expected 1, true, warn, or nothing"),
        "{text}"
    );
}
