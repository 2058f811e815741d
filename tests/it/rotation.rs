//! Rotation of signing secrets and token keys: the old ones stay valid next to the new ones.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ati::auth::keys::PrivateKey;
use ati::auth::token::Signer;
use serde_json::json;

use crate::support::ati::{Proxy, Setup, write};
use crate::support::tokens::{claims, sign_at};
use crate::support::upstream::Upstream;

fn now() -> u64 {
    ati::clock::unix_now()
}

fn date(unix: u64) -> String {
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(unix);
    ati::telemetry::audit::timestamp(at)
}

/// Status and text of a request that is signed with this secret.
fn signed(proxy: &Proxy, secret: &str) -> (u16, String) {
    let header = sign_at(secret, now(), "GET", "/svc/x");
    let response = proxy
        .client()
        .send("GET", "/svc/x", &[("x-sandbox-signature", &header)], b"");
    (response.status, response.text())
}

fn bearer(key: &PrivateKey, kid: Option<&str>) -> String {
    let signer = Signer::Es256(PrivateKey::from_pem(key.to_pem().as_bytes()).unwrap());
    let token = match kid {
        Some(kid) => signer.issue_as(&claims(), kid),
        None => signer.issue(&claims()),
    };
    format!("Bearer {}", token.unwrap())
}

fn tools(proxy: &Proxy, token: &str) -> u16 {
    proxy
        .client()
        .send("GET", "/tools", &[("authorization", token)], b"")
        .status
}

#[test]
fn previous_signing_secret_is_valid_until_its_date() {
    let api = Upstream::echo();
    let keyring = |not_after: Option<u64>| {
        let mut all = json!({"sandbox_signing_shared_secret": "planted-new", "sandbox_signing_shared_secret_previous": "planted-old"});
        if let Some(at) = not_after {
            all["sandbox_signing_shared_secret_previous_not_after"] = json!(date(at));
        }
        all
    };
    let proxy = Setup::new()
        .credentials(&keyring(None))
        .route("svc", &api.url(), "path_prefix = '/svc'")
        .arg("--sig-verify-mode")
        .arg("enforce")
        .start();
    assert_eq!(signed(&proxy, "planted-new").0, 200);
    assert_eq!(signed(&proxy, "planted-old").0, 200);
    assert_eq!(
        signed(&proxy, "planted-other"),
        (403, "hmac_mismatch".into())
    );
    let series =
        r#"ati_old_key_uses_total{key="sandbox_signing_shared_secret_previous",kind="signature"}"#;
    proxy.settles(series, 1.0);
    write(
        &proxy.path("credentials"),
        keyring(Some(now() + 3600)).to_string(),
    );
    assert_eq!(proxy.reload()["message"], "reload done");
    assert_eq!(signed(&proxy, "planted-old").0, 200);
    // The date passes without a reload.
    write(
        &proxy.path("credentials"),
        keyring(Some(now() + 1)).to_string(),
    );
    assert_eq!(proxy.reload()["message"], "reload done");
    crate::support::eventually("the end of the overlap", || {
        (signed(&proxy, "planted-old") == (403, "hmac_mismatch".into())).then_some(())
    });
    assert_eq!(signed(&proxy, "planted-new").0, 200);
}

