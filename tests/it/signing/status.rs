//! `ati auth status` with a proxy.

use ati::clock::unix_now;
use serde_json::{Value, json};

use super::{Edge, HEX, Sandbox, has};
use crate::support::ati::{ati, stderr, stdout, write};
use crate::support::free_address;
use crate::support::upstream::Upstream;

/// The exit code and the JSON of the status.
fn status(sandbox: &Sandbox) -> (i32, Value) {
    let output = sandbox.run(&["auth", "status"]);
    assert_eq!(stderr(&output), "");
    let json = serde_json::from_str(&stdout(&output)).unwrap();
    (output.status.code().unwrap(), json)
}

/// The check of this name.
fn check<'a>(status: &'a Value, name: &str) -> &'a Value {
    let checks = status["proxy"]["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["check"] == name);
    found.unwrap_or_else(|| panic!("{name}: {status:#}"))
}

#[test]
fn status_of_an_accepted_caller_has_every_answer() {
    let edge = Edge::new("enforce");
    let mut sandbox = edge.sandbox(Some(HEX));
    let narrow = edge.token(|claims| claims.scope = "tool:shop:find tool:a skill:b help".into());
    sandbox.set("ATI_SESSION_TOKEN", &narrow);
    let (code, told) = status(&sandbox);
    assert_eq!(code, 0);
    assert_eq!(told["sub"], "agent-7");
    assert_eq!(
        (&told["tool_scopes"], &told["skill_scopes"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(told["signature_verified"], true);
    let proxy = &told["proxy"];
    assert_eq!(proxy["url"], edge.url());
    for (key, value) in [
        ("ok", json!(true)),
        ("reachable", json!(true)),
        ("version", json!(env!("CARGO_PKG_VERSION"))),
        ("clock_difference_secs", json!(0)),
        ("signature", json!("accepted")),
        ("token", json!("accepted")),
        ("tools", json!(1)),
        ("tool_names", json!(["shop:find"])),
    ] {
        assert_eq!(proxy[key], value, "{key}");
    }
    let text = sandbox.run(&["--output", "text", "auth", "show"]);
    let text = stdout(&text);
    for line in [
        "Agent:    agent-7",
        "Scopes:   2 tools, 1 skills, help enabled",
        "Verified: YES",
        "  ok   token: accepted",
        "  ok   tools: 1 (shop:find)",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}:\n{text}");
    }
}

#[test]
fn status_of_a_caller_without_a_good_token_says_so_and_how_to_mend_it() {
    let edge = Edge::new("enforce");
    let mut sandbox = edge.sandbox(Some(HEX));
    let old = edge.token(|claims| claims.exp = unix_now() - 3600);
    // Within the leeway lists are still answered, and calls aren't.
    let just_over = edge.token(|claims| claims.exp = unix_now() - 5);
    let foreign = Edge::new("log").token(|_| {});
    for (token, outcome, fix) in [
        ("", "missing", "ATI_SESSION_TOKEN"),
        ("half", "malformed", "JWT"),
        (&old, "expired", "ask for a new one"),
        (&just_over, "expired", "ask for a new one"),
        (&foreign, "refused", "ati token inspect"),
    ] {
        sandbox.set("ATI_SESSION_TOKEN", token);
        let (code, told) = status(&sandbox);
        assert_eq!((code, &told["proxy"]["token"]), (3, &json!(outcome)));
        assert_eq!(told["proxy"]["ok"], false);
        assert_eq!(told["proxy"]["signature"], "accepted");
        assert_eq!(told["signature_verified"], false);
        has(&check(&told, "token")["fix"], fix);
        let text = stdout(&sandbox.run(&["--output", "text", "auth", "status"]));
        assert!(
            text.contains("FAIL token") && !text.contains("unrestricted"),
            "{text}"
        );
    }
}

#[test]
fn status_of_a_caller_with_another_secret_names_the_fix() {
    let edge = Edge::new("enforce");
    let (code, told) = status(&edge.sandbox(Some("another")));
    assert_eq!(code, 3);
    assert_eq!(told["proxy"]["signature"], "refused");
    assert_eq!(told["proxy"]["signature_reason"], "hmac_mismatch");
    has(
        &check(&told, "signature")["fix"],
        "sandbox_signing_shared_secret",
    );
    // The proxy didn't look at the token; the keys that it publishes did.
    assert_eq!(told["proxy"]["token"], "unknown");
    assert_eq!(told["signature_verified"], true);

    let (code, told) = status(&edge.sandbox(None));
    assert_eq!((code, &told["proxy"]["signature"]), (3, &json!("refused")));
    has(&check(&told, "signature")["fix"], "ATI_SANDBOX_SECRET");
}

#[test]
fn status_at_a_proxy_that_warns_or_does_not_ask_is_good() {
    let edge = Edge::new("warn");
    let (code, told) = status(&edge.sandbox(None));
    assert_eq!((code, &told["proxy"]["signature"]), (0, &json!("warned")));
    assert_eq!(check(&told, "signature")["status"], "warn");
    let (_, told) = status(&edge.sandbox(Some(HEX)));
    assert_eq!(told["proxy"]["signature"], "accepted");

    let (_api, open) = super::setup("log");
    let open = open.start();
    let mut sandbox = Sandbox::new();
    sandbox.set("ATI_PROXY_URL", &format!("http://{}", open.edge));
    let (code, told) = status(&sandbox);
    assert_eq!(code, 0);
    assert_eq!(told["sub"], Value::Null);
    assert_eq!(told["proxy"]["signature"], "not_needed");
    assert_eq!(told["proxy"]["token"], "not_needed");
    assert_eq!(told["proxy"]["tools"], 4);
}

#[test]
fn status_where_no_proxy_answers_exits_with_4() {
    let page = Upstream::fixed("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhome");
    for url in [format!("http://{}", free_address()), page.url()] {
        let mut sandbox = Sandbox::new();
        sandbox.set("ATI_PROXY_URL", &url);
        let (code, told) = status(&sandbox);
        assert_eq!((code, &told["proxy"]["reachable"]), (4, &json!(false)));
        has(&check(&told, "reachable")["fix"], "ATI_PROXY_URL");
    }
}

#[test]
fn status_tells_by_how_much_the_clocks_differ() {
    let ahead = std::time::SystemTime::now() + std::time::Duration::from_secs(300);
    let date = httpdate::fmt_http_date(ahead);
    let health = json!({"status": "ok", "version": "9", "auth": "disabled"}).to_string();
    let answer = move |target: &str| {
        let body = if target == "/health" { &health } else { "[]" };
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\ndate: {date}\r\ncontent-length: {length}\r\n\r\n{body}")
    };
    let proxy = Upstream::answering(move |received, stream| {
        let answer = answer(&received.target);
        std::io::Write::write_all(stream, answer.as_bytes()).is_ok()
    });
    let mut sandbox = Sandbox::new();
    sandbox.set("ATI_PROXY_URL", &proxy.url());
    let (code, told) = status(&sandbox);
    assert_eq!(code, 0);
    let difference = told["proxy"]["clock_difference_secs"].as_i64().unwrap();
    assert!((260..=301).contains(&difference), "{difference}");
    assert_eq!(check(&told, "clock")["status"], "warn");
    has(&check(&told, "clock")["fix"], "chronyd");
    assert_eq!(check(&told, "tools")["status"], "warn");
}

#[test]
fn status_without_a_proxy_uses_the_key_of_config_toml() {
    let dir = tempfile::tempdir().unwrap();
    assert!(ati(dir.path(), &["init", "--proxy"]).status.success());
    let args = ["token", "issue", "--sub", "a", "--scope", "tool:x"];
    let token = stdout(&ati(dir.path(), &args));
    write(&dir.path().join("token"), token);
    let output = crate::support::ati::command(dir.path())
        .env("ATI_SESSION_TOKEN_FILE", dir.path().join("token"))
        .args(["auth", "status"])
        .output()
        .unwrap();
    let told: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(told["signature_verified"], true);
    assert_eq!(told.get("proxy"), None);

    // Asked for by name, the answer is JSON without a token, too.
    let told: Value =
        serde_json::from_str(&stdout(&ati(dir.path(), &["-J", "auth", "status"]))).unwrap();
    assert_eq!(
        (&told["sub"], &told["unrestricted"]),
        (&Value::Null, &json!(true))
    );
}
