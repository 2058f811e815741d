//! `ati run` and `ati tool` against an edge that wants signatures.

use std::process::Command;

use ati::auth::signature::{Verdict, check};
use ati::clock::unix_now;
use serde_json::{Value, json};

use super::{Edge, HEX, Sandbox, has, setup};
use crate::support::ati::{BINARY, stderr, stdout};
use crate::support::tokens::{SIGNING, sign_at};
use crate::support::upstream::Upstream;

/// An upstream that gives every request the same answer.
fn answering(status: &str, headers: &str, body: &str) -> Upstream {
    let length = body.len();
    Upstream::fixed(format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}"
    ))
}

#[test]
fn commands_with_the_secret_work_in_enforce_mode() {
    let edge = Edge::new("enforce");
    let mut sandbox = edge.sandbox(Some(HEX));
    let works = |sandbox: &Sandbox| {
        let found = sandbox.result(&["run", "shop:find", "--q", "red hat"]);
        assert_eq!(found["target"], "/?q=red%20hat");
        assert_eq!(
            sandbox.result(&["tool", "list"]).as_array().unwrap().len(),
            4
        );
        assert_eq!(
            sandbox.result(&["tool", "search", "find"])[0]["tool"],
            "shop:find"
        );
        assert_eq!(
            sandbox.result(&["tool", "info", "shop:buy"])["name"],
            "shop:buy"
        );
        assert_eq!(sandbox.result(&["auth", "status"])["proxy"]["ok"], true);
    };
    works(&sandbox);
    // The variable wins over the file.
    sandbox.set_secret("another");
    sandbox.set("ATI_SANDBOX_SECRET", &format!(" {HEX} "));
    works(&sandbox);
    // Unless it is empty; and the file is read each time.
    sandbox.set("ATI_SANDBOX_SECRET", "");
    assert_eq!(sandbox.failure(&["tool", "list"]).0, 3);
    sandbox.set_secret(HEX);
    works(&sandbox);
}

#[test]
fn refused_signature_has_its_own_code_and_names_the_fix() {
    let edge = Edge::new("enforce");
    for args in [
        &["run", "shop:find"][..],
        &["tool", "list"],
        &["tool", "info", "x"],
    ] {
        let (code, error) = edge.sandbox(None).failure(args);
        assert_eq!((code, &error["code"]), (3, &json!("auth.signature")));
        assert_eq!(error["message"], "Proxy error (403): missing_signature");
        assert_eq!(error["status"], 403);
        assert!(error["request_id"].is_string(), "{error}");
        has(&error["hint"], "ATI_SANDBOX_SECRET_FILE");

        let sandbox = edge.sandbox(Some("not-the-secret"));
        let (code, error) = sandbox.failure(args);
        assert_eq!((code, &error["code"]), (3, &json!("auth.signature")));
        assert_eq!(error["message"], "Proxy error (403): hmac_mismatch");
        has(&error["hint"], sandbox.path().to_str().unwrap());
        has(&error["hint"], "sandbox_signing_shared_secret");
    }
}

#[test]
fn secret_file_that_cannot_be_read_stops_the_command() {
    let edge = Edge::new("log");
    let mut sandbox = edge.sandbox(Some(""));
    for (path, why) in [
        (sandbox.path().join("secret"), "empty"),
        (sandbox.path().join("absent"), "can't be read"),
        (sandbox.path().to_owned(), "can't be read"),
    ] {
        sandbox.set("ATI_SANDBOX_SECRET_FILE", path.to_str().unwrap());
        let (code, error) = sandbox.failure(&["tool", "list"]);
        assert_eq!((code, &error["code"]), (3, &json!("auth.missing_key")));
        has(&error["message"], "ATI_SANDBOX_SECRET_FILE");
        has(&error["message"], path.to_str().unwrap());
        has(&error["message"], why);
    }
    // Without a proxy nothing is signed, and the file isn't read.
    sandbox.set("ATI_PROXY_URL", "");
    let listed = sandbox.result(&["tool", "list"]);
    assert_eq!(listed[0]["name"], "file_manager:download");
}

#[test]
fn signature_covers_the_path_of_the_proxy_url_too() {
    let api = answering("200 OK", "", "[]");
    let mut sandbox = Sandbox::new();
    sandbox.set("ATI_PROXY_URL", &format!("{}/behind/here/", api.url()));
    sandbox.set("ATI_SANDBOX_SECRET", HEX);
    assert_eq!(sandbox.result(&["tool", "search", "a b"]), json!([]));
    let seen = api.last();
    assert_eq!(seen.target, "/behind/here/tools?search=a+b");
    let header = seen.header("x-sandbox-signature").unwrap().as_bytes();
    let secret = ati::keyring::Secret::new(HEX.as_bytes()).unwrap();
    let key = ati::auth::signature::SigningKey::new(&secret).into();
    let path = "/behind/here/tools";
    let verdict = check(Some(&key), 60, Some(header), "GET", path, unix_now());
    assert_eq!(verdict, Verdict::Valid);
}

