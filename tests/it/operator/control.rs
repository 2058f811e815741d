//! `ati status` and `ati reload`: the running proxy is asked over its upgrade socket.

use serde_json::{Value, json};

use crate::handover::{Played, relay_replaces_the_program};
use crate::support::ati::{Setup, ati, stderr, stdout, write};
use crate::support::tokens::SIGNING;
use crate::support::upstream::Upstream;

fn json_of(output: &std::process::Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn status_describes_the_running_proxy() {
    let upstream = Upstream::fixed("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n");
    let proxy = Setup::new()
        .credentials(&json!({"a_key": "planted-key", "sandbox_signing_shared_secret": SIGNING}))
        .route(
            "up",
            &upstream.url(),
            "path_prefix = '/up'\nauth_type = 'bearer'\nauth_key_name = 'a_key'",
        )
        .tools("t", &upstream.url(), "", "[[tools]]\nname = 't:one'")
        .start();
    proxy.client().get("/up/x");
    let mut slow = proxy.client();
    slow.write(b"POST /call HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nab");
    proxy.settles(r#"ati_in_flight{route="/call"}"#, 1.0);
    let dir = proxy.dir.path();
    let status = json_of(&ati(dir, &["status"]));
    for (key, value) in [
        ("pid", json!(proxy.pid())),
        ("version", json!(env!("CARGO_PKG_VERSION"))),
        ("state", json!("serving")),
        ("tools", json!(3)),
        ("routes", json!(1)),
        ("in_flight", json!(1)),
        ("sig_verify_mode", json!("log")),
        ("auth", json!("disabled")),
        ("last_reload", Value::Null),
        ("reloads", json!({"ok": 0, "failed": 0})),
        ("credentials_refused", json!(["a_key"])),
    ] {
        assert_eq!(status[key], value, "{key} of {status}");
    }
    assert_eq!(status["listeners"]["edge"], proxy.edge.to_string());
    assert_eq!(status["listeners"]["admin"], proxy.admin.to_string());
    assert_eq!(status["keyring"]["keys"], 2);
    assert!(status["keyring"]["loaded_at"].as_u64() >= status["started_at"].as_u64());
    assert!(status["uptime_seconds"].is_u64());
    assert!(!status.to_string().contains("planted-"));

    let text = stdout(&ati(dir, &["status", "--output", "text"]));
    for part in [
        format!("serving, pid {}", proxy.pid()),
        format!("edge {}", proxy.edge),
        "3 tools of".to_owned(),
        "refused keys a_key".to_owned(),
        "none since the start".to_owned(),
    ] {
        assert!(text.contains(&part), "{part} in:\n{text}");
    }
}

#[test]
fn reload_waits_for_its_outcome_and_tells_it() {
    let upstream = Upstream::echo();
    let proxy = Setup::new()
        .route("up", &upstream.url(), "path_prefix = '/up'")
        .start();
    let dir = proxy.dir.path();
    let manifest = proxy.path("manifests/up.toml");
    let good = std::fs::read_to_string(&manifest).unwrap();
    write(
        &proxy.path("manifests/more.toml"),
        good.replace("\"up\"", "\"more\"")
            .replace("'/up'", "'/more'"),
    );
    let report = json_of(&ati(dir, &["reload"]));
    assert_eq!(report["outcome"], "ok");
    assert_eq!(report["routes"], 2);
    assert!(report["ms"].is_u64() && report["tools"].is_u64() && report["providers"].is_u64());
    assert_eq!(proxy.client().get("/more/x").status, 200);
    let record = proxy.log.wait_for("reload done");
    for key in ["routes", "tools", "providers", "ms", "keys"] {
        assert!(record[key].is_u64(), "{key} of {record}");
    }

    write(&manifest, "[provider\n");
    let output = ati(dir, &["reload"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stdout(&output), "");
    let text = stderr(&output);
    assert!(
        text.contains("everything stays as it was") && text.contains("up.toml"),
        "{text}"
    );
    assert_eq!(proxy.client().get("/up/x").status, 200);
    let status = json_of(&ati(dir, &["status"]));
    assert_eq!(status["last_reload"]["outcome"], "failed");
    assert!(
        status["last_reload"]["problems"][0]
            .to_string()
            .contains("up.toml")
    );
    assert_eq!(status["reloads"], json!({"ok": 1, "failed": 1}));

    write(&manifest, good);
    let text = stdout(&ati(dir, &["reload", "--output", "text"]));
    assert!(
        text.starts_with("reload done in ") && text.contains("2 routes"),
        "{text}"
    );
}

#[test]
fn commands_without_a_running_proxy_fail_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("absent");
    for command in ["status", "reload"] {
        for folder in [dir.path(), &absent] {
            let output = ati(
                dir.path(),
                &[command, "--ati-dir", folder.to_str().unwrap()],
            );
            assert_eq!(output.status.code(), Some(1));
            let text = stderr(&output);
            assert!(
                text.contains("no proxy answers at ") && text.contains("hint"),
                "{text}"
            );
            assert_eq!(stdout(&output), "");
        }
    }
    assert!(!absent.exists());
    // A socket that a killed proxy left behind.
    let mut proxy = Setup::new().start();
    proxy.signal("KILL");
    proxy.wait();
    let output = ati(proxy.dir.path(), &["status"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no proxy answers at "));
}

#[test]
fn proxy_is_found_by_the_upgrade_socket_of_its_conf_file() {
    let setup = Setup::new().conf("[server]\nupgrade_socket = 'other.sock'\n");
    let proxy = setup.start();
    let conf = proxy.path("ati.toml");
    let (dir, conf) = (proxy.dir.path(), conf.to_str().unwrap());
    assert_eq!(ati(dir, &["status"]).status.code(), Some(1));
    let status = json_of(&ati(dir, &["status", "--conf", conf]));
    assert_eq!(status["pid"], proxy.pid());
    // A conf file that is broken by now is the proxy's to report.
    write(
        std::path::Path::new(conf),
        "[server]\nupgrade_socket = 'other.sock'\n[limits]\nconnections = 0\n",
    );
    let output = ati(dir, &["reload", "--conf", conf]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("limits.connections"));
}

#[test]
fn status_is_answered_while_a_successor_gets_ready() {
    let proxy = relay_replaces_the_program(Setup::new());
    let _successor = Played::successor(&proxy);
    let status = json_of(&ati(proxy.dir.path(), &["status"]));
    assert_eq!(status["pid"], proxy.pid());
}
