//! What an attacker, a careless operator or a curious agent would try.

use std::process::Command;

use ati::auth::token::{Claims, Signer};
use ati::clock::unix_now;
use ati::keyring::SessionKey;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use crate::support::ati::{Proxy, Setup, write};
use crate::support::eventually;
use crate::support::tokens::{SIGNING, bearer, claims, key_pair, shared, sign, sign_at};

const SIGNATURE: &str = "x-sandbox-signature";

fn signed_setup(mode: &str) -> Setup {
    Setup::new()
        .credentials(&json!({"sandbox_signing_shared_secret": SIGNING}))
        .arg("--sig-verify-mode")
        .arg(mode)
}

fn es256(setup: Setup) -> (Proxy, Signer, String) {
    let (signer, public) = key_pair();
    let setup = setup.file("public.pem", &public);
    let path = setup.path().join("public.pem").to_str().unwrap().to_owned();
    (
        setup.env("ATI_JWT_PUBLIC_KEY", path).start(),
        signer,
        public,
    )
}

#[test]
fn enforce_refuses_by_name() {
    let (proxy, signer, _) = es256(signed_setup("enforce"));
    let token = bearer(&signer, &claims());
    let ask = |signature: Option<&str>, token: Option<&str>| {
        let mut headers = Vec::new();
        headers.extend(signature.map(|value| (SIGNATURE, value)));
        headers.extend(token.map(|value| ("authorization", value)));
        proxy.client().send("GET", "/tools", &headers, b"")
    };
    let refused = |signature: Option<&str>| {
        let response = ask(signature, Some(&token));
        assert_eq!(response.status, 403);
        assert_eq!(response.header("content-type"), None);
        response.text()
    };
    assert_eq!(refused(None), "missing_signature");
    assert_eq!(
        refused(Some(&format!("t={},s=zz", unix_now()))),
        "malformed_signature"
    );
    assert_eq!(refused(Some(&sign("GET", "/other"))), "hmac_mismatch");
    let old = refused(Some(&sign_at(SIGNING, unix_now() - 61, "GET", "/tools")));
    assert!(["expired_timestamp_drift=61s", "expired_timestamp_drift=62s"].contains(&old.as_str()));

    let good = sign("GET", "/tools");
    assert_eq!(ask(Some(&good), Some(&token)).status, 200);
    assert_eq!(ask(Some(&good), None).status, 401);
    // Unsigned and without a token: nothing is said about tokens.
    assert_eq!(ask(None, None).status, 403);

    let record = proxy.log.wait_for("sig_verify");
    assert_eq!(record["mode"], "enforce");
    assert_eq!(record["job_id"], "none");
    eventually("the records as scripts grep them", || {
        proxy
            .log
            .text()
            .contains(r#""reason":"valid""#)
            .then_some(())
    });
    assert!(!proxy.log.text().contains(SIGNING));
    proxy.settles(r#"ati_refusals_total{reason="hmac_mismatch"}"#, 1.0);
}

#[test]
fn warn_and_log_let_pass_and_tell() {
    let proxy = signed_setup("warn").start();
    let response = proxy.client().get("/nothing");
    assert_eq!(response.status, 404);
    assert_eq!(
        response.header("x-signature-status"),
        Some("missing_signature")
    );
    let good = sign("GET", "/nothing");
    let headers = [(SIGNATURE, good.as_str()), ("x-sandbox-job-id", "job-42")];
    let response = proxy.client().send("GET", "/nothing", &headers, b"");
    assert_eq!(response.header("x-signature-status"), Some("valid"));
    assert_eq!(
        proxy.client().get("/health").header("x-signature-status"),
        None
    );
    assert_eq!(proxy.log.wait_for_nth("sig_verify", 1)["job_id"], "job-42");

    let proxy = signed_setup("log").start();
    let response = proxy.client().get("/nothing");
    assert_eq!(response.header("x-signature-status"), None);
    assert_eq!(
        proxy.log.wait_for("sig_verify")["reason"],
        "missing_signature"
    );
}

#[test]
fn exemptions_are_replaced_not_extended() {
    let proxy = signed_setup("enforce")
        .arg("--sig-exempt-paths")
        .arg("/open/*")
        .start();
    assert_eq!(proxy.client().get("/open/x").status, 404);
    assert_eq!(proxy.client().get("/health").status, 403);
}

#[test]
fn enforce_without_a_secret_does_not_start() {
    for credentials in [json!({}), json!({"sandbox_signing_shared_secret": ""})] {
        let output = Setup::new()
            .credentials(&credentials)
            .arg("--sig-verify-mode")
            .arg("enforce")
            .output();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success());
        assert!(text.contains("sandbox_signing_shared_secret"), "{text}");
    }
}

#[test]
fn tokens_that_do_not_hold_get_401_and_leave_no_trace() {
    let (proxy, signer, public) = es256(Setup::new().env("ATI_JWT_ISSUER", "orchestrator"));
    let good = Claims {
        iss: Some("orchestrator".into()),
        ..claims()
    };
    let ask = |token: &str| {
        proxy
            .client()
            .send("GET", "/tools", &[("authorization", token)], b"")
    };
    assert_eq!(ask(&bearer(&signer, &good)).status, 200);

    let payload = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&good).unwrap());
    let none = format!(
        "{}.{payload}.",
        URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"JWT"}"#)
    );
    let confused = shared(&hex::encode(public.as_bytes()))
        .issue(&good)
        .unwrap();
    let (other, _) = key_pair();
    let bad = [
        ("wrong key", bearer(&other, &good)),
        (
            "wrong aud",
            bearer(
                &signer,
                &Claims {
                    aud: "other".into(),
                    ..good.clone()
                },
            ),
        ),
        ("missing iss", bearer(&signer, &claims())),
        ("alg none", format!("Bearer {none}")),
        ("public key as secret", format!("Bearer {confused}")),
        (
            "expired",
            bearer(
                &signer,
                &Claims {
                    exp: unix_now() - 61,
                    ..good.clone()
                },
            ),
        ),
        ("64 KiB", format!("Bearer {}", "x".repeat(64 << 10))),
        (
            "lower case",
            bearer(&signer, &good).replace("Bearer", "bearer"),
        ),
        ("empty", "Bearer ".into()),
    ];
    for (name, token) in &bad {
        let response = ask(token);
        assert_eq!(
            (response.status, response.text().as_str()),
            (401, ""),
            "{name}"
        );
    }
    assert_eq!(proxy.client().get("/tools").status, 401);
    let huge = ask(&format!("Bearer {}", "x".repeat(1 << 20)));
    assert_eq!(huge.status, 400);

    proxy.log.wait_for_nth("request", bad.len() + 1);
    let log = proxy.log.text();
    for (name, token) in bad.iter().filter(|(_, token)| token.len() < 60_000) {
        for part in token
            .trim_start_matches("Bearer ")
            .split('.')
            .filter(|part| part.len() > 20)
        {
            assert!(!log.contains(part), "{name}");
        }
    }
}

