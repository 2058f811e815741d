//! The end of a token: by the clock for calls, with some leeway for the token itself.

use std::process::Output;

use ati::auth::token::Claims;
use ati::clock::unix_now;
use serde_json::{Value, json};

use super::es256;
use crate::support::ati::{Setup, command, stderr, tool, write};
use crate::support::eventually;
use crate::support::tokens::{bearer, claims, shared};
use crate::support::upstream::Upstream;

fn ending_at(exp: u64) -> Claims {
    Claims { exp, ..claims() }
}

fn setup(api: &Upstream) -> Setup {
    let tools = [tool("shop:find", ""), tool("shop:open", "scope = ''")].concat();
    Setup::new().tools("shop", &api.url(), "", &tools)
}

/// The exit code and the code of a failed command.
fn failure(output: &Output) -> (Option<i32>, String, String) {
    let text = stderr(output);
    let line = text.lines().find(|line| line.starts_with("{\"error\""));
    let error: Value = serde_json::from_str(line.unwrap_or_else(|| panic!("{text}"))).unwrap();
    let part = |name: &str| error["error"][name].as_str().unwrap().to_owned();
    (output.status.code(), part("code"), part("message"))
}

#[test]
fn expired_token_within_the_leeway_lists_and_calls_nothing() {
    let api = Upstream::fixed("HTTP/1.1 200 X\r\ncontent-length: 2\r\n\r\n{}");
    let (proxy, signer, _) = es256(setup(&api));
    let exp = unix_now() - 5;
    let token = bearer(&signer, &ending_at(exp));
    let expired = json!({
        "result": null, "error": format!("Scopes have expired (expired at {exp})")
    });
    // Twice: the second time the token is cached. A tool that needs no scope needs a token too.
    for name in ["shop:find", "shop:find", "shop:open"] {
        let refused = proxy.call(Some(&token), name, json!({}));
        assert_eq!((refused.status, refused.json()), (403, expired.clone()));
    }
    assert_eq!(proxy.call(Some(&token), "absent", json!({})).status, 404);
    let headers = [("authorization", token.as_str())];
    let list = proxy.client().send("GET", "/tools", &headers, b"");
    assert_eq!(
        (list.status, list.json().as_array().unwrap().len()),
        (200, 4)
    );
    assert!(api.received().is_empty());
    let line = &proxy.wait_for_audit(3)[0];
    assert_eq!(line["status"], "error");
    assert_eq!(line["error"], expired["error"]);
    proxy.settles(r#"ati_refusals_total{reason="expired"}"#, 3.0);
}

#[test]
fn expired_token_beyond_the_leeway_gets_401() {
    let api = Upstream::echo();
    let (proxy, signer, _) = es256(setup(&api));
    let token = bearer(&signer, &ending_at(unix_now() - 120));
    let refused = proxy.call(Some(&token), "shop:find", json!({}));
    assert_eq!((refused.status, refused.text().as_str()), (401, ""));
    let challenge = refused.header("www-authenticate").unwrap();
    assert!(challenge.contains("\"token_expired: "), "{challenge}");
}

#[test]
fn cached_token_stops_calling_when_it_expires() {
    let api = Upstream::fixed("HTTP/1.1 200 X\r\ncontent-length: 2\r\n\r\n{}");
    let (proxy, signer, _) = es256(setup(&api));
    let exp = unix_now() + 2;
    let token = bearer(&signer, &ending_at(exp));
    eventually("the end of the token", || {
        let answer = proxy.call(Some(&token), "shop:find", json!({}));
        match answer.status {
            200 => None,
            403 => {
                assert!(unix_now() >= exp);
                Some(())
            }
            other => panic!("{other}"),
        }
    });
    proxy.settles(r#"ati_token_cache_total{result="miss"}"#, 1.0);
}

#[test]
fn run_with_an_expired_token_says_when_it_ended() {
    let api = Upstream::echo();
    let dir = tempfile::tempdir().unwrap();
    write(
        &dir.path().join("manifests/shop.toml"),
        format!(
            "[provider]\nname = 'shop'\nbase_url = '{}'\n[[tools]]\nname = 'shop:find'\n",
            api.url()
        ),
    );
    let secret = "ab".repeat(32);
    let run = |exp: u64| {
        let token = shared(&secret).issue(&ending_at(exp)).unwrap();
        let output = command(dir.path())
            .env("ATI_JWT_SECRET", &secret)
            .env("ATI_SESSION_TOKEN", token)
            .args(["run", "shop:find"])
            .output()
            .unwrap();
        failure(&output)
    };
    let exp = unix_now() - 5;
    let expired = format!("Scopes have expired (expired at {exp})");
    assert_eq!(run(exp), (Some(3), "auth.expired".to_owned(), expired));
    let (code, kind, text) = run(unix_now() - 120);
    assert_eq!((code, kind.as_str()), (Some(3), "auth.expired"));
    assert!(
        text.contains("Invalid ATI_SESSION_TOKEN: expired"),
        "{text}"
    );
    assert!(api.received().is_empty());
}

#[test]
fn run_through_the_proxy_tells_an_expired_token_from_a_missing_scope() {
    let api = Upstream::echo();
    let (proxy, signer, _) = es256(setup(&api));
    let dir = tempfile::tempdir().unwrap();
    let exp = unix_now() - 5;
    let output = command(dir.path())
        .env("ATI_PROXY_URL", format!("http://{}", proxy.edge))
        .env("ATI_SESSION_TOKEN", signer.issue(&ending_at(exp)).unwrap())
        .args(["run", "shop:find"])
        .output()
        .unwrap();
    let expired = format!("Proxy error (403): Scopes have expired (expired at {exp})");
    assert_eq!(
        failure(&output),
        (Some(3), "auth.expired".to_owned(), expired)
    );
}

#[test]
fn expired_token_does_not_wait_for_a_server_that_is_down() {
    let down = "[provider]\nname = 'down'\nhandler = 'mcp'\nmcp_command = '/nonexistent'\n";
    let (proxy, signer, _) = es256(Setup::new().manifest("down", down));
    let token = bearer(&signer, &ending_at(unix_now() - 5));
    let refused = proxy.call(Some(&token), "down:any", json!({}));
    assert_eq!(refused.status, 403, "{}", refused.text());
}
