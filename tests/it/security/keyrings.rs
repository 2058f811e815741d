//! Keyrings: their forms, one-shot keys, rotation, and memory.

use std::process::Command;

use ati::clock::unix_now;
use ati::keyring::SessionKey;
use serde_json::json;

use super::{SIGNATURE, signed_setup};
use crate::support::ati::{Setup, write};
use crate::support::skip::skip;
use crate::support::tokens::{SIGNING, bearer, claims, key_pair, sign, sign_at};

#[test]
fn one_shot_key_survives_a_failed_start_or_reload() {
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
    // A start that fails for another reason leaves the key for the next one.
    let broken = setup().file("manifests/a.toml", "[provider");
    assert!(!broken.output().status.success());
    assert!(broken.path().join("one-shot").exists());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let unlucky = setup().arg("--admin").arg(&address);
    assert!(!unlucky.output().status.success());
    assert!(unlucky.path().join("one-shot").exists());

    // A failed reload doesn't lose the key: the next reload works.
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

/// An operator writes the new key, and the keyring that it opens a moment later.
#[test]
fn one_shot_key_survives_a_reload_before_its_keyring_is_there() {
    let (old, new) = (
        SessionKey::generate().unwrap(),
        SessionKey::generate().unwrap(),
    );
    let text = json!({"sandbox_signing_shared_secret": "planted-a"}).to_string();
    let proxy = Setup::new()
        .file("keyring.enc", old.seal(text.as_bytes()).unwrap())
        .file("one-shot", old.to_base64().as_bytes())
        .start();
    write(&proxy.path("one-shot"), new.to_base64().as_bytes());
    assert_eq!(proxy.reload()["message"], "reload done");
    assert!(!proxy.path("one-shot").exists());
    write(
        &proxy.path("keyring.enc"),
        new.seal(text.as_bytes()).unwrap(),
    );
    assert_eq!(proxy.reload()["message"], "reload done");
}

#[test]
fn keyring_in_each_form_reads_the_same() {
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
        // The one-shot key file is gone, and the key in memory still opens the keyring.
        assert_eq!(proxy.reload()["message"], "reload done", "{label}");
    }
}

#[test]
fn keyring_that_cannot_be_opened_stops_the_start_with_the_reason() {
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
            let pattern = pattern.trim();
            skip(&format!(
                "core_pattern ({pattern}) keeps cores out of reach"
            ));
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
fn reload_applies_a_rotated_keyring_and_keeps_the_old_one_if_broken() {
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

    // In enforce mode a keyring without a signing secret is refused.
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