#[test]
fn a_token_is_verified_once() {
    const REQUESTS: usize = 100_000;
    let (proxy, signer, _) =
        es256(Setup::new().conf("[log]\naccess = false\nsignatures = false\n"));
    let token = bearer(&signer, &claims());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = proxy.client();
                for _ in 0..REQUESTS / 4 {
                    let response =
                        client.send("GET", "/nothing", &[("authorization", &token)], b"");
                    assert_eq!(response.status, 404);
                }
            });
        }
    });
    proxy.settles(r#"ati_token_cache_total{result="miss"}"#, 1.0);
    proxy.settles(
        r#"ati_token_cache_total{result="hit"}"#,
        (REQUESTS - 1) as f64,
    );
    // A reload forgets: the key may have changed.
    proxy.reload();
    proxy
        .client()
        .send("GET", "/tools", &[("authorization", &token)], b"");
    proxy.settles(r#"ati_token_cache_total{result="miss"}"#, 2.0);
}

#[test]
fn unusable_jwt_settings_never_mean_open() {
    let garbage = Setup::new().file("bad.pem", "not a key");
    let bad_pem = garbage.path().join("bad.pem").to_str().unwrap().to_owned();
    let cases = [
        (
            "ATI_JWT_PUBLIC_KEY",
            "/nonexistent/key.pem".to_owned(),
            "can't be read",
        ),
        ("ATI_JWT_PUBLIC_KEY", bad_pem, "not a PEM file"),
        ("ATI_JWT_PUBLIC_KEY", String::new(), "set, but empty"),
        (
            "ATI_JWT_SECRET",
            "s3cret-not-hex".to_owned(),
            "not valid hex",
        ),
        ("ATI_JWT_SECRET", String::new(), "empty"),
    ];
    for (name, value, expected) in cases {
        let output = Setup::new().env(name, value.clone()).output();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(name) && text.contains(expected), "{text}");
        assert!(!text.contains("s3cret-not-hex"));
    }
}