#[test]
fn answers_of_a_proxy_are_told_apart_and_told_once() {
    let json = "content-type: application/json\r\n";
    let inner = r#"{"result":null,"error":"Upstream API error: API error (500): {\"a\":1}"}"#;
    let expired = "www-authenticate: Bearer error=\"invalid_token\", \
                   error_description=\"the token has expired\"\r\n";
    let token = "eyJhbGciOiJIUzI1NiJ9.e30.c2ln";
    let cases = [
        (
            "502 X",
            json,
            inner,
            4,
            "provider.upstream_error",
            "Upstream API error: API error (500): {\"a\":1}",
        ),
        (
            "403 X",
            json,
            r#"{"error":"Access denied: 'x' is not in your scopes"}"#,
            3,
            "auth.scope_denied",
            "Access denied: 'x' is not in your scopes",
        ),
        (
            "403 X",
            "",
            "expired_timestamp_drift=75s",
            3,
            "auth.signature",
            "expired_timestamp_drift=75s",
        ),
        (
            "401 X",
            expired,
            "",
            3,
            "auth.expired",
            "the session token has expired",
        ),
        (
            "401 X",
            "",
            "",
            3,
            "auth.invalid_token",
            "the session token is not accepted",
        ),
        (
            "429 X",
            json,
            r#"{"result":null,"error":"Rate limit exceeded"}"#,
            5,
            "rate.exceeded",
            "Rate limit exceeded",
        ),
        (
            "404 X",
            "",
            "<h1>nothing</h1>",
            4,
            "provider.upstream_error",
            "<h1>nothing</h1>",
        ),
        (
            "503 Service Unavailable",
            "",
            "",
            4,
            "provider.upstream_error",
            "Service Unavailable",
        ),
    ];
    for (status, headers, body, exit_code, code, message) in cases {
        let api = answering(status, headers, body);
        let mut sandbox = Sandbox::new();
        sandbox.set("ATI_PROXY_URL", &api.url());
        sandbox.set("ATI_SESSION_TOKEN", token);
        let (exited, error) = sandbox.failure(&["run", "x"]);
        let number: u16 = status[..3].parse().unwrap();
        assert_eq!(
            (exited, &error["code"]),
            (exit_code, &json!(code)),
            "{error}"
        );
        assert_eq!(error["status"], number);
        assert_eq!(
            error["message"],
            format!("Proxy error ({number}): {message}")
        );
    }
}

#[test]
fn token_that_is_missing_malformed_expired_or_foreign_has_its_own_error() {
    let edge = Edge::new("log");
    let mut sandbox = edge.sandbox(None);
    let old = edge.token(|claims| claims.exp = unix_now() - 3600);
    let foreign = Edge::new("log").token(|_| {});
    let mut messages = Vec::new();
    for (token, code) in [
        ("", "auth.missing_key"),
        ("half-a-token", "auth.invalid_token"),
        (&old, "auth.expired"),
        (&foreign, "auth.invalid_token"),
    ] {
        sandbox.set("ATI_SESSION_TOKEN", token);
        let (exited, error) = sandbox.failure(&["run", "shop:find"]);
        assert_eq!((exited, &error["code"]), (3, &json!(code)), "{error}");
        assert_eq!(error["status"], 401);
        assert!(error["hint"].is_string(), "{error}");
        messages.push(error["message"].clone());
    }
    let distinct: std::collections::BTreeSet<String> =
        messages.iter().map(Value::to_string).collect();
    assert_eq!(distinct.len(), 4, "{messages:?}");
}

#[test]
fn failure_on_a_terminal_is_printed_once() {
    let sandbox = Sandbox::new();
    // `script` gives the command a terminal.
    let output = Command::new("script")
        .args(["-qec", &format!("{BINARY} run no:tool"), "/dev/null"])
        .env("ATI_DIR", sandbox.path())
        .env_remove("ATI_PROXY_URL")
        .env_remove("ATI_OUTPUT")
        .output()
        .unwrap();
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.matches("Unknown tool").count(), 1, "{text}");
    assert!(!text.contains("{\"error\""), "{text}");
    let piped = stderr(&sandbox.run(&["run", "no:tool"]));
    assert_eq!(piped.matches("Unknown tool").count(), 2, "{piped}");
}

#[test]
fn debug_log_says_when_a_hex_secret_was_used_as_text() {
    let as_text = ati::keyring::keyed(HEX.as_bytes());
    let signed = |path: &str| {
        use hmac::Mac as _;
        let now = unix_now();
        let mac = as_text.clone().chain_update(format!("{now}.GET.{path}"));
        format!("t={now},s={}", hex::encode(mac.finalize().into_bytes()))
    };
    let refused = |proxy: &crate::support::ati::Proxy, header: &str, nth: usize| {
        let headers = [("x-sandbox-signature", header)];
        let answer = proxy.client().send("GET", "/tools", &headers, b"");
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (403, "hmac_mismatch")
        );
        assert!(answer.header("x-signature-status").is_none());
        proxy.log.wait_for_nth("sig_verify", nth)
    };
    let (_api, edge) = setup("enforce");
    let proxy = edge.env("RUST_LOG", "ati::sig_verify=debug").start();
    let record = refused(&proxy, &signed("/tools"), 0);
    assert_eq!(record["matches_as_text"], true);
    let other = sign_at(SIGNING, unix_now(), "GET", "/tools");
    assert_eq!(refused(&proxy, &other, 1)["matches_as_text"], false);

    let (_api, edge) = setup("enforce");
    let record = refused(&edge.start(), &signed("/tools"), 0);
    assert_eq!(record["matches_as_text"], Value::Null);
}
