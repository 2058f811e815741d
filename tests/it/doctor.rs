//! What an operator asks when something is wrong.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ati::auth::keys::PrivateKey;
use serde_json::{Value, json};

use crate::support::ati::{Setup, command, stderr, stdout, tells_nothing, write};
use crate::support::http::Client;
use crate::support::upstream::Upstream;

fn doctor(dir: &Path, env: &[(&str, &str)], args: &[&str]) -> (i32, Vec<Value>) {
    let output = command(dir)
        .envs(env.iter().copied())
        .args(["doctor", "--json", "--enable-passthrough"])
        .args(args)
        .output()
        .unwrap();
    tells_nothing("the doctor", &(stdout(&output) + &stderr(&output)));
    let found: Value = serde_json::from_str(&stdout(&output))
        .unwrap_or_else(|e| panic!("{e}: {}", stderr(&output)));
    (
        output.status.code().unwrap(),
        found.as_array().unwrap().clone(),
    )
}

fn has(found: &[Value], check: &str, status: &str, message: &str) -> bool {
    found.iter().any(|finding| {
        finding["check"] == check
            && finding["status"] == status
            && finding["message"].as_str().unwrap().contains(message)
    })
}

/// A folder in which nothing is wrong but what a test does to it.
fn healthy(upstream: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(
        &dir.path().join("credentials"),
        json!({"key": "planted-key-value", "sandbox_signing_shared_secret": "planted-signing"})
            .to_string(),
    );
    write(
        &dir.path().join("manifests/svc.toml"),
        format!(
            "[provider]\nname = 'svc'\nhandler = 'passthrough'\nbase_url = '{upstream}'\npath_prefix = '/svc'\nauth_type = 'bearer'\nauth_key_name = 'key'"
        ),
    );
    dir
}

#[test]
fn a_healthy_folder_is_healthy_and_each_ailment_has_its_cure() {
    let date = |offset: i64| {
        let now = ati::clock::unix_now() as i64 + offset;
        let at = time::OffsetDateTime::from_unix_timestamp(now).unwrap();
        at.format(&time::format_description::well_known::Rfc2822)
            .unwrap()
            .replace("+0000", "GMT")
    };
    let right = Upstream::fixed(format!("HTTP/1.1 204 X\r\ndate: {}\r\n\r\n", date(0)));
    let off = Upstream::fixed(format!("HTTP/1.1 204 X\r\ndate: {}\r\n\r\n", date(-600)));
    let dir = healthy(&right.url());
    let dir = dir.path();
    let key = PrivateKey::generate().unwrap();
    write(&dir.join("public.pem"), key.public().to_pem());
    write(&dir.join("private.pem"), key.to_pem().as_bytes());
    let (public, private) = (dir.join("public.pem"), dir.join("private.pem"));
    let env = [
        ("ATI_JWT_PUBLIC_KEY", public.to_str().unwrap()),
        ("ATI_JWT_PRIVATE_KEY", private.to_str().unwrap()),
    ];
    let (code, found) = doctor(dir, &env, &[]);
    assert_eq!(code, 0, "{found:#?}");
    assert!(
        found.iter().all(|finding| finding["status"] != "fail"),
        "{found:#?}"
    );
    for (check, message) in [
        ("permissions", ""),
        ("keyring", "2 names"),
        ("jwt", "ES256"),
        ("signing", ""),
        ("credentials", "every name"),
        ("upstreams", "its clock agrees"),
        ("audit", "free"),
        ("ports", ""),
        ("memlock", ""),
    ] {
        assert!(
            found
                .iter()
                .any(|f| f["check"] == check && f["message"].as_str().unwrap().contains(message)),
            "{check}: {found:#?}"
        );
    }
    assert!(!dir.join("audit.jsonl").exists(), "it only looks");
    let text = command(dir).args(["doctor", "--offline"]).output().unwrap();
    assert!(
        stdout(&text).contains("ok   keyring: "),
        "{}",
        stdout(&text)
    );

    std::fs::set_permissions(dir.join("credentials"), PermissionsExt::from_mode(0o644)).unwrap();
    write(
        &dir.join("manifests/off.toml"),
        format!(
            "[provider]\nname = 'off'\nbase_url = '{}'\nauth_type = 'bearer'\nauth_key_name = 'absent'\n[[tools]]\nname = 't'",
            off.url()
        ),
    );
    write(
        &dir.join("manifests/dead.toml"),
        "[provider]\nname = 'dead'\nbase_url = 'http://127.0.0.1:1'\n[[tools]]\nname = 'd'",
    );
    write(&public, PrivateKey::generate().unwrap().public().to_pem());
    let (code, found) = doctor(
        dir,
        &[env[0], env[1], ("ATI_AUDIT_FILE", "/proc/nowhere/x")],
        &[],
    );
    assert_eq!(code, 1);
    for (check, status, message) in [
        ("permissions", "fail", "has mode 644"),
        ("credentials", "warn", "'absent' is not in the keyring"),
        (
            "upstreams",
            "fail",
            "http://127.0.0.1:1: connection refused",
        ),
        ("clock", "warn", "earlier or later"),
        ("jwt", "fail", "is not the other half"),
        ("audit", "fail", "can't be written"),
    ] {
        assert!(
            has(&found, check, status, message),
            "{check} {message}: {found:#?}"
        );
    }
    assert!(
        found
            .iter()
            .filter(|f| f["status"] != "ok")
            .all(|f| f["fix"].is_string())
    );
    write(&dir.join("credentials"), "{");
    write(&dir.join("manifests/broken.toml"), "[provider");
    let (code, found) = doctor(dir, &[], &["--offline"]);
    assert_eq!(code, 1);
    assert!(
        has(&found, "load", "fail", "Failed to parse manifest")
            && has(&found, "jwt", "warn", "every caller is let in"),
        "{found:#?}"
    );
}