#[test]
fn a_config_that_names_no_usable_key_does_not_start() {
    for config in [
        "[proxy.jwt]\nsecert = \"00\"\n",
        "[proxy.jwt]\nprivate_key = \"x.pem\"\n",
        "[proxy]\njwt = \"x\"\n",
    ] {
        let output = Setup::new().file("config.toml", config).output();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && text.contains("proxy.jwt"),
            "{text}"
        );
    }
    // What can't even be read as text is neither ignored nor replaced.
    let setup = Setup::new().file("config.toml", b"# caf\xe9\n[proxy.jwt]\nsecret=\"00\"\n");
    let output = setup.output();
    assert!(!output.status.success());
    assert!(
        std::fs::read(setup.path().join("config.toml"))
            .unwrap()
            .starts_with(b"# caf\xe9")
    );

    let mut command = Setup::new().command();
    let garbled = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff\xfe");
    let output = command.env("ATI_JWT_SECRET", garbled).output().unwrap();
    assert!(!output.status.success());
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("ATI_JWT_SECRET: not valid text")
    );
}

#[test]
fn a_reload_never_turns_authentication_off() {
    let config = format!(
        "[proxy.jwt]\nalgorithm = \"HS256\"\nsecret = \"{}\"\n",
        "ab".repeat(32)
    );
    let proxy = signed_setup("log").file("config.toml", &config).start();
    assert_eq!(proxy.client().get("/tools").status, 401);
    write(&proxy.path("config.toml"), "");
    assert!(
        proxy.reload()["problems"]
            .as_str()
            .unwrap()
            .contains("the JWT keys are gone")
    );
    assert_eq!(proxy.client().get("/tools").status, 401);
    write(&proxy.path("config.toml"), &config);
    std::fs::remove_file(proxy.path("credentials")).unwrap();
    assert!(
        proxy.reload()["problems"]
            .as_str()
            .unwrap()
            .contains("the keyring was credentials")
    );
}

