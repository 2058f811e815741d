//! Tokens, and the settings that say which are valid.

use ati::auth::token::{Claims, Signer};
use ati::clock::unix_now;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{es256, signed_setup};
use crate::support::ati::{Proxy, Setup, command, stderr, stdout, write};
use crate::support::tokens::{bearer, claims, key_pair, shared};

#[test]
fn invalid_tokens_get_401_and_are_not_logged() {
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
        ("60 KiB", format!("Bearer {}", "x".repeat(60 << 10))),
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
    assert_eq!(huge.status, 431);

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
fn token_used_again_is_verified_once() {
    const REQUESTS: usize = 100_000;
    let (proxy, signer, _) = es256(Setup::new().conf(
        r#"
            [log]
            access = false
            signatures = false
        "#,
    ));
    let token = bearer(&signer, &claims());
    let send = |requests: usize| {
        let mut client = proxy.client();
        for _ in 0..requests {
            let response = client.send("GET", "/nothing", &[("authorization", &token)], b"");
            assert_eq!(response.status, 404);
        }
    };
    // Before the others: two that come first at the same time are both verified.
    send(1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| send(REQUESTS / 4));
        }
    });
    proxy.settles(r#"ati_token_cache_total{result="miss"}"#, 1.0);
    proxy.settles(r#"ati_token_cache_total{result="hit"}"#, REQUESTS as f64);
    // A reload empties the cache: the key may have changed.
    proxy.reload();
    proxy
        .client()
        .send("GET", "/tools", &[("authorization", &token)], b"");
    proxy.settles(r#"ati_token_cache_total{result="miss"}"#, 2.0);
}

#[test]
fn unusable_jwt_settings_stop_the_start() {
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
fn config_without_a_usable_jwt_key_stops_the_start() {
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
    // A config that isn't UTF-8 is neither ignored nor replaced.
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
fn reload_that_loses_the_jwt_keys_is_refused() {
    let config = format!(
        r#"
            [proxy.jwt]
            algorithm = "HS256"
            secret = "{}"
        "#,
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
fn jwt_secret_of_the_environment_precedes_the_config() {
    let config = r#"
        [proxy]
        port = 1
        [proxy.jwt]
        algorithm = "HS256"
        secret = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
    "#;
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
fn token_on_standard_input_is_validated_and_its_expiry_told() {
    use std::io::Write;
    use std::process::Stdio;
    let dir = tempfile::tempdir().unwrap();
    let secret = "ab".repeat(32);
    let run = |subcommand: &[&str], token: &str| {
        let mut child = command(dir.path())
            .args([&["token"], subcommand].concat())
            .env("ATI_JWT_SECRET", &secret)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(token.as_bytes()).unwrap();
        drop(stdin);
        child.wait_with_output().unwrap()
    };
    let token = |expired: u64| {
        let exp = unix_now() + 100 - expired;
        let signed = shared(&secret).issue(&Claims { exp, ..claims() });
        format!("{}\n", signed.unwrap())
    };
    let good = run(&["validate", "-"], &token(0));
    assert!(
        stderr(&good).trim_end().ends_with("VALID"),
        "{}",
        stderr(&good)
    );
    let late = run(&["validate", "-"], &token(110));
    assert_eq!(late.status.code(), Some(0));
    let said = stderr(&late);
    assert!(
        said.contains("VALID (expired 1") && said.contains("s ago, within the leeway)"),
        "{said}"
    );
    let claims = stdout(&run(&["inspect", "-"], &token(0)));
    assert!(claims.contains("\"agent-7\""), "{claims}");
    let typo = run(&["issue", "--sub", "a", "--scope", "help tol:x"], "");
    assert!(
        stderr(&typo).contains("did you mean 'tool:x'?"),
        "{}",
        stderr(&typo)
    );
}

#[test]
fn token_with_critical_extensions_gets_401() {
    let secret = "00".repeat(32);
    let proxy = Setup::new().env("ATI_JWT_SECRET", &secret).start();
    let ask = |token: &str| {
        let token = format!("Bearer {token}");
        let client = &mut proxy.client();
        client
            .send("GET", "/tools", &[("authorization", &token)], b"")
            .status
    };
    let sign = |header: &str| {
        let encode = |text: &[u8]| URL_SAFE_NO_PAD.encode(text);
        let payload = serde_json::to_vec(&claims()).unwrap();
        let message = format!("{}.{}", encode(header.as_bytes()), encode(&payload));
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &[0; 32]);
        let tag = ring::hmac::sign(&key, message.as_bytes());
        format!("{message}.{}", encode(tag.as_ref()))
    };
    assert_eq!(ask(&sign(r#"{"alg":"HS256"}"#)), 200);
    assert_eq!(
        ask(&sign(r#"{"alg":"HS256","crit":["b64"],"b64":false}"#)),
        401
    );
    proxy.settles(r#"ati_refusals_total{reason="token_crit"}"#, 1.0);
}
