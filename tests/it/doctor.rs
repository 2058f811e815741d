//! `ati doctor`, and the health of credentials.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ati::auth::keys::PrivateKey;
use serde_json::{Value, json};

use crate::support::ati::{Setup, command, stderr, stdout, tells_nothing, tool, write};
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

/// A folder in which nothing is wrong.
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
            r#"
                [provider]
                name = 'svc'
                handler = 'passthrough'
                base_url = '{upstream}'
                path_prefix = '/svc'
                auth_type = 'bearer'
                auth_key_name = 'key'
            "#
        ),
    );
    dir
}

/// An upstream whose clock is this many seconds off.
fn upstream_with_clock(offset: i64) -> Upstream {
    let now = ati::clock::unix_now() as i64 + offset;
    let at = time::OffsetDateTime::from_unix_timestamp(now).unwrap();
    let date = at
        .format(&time::format_description::well_known::Rfc2822)
        .unwrap();
    let date = date.replace("+0000", "GMT");
    Upstream::fixed(format!("HTTP/1.1 204 X\r\ndate: {date}\r\n\r\n"))
}

/// A healthy folder with a key pair, and the environment that names it.
struct Healthy {
    dir: tempfile::TempDir,
    public: String,
    private: String,
}

impl Healthy {
    fn new(upstream: &Upstream) -> Self {
        let dir = healthy(&upstream.url());
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let (public, private) = (at("public.pem"), at("private.pem"));
        let key = PrivateKey::generate().unwrap();
        write(Path::new(&public), key.public().to_pem());
        write(Path::new(&private), key.to_pem().as_bytes());
        Healthy {
            dir,
            public,
            private,
        }
    }

    fn env(&self) -> [(&str, &str); 2] {
        [
            ("ATI_JWT_PUBLIC_KEY", &self.public),
            ("ATI_JWT_PRIVATE_KEY", &self.private),
        ]
    }
}

#[test]
fn doctor_on_a_healthy_folder_finds_no_failure() {
    let upstream = upstream_with_clock(0);
    let healthy = Healthy::new(&upstream);
    let dir = healthy.dir.path();
    let (code, found) = doctor(dir, &healthy.env(), &[]);
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
}

#[test]
fn doctor_names_each_problem_with_its_fix() {
    let (right, off) = (upstream_with_clock(0), upstream_with_clock(-600));
    let healthy = Healthy::new(&right);
    let dir = healthy.dir.path();
    std::fs::set_permissions(dir.join("credentials"), PermissionsExt::from_mode(0o644)).unwrap();
    write(
        &dir.join("manifests/off.toml"),
        format!(
            r#"
                [provider]
                name = 'off'
                base_url = '{}'
                auth_type = 'bearer'
                auth_key_name = 'absent'

                [[tools]]
                name = 't'
            "#,
            off.url()
        ),
    );
    write(
        &dir.join("manifests/dead.toml"),
        r#"
            [provider]
            name = 'dead'
            base_url = 'http://127.0.0.1:1'

            [[tools]]
            name = 'd'
        "#,
    );
    let other = PrivateKey::generate().unwrap().public().to_pem();
    write(Path::new(&healthy.public), other);
    let [public, private] = healthy.env();
    let env = [public, private, ("ATI_AUDIT_FILE", "/proc/nowhere/x")];
    let (code, found) = doctor(dir, &env, &[]);
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
    let mut problems = found.iter().filter(|f| f["status"] != "ok");
    assert!(problems.all(|f| f["fix"].is_string()), "{found:#?}");
}

#[test]
fn doctor_on_files_that_cannot_be_parsed_still_reports() {
    let upstream = upstream_with_clock(0);
    let folder = healthy(&upstream.url());
    let dir = folder.path();
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
fn credential_revoked_by_its_upstream_is_reported_as_refused() {
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
        .route("svc", &api.url(), r#"
            path_prefix = '/svc'
            auth_type = 'bearer'
            auth_key_name = 'route_key'
            forward_authorization_paths = ['/own']
        "#)
        .tools("p", &api.url(), "auth_type = 'bearer'\nauth_key_name = 'tool_key'", &tool("p", ""))
        .tools("q", &api.url(), "auth_type = 'bearer'\nauth_key_name = 'idle_key'", &tool("q", ""))
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
    let success =
        proxy.metric(r#"ati_credential_last_success_timestamp_seconds{name="route_key"}"#);
    assert!(success.is_some_and(|at| at > 1e9), "{success:?}");
    // The refusal of a credential that the caller brought isn't counted.
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
fn credential_replaced_by_a_reload_is_no_longer_refused() {
    let api = Upstream::fixed("HTTP/1.1 401 X\r\ncontent-length: 0\r\n\r\n");
    let proxy = Setup::new()
        .credentials(&json!({"key": "planted-dead-key"}))
        .tools(
            "p",
            &api.url(),
            "auth_type = 'bearer'\nauth_key_name = 'key'",
            &tool("p", ""),
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