#[test]
fn a_one_shot_key_is_not_spent_on_a_failure() {
    let key = SessionKey::generate().unwrap();
    let sealed = |secret: &str| {
        key.seal(
            json!({"sandbox_signing_shared_secret": secret})
                .to_string()
                .as_bytes(),
        )
        .unwrap()
    };
    let setup = || {
        Setup::new()
            .file("keyring.enc", sealed("planted-a"))
            .file("one-shot", key.to_base64().as_bytes())
    };
    // Something else is wrong at start: the key is still there for the next try.
    let broken = setup().file("manifests/a.toml", "[provider");
    assert!(!broken.output().status.success());
    assert!(broken.path().join("one-shot").exists());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let unlucky = setup().arg("--admin").arg(&address);
    assert!(!unlucky.output().status.success());
    assert!(unlucky.path().join("one-shot").exists());

    // At a reload: whatever became of the file, the next reload works.
    let proxy = setup().start();
    let fresh = SessionKey::generate().unwrap();
    let rotated = fresh
        .seal(
            json!({"sandbox_signing_shared_secret": "planted-b"})
                .to_string()
                .as_bytes(),
        )
        .unwrap();
    write(&proxy.path("keyring.enc"), &rotated);
    write(&proxy.path("one-shot"), fresh.to_base64().as_bytes());
    write(&proxy.path("manifests/a.toml"), "[provider");
    assert!(
        proxy.reload()["problems"]
            .as_str()
            .unwrap()
            .contains("Failed to parse manifest")
    );
    std::fs::remove_file(proxy.path("manifests/a.toml")).unwrap();
    assert_eq!(proxy.reload()["message"], "reload done");
    assert!(!proxy.path("one-shot").exists());
    assert_eq!(proxy.reload()["message"], "reload done");
}