#[test]
fn tokens_are_verified_by_the_key_that_their_kid_names() {
    let keys: Vec<PrivateKey> = (0..3).map(|_| PrivateKey::generate().unwrap()).collect();
    let setup = Setup::new();
    let folder = setup.path().join("keys");
    write(&folder.join("a-new.pem"), keys[0].public().to_pem());
    write(&folder.join("b-old.pem"), keys[1].public().to_pem());
    write(&folder.join(".left-behind.pem"), "");
    let jwks =
        json!({"keys": [keys[0].public().to_jwk("a-new"), keys[1].public().to_jwk("b-old")]});
    let file = setup.path().join("jwks.json");
    write(&file, jwks.to_string());
    let other = Setup::new().env("ATI_JWT_PUBLIC_KEY", file.to_str().unwrap());
    let setup = setup.env("ATI_JWT_PUBLIC_KEY", folder.to_str().unwrap());
    for (n, proxy) in [setup.start(), other.start()].iter().enumerate() {
        assert_eq!(tools(proxy, &bearer(&keys[0], Some("a-new"))), 200);
        assert_eq!(tools(proxy, &bearer(&keys[1], Some("b-old"))), 200);
        // An unknown kid, the kid of another key, an unknown key.
        for (key, kid) in [(0, "c"), (0, "b-old"), (2, "a-new"), (1, "ati-proxy-1")] {
            assert_eq!(
                tools(proxy, &bearer(&keys[key], Some(kid))),
                401,
                "{key} {kid}"
            );
        }
        // A token without a kid is verified with the first key.
        let unnamed = |key: &PrivateKey| {
            use base64::Engine as _;
            use base64::engine::general_purpose::URL_SAFE_NO_PAD as B64;
            let header = B64.encode(r#"{"alg":"ES256","typ":"JWT"}"#);
            let body = B64.encode(serde_json::to_vec(&claims()).unwrap());
            let message = format!("{header}.{body}");
            let rng = ring::rand::SystemRandom::new();
            let pem = pem::parse(key.to_pem().as_bytes()).unwrap();
            let pair = ring::signature::EcdsaKeyPair::from_pkcs8(
                &ring::signature::ECDSA_P256_SHA256_FIXED_SIGNING,
                pem.contents(),
                &rng,
            )
            .unwrap();
            let signature = pair.sign(&rng, message.as_bytes()).unwrap();
            format!("Bearer {message}.{}", B64.encode(signature.as_ref()))
        };
        assert_eq!(tools(proxy, &unnamed(&keys[0])), 200);
        assert_eq!(tools(proxy, &unnamed(&keys[1])), 401);
        assert_eq!(
            proxy.client().get("/.well-known/jwks.json").json(),
            jwks,
            "{n}"
        );
        proxy.settles(r#"ati_old_key_uses_total{key="b-old",kind="jwt"}"#, 1.0);
    }
    let twice = json!({"keys": [keys[0].public().to_jwk("a"), keys[1].public().to_jwk("a")]});
    let mut encrypts = keys[0].public().to_jwk("e");
    encrypts["use"] = json!("enc");
    for (jwks, expected) in [
        (twice, "the same kid"),
        (json!({"keys": [encrypts]}), "not P-256 (ES256)"),
        (json!({"keys": []}), "none at all"),
    ] {
        let setup = Setup::new().file("jwks.json", jwks.to_string());
        let file = setup.path().join("jwks.json");
        let output = setup
            .env("ATI_JWT_PUBLIC_KEY", file.to_str().unwrap())
            .output();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && said.contains(expected),
            "{expected}: {said}"
        );
    }
    for (name, text) in [("empty", None), ("bad", Some("not a key"))] {
        let setup = Setup::new();
        let folder = setup.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        if let Some(text) = text {
            write(&folder.join("x.pem"), text);
        }
        let output = setup
            .env("ATI_JWT_PUBLIC_KEY", folder.to_str().unwrap())
            .output();
        assert!(!output.status.success(), "{name}");
    }
}

#[test]
fn twenty_rotations_of_all_keys_fail_no_request() {
    let api = Upstream::echo();
    let keys: Vec<PrivateKey> = (0..=20).map(|_| PrivateKey::generate().unwrap()).collect();
    let secret = |n: usize| format!("planted-secret-{n}");
    let setup = Setup::new();
    let folder = setup.path().join("keys");
    let lay_out = |dir: &std::path::Path, n: usize| {
        let mut keyring =
            json!({"sandbox_signing_shared_secret": secret(n), "key": format!("planted-key-{n}")});
        if n > 0 {
            keyring["sandbox_signing_shared_secret_previous"] = json!(secret(n - 1));
        }
        write(&dir.join("credentials"), keyring.to_string());
        write(
            &dir.join("keys").join(format!("k{n:02}.pem")),
            keys[n].public().to_pem(),
        );
        if n > 1 {
            std::fs::remove_file(dir.join("keys").join(format!("k{:02}.pem", n - 2))).unwrap();
        }
    };
    lay_out(setup.path(), 0);
    let proxy = setup
        .env("ATI_JWT_PUBLIC_KEY", folder.to_str().unwrap())
        .route(
            "svc",
            &api.url(),
            r#"
                path_prefix = '/svc'
                auth_type = 'bearer'
                auth_key_name = 'key'
            "#,
        )
        .arg("--sig-verify-mode")
        .arg("enforce")
        .start();
    // The rotation that callers know of: they learn of each one after it happened.
    let (known, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (seen, served) = ([0; 4].map(AtomicUsize::new), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for (thread, seen) in seen.iter().enumerate() {
            let (proxy, known, stop, served, keys) = (&proxy, &known, &stop, &served, &keys);
            scope.spawn(move || {
                let mut client = proxy.client();
                while !stop.load(Ordering::Relaxed) {
                    let n = known.load(Ordering::SeqCst);
                    let path = if thread % 2 == 0 { "/svc/x" } else { "/tools" };
                    let signature = sign_at(&secret(n), now(), "GET", path);
                    let token = bearer(&keys[n], Some(&format!("k{n:02}")));
                    let headers = [
                        ("x-sandbox-signature", signature.as_str()),
                        ("authorization", token.as_str()),
                    ];
                    let response = client.send("GET", path, &headers, b"");
                    assert_eq!(response.status, 200, "{path} with {n}: {}", response.text());
                    seen.store(n, Ordering::SeqCst);
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for n in 1..=20 {
            lay_out(proxy.dir.path(), n);
            assert_eq!(proxy.reload()["message"], "reload done");
            let before = served.load(Ordering::Relaxed);
            crate::support::eventually("requests under the old keys", || {
                (served.load(Ordering::Relaxed) > before + 10).then_some(())
            });
            known.store(n, Ordering::SeqCst);
            // All callers use the new keys before the next rotation.
            crate::support::eventually("requests of all under the new ones", || {
                seen.iter()
                    .all(|seen| seen.load(Ordering::SeqCst) == n)
                    .then_some(())
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
}
