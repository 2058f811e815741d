//! Rate limits of a token.

use std::sync::atomic::{AtomicUsize, Ordering};

use ati::auth::token::{Claims, Namespace, Signer};
use serde_json::{Value, json};

use super::json_upstream;
use crate::support::ati::{Setup, tool};
use crate::support::eventually;
use crate::support::tokens::{bearer, claims, key_pair};

const TOOLS: &str = r#"
[[tools]]
name = "shop:find"

[[tools]]
name = "free"

[[tools]]
name = "shop:strict"
input_schema = { type = "object", required = ["q"] }
"#;

/// Five calls an hour of all tools of the shop together.
const FIVE: [(&str, &str); 1] = [("tool:shop:*", "5/hour")];

/// A token of this subject with these limits.
fn limited(signer: &Signer, subject: &str, rates: &[(&str, &str)]) -> String {
    let rate = rates
        .iter()
        .map(|(pattern, rate)| ((*pattern).to_owned(), (*rate).to_owned()))
        .collect();
    let namespace = Namespace {
        v: 1,
        rate,
        customer_id: None,
        delegation: None,
    };
    let claims = Claims {
        sub: subject.into(),
        ati: Some(namespace),
        ..claims()
    };
    bearer(signer, &claims)
}

#[test]
fn rate_limit_is_exact_across_callers_and_spellings() {
    let api = json_upstream(json!({}));
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .jwt(&public)
        .tools("shop", &api.url(), "", TOOLS)
        .start();
    let token = limited(&signer, "a", &FIVE);
    // A call with invalid arguments isn't counted.
    for _ in 0..10 {
        let invalid = proxy.call(Some(&token), "shop:strict", json!({}));
        assert_eq!(invalid.status, 422);
    }
    let passed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for n in 0..40 {
            let (proxy, token, passed) = (&proxy, &token, &passed);
            scope.spawn(move || {
                let tool = if n % 2 == 0 { "shop:find" } else { "shop_find" };
                let response = proxy.call(Some(token), tool, json!({}));
                match response.status {
                    200 => drop(passed.fetch_add(1, Ordering::SeqCst)),
                    429 => assert_eq!(
                        response.json()["error"],
                        "Rate limit exceeded for 'tool:shop:*': 5/hour (limit: 5/hour)"
                    ),
                    other => panic!("{other}"),
                }
            });
        }
    });
    assert_eq!(passed.load(Ordering::SeqCst), 5);
    assert_eq!(api.received().len(), 5);
}

#[test]
fn rate_limit_is_kept_per_subject_and_pattern() {
    let api = json_upstream(json!({}));
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .jwt(&public)
        .tools("shop", &api.url(), "", TOOLS)
        .start();
    let call = |token: &str, tool: &str| proxy.call(Some(token), tool, json!({"q": 1})).status;
    let token = limited(&signer, "a", &FIVE);
    for _ in 0..5 {
        assert_eq!(call(&token, "shop:find"), 200);
    }
    // Another token of the same subject shares its count; another subject has its own.
    assert_eq!(call(&limited(&signer, "a", &FIVE), "shop:strict"), 429);
    assert_eq!(call(&limited(&signer, "b", &FIVE), "shop:find"), 200);
    assert_eq!(call(&token, "free"), 200);
    // The older spelling of a pattern.
    let old = limited(&signer, "c", &[("tool:shop_*", "1/day")]);
    assert_eq!(call(&old, "shop:find"), 200);
    assert_eq!(call(&old, "shop:find"), 429);
    // A token whose limit can't be read is refused.
    let unreadable = limited(&signer, "d", &[("tool:*", "lots")]);
    assert_eq!(call(&unreadable, "free"), 401);
}

#[test]
fn rate_limit_counts_survive_a_restart() {
    let api = json_upstream(json!({}));
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .jwt(&public)
        .tools("shop", &api.url(), "", TOOLS)
        .start();
    let token = limited(&signer, "a", &FIVE);
    let old = limited(&signer, "c", &[("tool:shop_*", "1/day")]);
    for _ in 0..5 {
        proxy.call(Some(&token), "shop:find", json!({}));
    }
    proxy.call(Some(&old), "shop:find", json!({}));
    let state = eventually("the state file", || {
        let text = std::fs::read_to_string(proxy.path("rate-state.json")).ok()?;
        let state: Value = serde_json::from_str(&text).ok()?;
        (state["calls"]["c tool:shop_*"].as_array()?.len() == 1).then_some(state)
    });
    assert_eq!(state["calls"]["a tool:shop:*"].as_array().unwrap().len(), 5);
    let again = Setup::new()
        .jwt(&public)
        .file("rate-state.json", state.to_string())
        .tools("shop", &api.url(), "", &tool("shop:find", ""))
        .start();
    assert_eq!(again.call(Some(&token), "shop:find", json!({})).status, 429);
}

#[test]
fn rate_limit_that_matches_no_tool_is_logged_and_refuses_nothing() {
    let api = json_upstream(json!({}));
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .jwt(&public)
        .tools("shop", &api.url(), "", TOOLS)
        .start();
    let rates = [
        ("shop:find", "1/hour"),
        ("tool:Shop:*", "1/hour"),
        ("tool:shop:*", "9/hour"),
    ];
    let token = limited(&signer, "a", &rates);
    for _ in 0..3 {
        assert_eq!(proxy.call(Some(&token), "shop:find", json!({})).status, 200);
    }
    let message = "a rate limit matches no tool";
    proxy.log.wait_for_nth(message, 1);
    let found = proxy.log.find_all(message);
    let mut patterns: Vec<_> = found.iter().map(|line| line["pattern"].clone()).collect();
    patterns.dedup();
    assert_eq!(patterns, [json!("shop:find"), json!("tool:Shop:*")]);
}

#[test]
fn damaged_rate_state_is_kept_aside_with_an_error_record() {
    let (_, public) = key_pair();
    let setup = Setup::new()
        .jwt(&public)
        .file("rate-state.json", "{\"calls\":");
    let proxy = setup.start();
    let record = proxy.log.wait_for("rate state is damaged");
    assert_eq!(record["level"], "ERROR", "{record}");
    let kept = std::fs::read_to_string(proxy.path("rate-state.json.damaged")).unwrap();
    assert_eq!(kept, "{\"calls\":");
}