#[test]
fn the_config_of_an_existing_proxy_counts_below_the_environment() {
    let config = "[proxy]\nport = 1\n[proxy.jwt]\nalgorithm = \"HS256\"\nsecret = \"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\"\n";
    let from_config = shared("00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
    let from_env = shared("ff".repeat(32).as_str());
    let status = |proxy: &Proxy, signer: &Signer| {
        let token = bearer(signer, &claims());
        proxy
            .client()
            .send("GET", "/tools", &[("authorization", &token)], b"")
            .status
    };
    let proxy = Setup::new().file("config.toml", config).start();
    assert_eq!(
        (status(&proxy, &from_config), status(&proxy, &from_env)),
        (200, 401)
    );
    let proxy = Setup::new()
        .file("config.toml", config)
        .env("ATI_JWT_SECRET", "ff".repeat(32))
        .start();
    assert_eq!(
        (status(&proxy, &from_config), status(&proxy, &from_env)),
        (401, 200)
    );
}

#[test]
fn ambiguous_framing_is_refused() {
    let proxy = Setup::new().start();
    let cases = [
        "POST /call HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /call HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
        "POST /call HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        "POST /call HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "POST /call HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /call HTTP/1.1\r\nhost: x\r\ncontent-length: 5, 5\r\n\r\nhello",
        "POST /call HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "GET /health HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
    ];
    for request in cases {
        let mut client = proxy.client();
        client.write(request.as_bytes());
        assert_eq!(client.read(false).status, 400, "{request}");
        // Whatever follows on this connection is not served.
        let _ = client.try_write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n");
        assert!(client.try_read(false).is_none(), "{request}");
    }
}

#[test]
fn paths_that_could_be_read_twice_are_refused() {
    let proxy = signed_setup("enforce").start();
    for path in [
        "/npm/../tools",
        "/npm/%2e%2e/tools",
        "/npm/..%2ftools",
        "/npm/%252e%252e/tools",
        "/npm/..\\tools",
        "/npm/%5c..%5ctools",
        "/npm/%00",
        "/npm/%0d%0aX:1",
        "/./health",
    ] {
        assert_eq!(proxy.client().get(path).status, 400, "{path}");
    }
    assert_eq!(proxy.client().get("//health").status, 200);
    assert_eq!(proxy.client().get("/%68ealth").status, 200);
}

#[test]
fn every_form_of_keyring_reads_the_same() {
    let secrets = json!({"sandbox_signing_shared_secret": SIGNING, "multi": "line\nbreak \u{e9}"});
    let key = SessionKey::generate().unwrap();
    let sealed = key
        .seal(serde_json::to_string_pretty(&secrets).unwrap().as_bytes())
        .unwrap();
    let base64 = key.to_base64();
    let enforce = |setup: Setup| setup.arg("--sig-verify-mode").arg("enforce");

    let forms = [
        (
            "keyring.enc (sealed key)",
            Setup::new()
                .file("keyring.enc", &sealed)
                .file("one-shot", base64.as_bytes()),
        ),
        (
            "keyring.enc (persistent key)",
            Setup::new()
                .file("keyring.enc", &sealed)
                .file(".keyring-key", base64.as_bytes()),
        ),
        (
            "credentials (plaintext)",
            Setup::new().credentials(&secrets),
        ),
        (
            "env-vars (ATI_KEY_*)",
            Setup::new()
                .arg("--env-keys")
                .env("ATI_KEY_SANDBOX_SIGNING_SHARED_SECRET", SIGNING),
        ),
    ];
    for (label, setup) in forms {
        let proxy = enforce(setup).start();
        assert_eq!(proxy.log.wait_for("ATI proxy")["keyring"], label);
        let response = proxy
            .client()
            .send("GET", "/x", &[(SIGNATURE, &sign("GET", "/x"))], b"");
        assert_eq!(response.status, 404, "{label}");
        assert!(!proxy.path("one-shot").exists());
        // A one-shot key is gone, and still opens a rotated keyring.
        assert_eq!(proxy.reload()["message"], "reload done", "{label}");
    }
}

#[test]
fn a_keyring_that_can_not_be_opened_says_why() {
    let key = SessionKey::generate().unwrap();
    let other = SessionKey::generate().unwrap();
    let with = |sealed: &[u8]| {
        Setup::new()
            .file("keyring.enc", sealed)
            .file(".keyring-key", key.to_base64().as_bytes())
            .credentials(&json!({"fallback": "must-not-be-used"}))
    };
    let whole = key.seal(br#"{"a":"b"}"#).unwrap();
    let cases = [
        (whole[..20].to_vec(), "truncated"),
        (
            whole[..whole.len() - 1].to_vec(),
            "sealed with another key, or it is damaged",
        ),
        (
            other.seal(br#"{"a":"b"}"#).unwrap(),
            "sealed with another key, or it is damaged",
        ),
        (
            key.seal(b"not json").unwrap(),
            "decrypted, but its content is not a JSON object",
        ),
    ];
    for (sealed, expected) in cases {
        let output = with(&sealed).output();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success());
        assert!(
            text.contains("keyring.enc") && text.contains(expected),
            "{text}"
        );
        let proxy = with(&sealed).arg("--allow-empty-keyring").start();
        assert_eq!(proxy.log.wait_for("ATI proxy")["keyring"], "empty");
    }

    let open = with(&whole);
    let path = open.path().join("keyring.enc");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(path, mode).unwrap();
    assert!(
        open.start()
            .log
            .text()
            .contains("open to every user of this machine (mode 0644)")
    );
}

#[test]
fn secrets_are_locked_in_memory_and_absent_from_core_dumps() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let values = [
        "planted-value-alpha-91c2",
        "planted-value-\u{e9}scaped\n-beta-44d0",
        "planted-file-value-77aa",
    ];
    let key = SessionKey::generate().unwrap();
    let sealed_json =
        json!({"sandbox_signing_shared_secret": SIGNING, "alpha": values[0], "beta": values[1]});
    for form in ["sealed", "credentials"] {
        let setup = signed_setup("enforce").file("mounted", values[2]);
        let mounted = format!("@file:{}", setup.path().join("mounted").display());
        let setup = match form {
            "sealed" => setup
                .file("keyring.enc", key.seal(sealed_json.to_string().as_bytes()).unwrap())
                .file(".keyring-key", key.to_base64().as_bytes()),
            _ => setup.credentials(&json!({
                "sandbox_signing_shared_secret": SIGNING, "alpha": values[0], "beta": values[1], "file": mounted,
            })),
        };
        let (signer, public) = key_pair();
        let setup = setup.file("public.pem", public);
        let pem = setup.path().join("public.pem").to_str().unwrap().to_owned();
        let setup = setup
            .env("ATI_JWT_PUBLIC_KEY", pem)
            .env("PLANTED_CONTROL", "planted-control-string-5be1");
        let inner = setup.command();
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "ulimit -c unlimited && exec \"$@\"", "sh"])
            .arg(inner.get_program());
        shell
            .args(inner.get_args())
            .env_clear()
            .current_dir(setup.path());
        shell.envs(
            inner
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        let mut proxy = setup.start_with(shell);

        let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.pid())).unwrap();
        let locked = status
            .lines()
            .find(|line| line.starts_with("VmLck:"))
            .unwrap();
        assert!(!locked.contains(" 0 kB"), "{locked}");

        let headers = [
            (SIGNATURE, sign("GET", "/tools")),
            ("authorization", bearer(&signer, &claims())),
        ];
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        assert_eq!(
            proxy.client().send("GET", "/tools", &headers, b"").status,
            200
        );
        proxy.reload();
        proxy.signal("ABRT");
        proxy.wait();
        if pattern.starts_with(['|', '/']) {
            eprintln!(
                "cores go elsewhere on this machine ({}): not looked at",
                pattern.trim()
            );
            continue;
        }
        let core = std::fs::read_dir(proxy.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| {
                path.file_name()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .starts_with("core")
            })
            .expect("a core file");
        let core = std::fs::read(core).unwrap();
        let holds = |text: &str| memchr::memmem::find(&core, text.as_bytes()).is_some();
        assert!(holds("planted-control-string-5be1"));
        for value in values.iter().chain([&SIGNING]) {
            assert!(!holds(value), "{form}: {value}");
        }
    }
}