#[test]
fn a_key_that_is_revoked_at_the_upstream_shows() {
    let revoked = Arc::new(AtomicBool::new(false));
    let theirs = revoked.clone();
    let api = Upstream::answering(move |_, stream| {
        let status = if theirs.load(Ordering::SeqCst) {
            401
        } else {
            200
        };
        std::io::Write::write_all(
            stream,
            format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\n{{}}").as_bytes(),
        )
        .is_ok()
    });
    let proxy = Setup::new()
        .credentials(&json!({"route_key": "planted-route-key", "tool_key": "planted-tool-key", "idle_key": "planted-idle-key"}))
        .route("svc", &api.url(), "path_prefix = '/svc'\nauth_type = 'bearer'\nauth_key_name = 'route_key'\nforward_authorization_paths = ['/own']")
        .tools("p", &api.url(), "auth_type = 'bearer'\nauth_key_name = 'tool_key'", "[[tools]]\nname = 'p'")
        .tools("q", &api.url(), "auth_type = 'bearer'\nauth_key_name = 'idle_key'", "[[tools]]\nname = 'q'")
        .start();
    let use_both = || {
        proxy.client().get("/svc/x");
        proxy.call(None, "p", json!({}));
    };
    let states = || -> Vec<(String, String)> {
        let list: Value =
            serde_json::from_str(&Client::connect(proxy.admin).get("/credentials").text()).unwrap();
        let text = |key: &Value, name: &str| key[name].as_str().unwrap().to_owned();
        list.as_array()
            .unwrap()
            .iter()
            .map(|key| (text(key, "name"), text(key, "state")))
            .collect()
    };
    let pair = |name: &str, state: &str| (name.to_owned(), state.to_owned());
    use_both();
    assert_eq!(states(), [pair("route_key", "ok"), pair("tool_key", "ok")]);
    revoked.store(true, Ordering::SeqCst);
    use_both();
    assert_eq!(
        states(),
        [pair("route_key", "refused"), pair("tool_key", "refused")]
    );
    proxy.settles(r#"ati_credential_refused_total{name="tool_key"}"#, 1.0);
    assert!(
        proxy.metric(r#"ati_credential_last_success_timestamp_seconds{name="route_key"}"#) > 1e9
    );
    // What a caller presents itself is not ours to judge.
    proxy.client().send(
        "GET",
        "/svc/own",
        &[("authorization", "Bearer theirs")],
        b"",
    );
    proxy.settles(r#"ati_credential_refused_total{name="route_key"}"#, 1.0);
    let admin = format!("http://{}", proxy.admin);
    let (code, found) = doctor(proxy.dir.path(), &[], &["--offline", "--admin-url", &admin]);
    assert_eq!(code, 1);
    assert!(
        has(
            &found,
            "health",
            "fail",
            "'tool_key' is refused by its upstream (1 times)"
        ),
        "{found:#?}"
    );
}

#[test]
fn a_key_that_was_replaced_is_given_another_chance() {
    let api = Upstream::fixed("HTTP/1.1 401 X\r\ncontent-length: 0\r\n\r\n");
    let proxy = Setup::new()
        .credentials(&json!({"key": "planted-dead-key"}))
        .tools(
            "p",
            &api.url(),
            "auth_type = 'bearer'\nauth_key_name = 'key'",
            "[[tools]]\nname = 'p'",
        )
        .start();
    let state = || {
        let list: Value =
            serde_json::from_str(&Client::connect(proxy.admin).get("/credentials").text()).unwrap();
        list[0]["state"].as_str().map(str::to_owned)
    };
    proxy.call(None, "p", json!({}));
    assert_eq!(state().as_deref(), Some("refused"));
    assert_eq!(proxy.reload()["message"], "reload done");
    assert_eq!(state().as_deref(), Some("refused"), "nothing has changed");
    write(
        &proxy.path("credentials"),
        json!({"key": "planted-new-key"}).to_string(),
    );
    assert_eq!(proxy.reload()["message"], "reload done");
    assert_ne!(state().as_deref(), Some("refused"));
}