#[test]
fn a_rotated_secret_counts_and_a_broken_file_changes_nothing() {
    let key = SessionKey::generate().unwrap();
    let sealed = |secret: &str| {
        key.seal(
            json!({"sandbox_signing_shared_secret": secret})
                .to_string()
                .as_bytes(),
        )
        .unwrap()
    };
    let proxy = Setup::new()
        .arg("--sig-verify-mode")
        .arg("enforce")
        .file("keyring.enc", sealed("first"))
        .file(".keyring-key", key.to_base64().as_bytes())
        .start();
    let passes = |secret: &str| {
        let signature = sign_at(secret, unix_now(), "GET", "/x");
        let response = proxy
            .client()
            .send("GET", "/x", &[(SIGNATURE, &signature)], b"");
        match response.status {
            404 => true,
            403 => {
                assert_eq!(response.text(), "hmac_mismatch");
                false
            }
            other => panic!("{other}"),
        }
    };
    assert!(passes("first"));

    write(&proxy.path("keyring.enc"), sealed("second"));
    assert_eq!(proxy.reload()["message"], "reload done");
    assert!(passes("second") && !passes("first"));

    write(&proxy.path("keyring.enc"), b"corrupt");
    let failed = proxy.reload();
    assert_eq!(
        failed["message"],
        "reload failed, everything stays as it was"
    );
    assert!(
        failed["problems"]
            .as_str()
            .unwrap()
            .contains("keyring.enc: truncated")
    );
    assert!(passes("second"));

    // A keyring that lost its signing secret is no keyring for enforce mode.
    write(&proxy.path("keyring.enc"), key.seal(b"{}").unwrap());
    let failed = proxy.reload();
    assert!(
        failed["problems"]
            .as_str()
            .unwrap()
            .contains("sandbox_signing_shared_secret")
    );
    assert!(passes("second"));

    write(&proxy.path("keyring.enc"), sealed("third"));
    assert_eq!(proxy.reload()["message"], "reload done");
    assert!(passes("third") && !passes("second"));
    proxy.settles(r#"ati_reloads_total{outcome="ok"}"#, 2.0);
    proxy.settles(r#"ati_reloads_total{outcome="failed"}"#, 2.0);
}
