//! Tokens of an OAuth2 token endpoint: fetched once, renewed when refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::upstream;
use crate::support::ati::{Proxy, Setup, tool};
use crate::support::tls::Authority;
use crate::support::tokens::{bearer_of, key_pair};

/// A proxy with an oauth2 provider whose token endpoint counts, and the API that it guards.
struct Exchange {
    proxy: Proxy,
    asked: Arc<AtomicUsize>,
    accepted: Arc<AtomicUsize>,
    forms: Arc<std::sync::Mutex<Vec<(String, String)>>>,
}

fn exchange(
    more: &str,
    answer: impl Fn(usize) -> (u16, Value) + Send + Sync + 'static,
) -> Exchange {
    let authority = Authority::new();
    let (asked, accepted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(1)));
    let forms: Arc<std::sync::Mutex<Vec<(String, String)>>> = Arc::default();
    let (count, seen) = (asked.clone(), forms.clone());
    let tokens = authority.answering("127.0.0.1", move |head, body| {
        let nth = 1 + count.fetch_add(1, Ordering::SeqCst);
        let line = head.lines().next().unwrap_or_default();
        let authorization = head
            .lines()
            .find(|line| line.to_lowercase().starts_with("authorization"));
        let form = String::from_utf8_lossy(body).into_owned();
        seen.lock().unwrap().push((
            format!("{line} {}", authorization.unwrap_or_default()),
            form,
        ));
        // Slow enough that all callers wait for the same token request.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let (status, body) = answer(nth);
        (status, body.to_string())
    });
    let valid = accepted.clone();
    let api = upstream(move |received| {
        let expected = format!("Bearer planted-token-{}", valid.load(Ordering::SeqCst));
        match received.header("authorization") == Some(expected.as_str()) {
            true => (200, String::new(), "{}".into()),
            false => (401, String::new(), "who are you?".into()),
        }
    });
    let setup = Setup::new().file("ca.pem", authority.pem());
    let proxy = setup
        .credentials(&json!({"id": "client", "secret": "planted-client-secret"}))
        .conf("[egress]\nca_file = 'ca.pem'\n")
        .tools(
            "oauth",
            &api.url(),
            &format!(
                r#"
                    auth_type = 'oauth2'
                    auth_key_name = 'id'
                    auth_secret_name = 'secret'
                    oauth2_token_url = 'https://{tokens}/token'
                    {more}
                "#
            ),
            &tool("guarded", ""),
        )
        .start();
    Exchange {
        proxy,
        asked,
        accepted,
        forms,
    }
}

fn token(nth: usize) -> (u16, Value) {
    (
        200,
        json!({"access_token": format!("planted-token-{nth}"), "token_type": "bearer", "expires_in": 3600}),
    )
}

#[test]
fn two_hundred_callers_share_one_token_request() {
    let exchange = exchange("", token);
    let proxy = &exchange.proxy;
    std::thread::scope(|scope| {
        for _ in 0..200 {
            scope.spawn(|| {
                let response = proxy.call(None, "guarded", json!({}));
                assert_eq!(response.status, 200, "{}", response.text());
            });
        }
    });
    assert_eq!(exchange.asked.load(Ordering::SeqCst), 1);
    let form = exchange.forms.lock().unwrap()[0].clone();
    assert_eq!(
        form.1,
        "grant_type=client_credentials&client_id=client&client_secret=planted-client-secret"
    );

    // A refused token is fetched again once, however many callers find out.
    exchange.accepted.store(2, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let response = proxy.call(None, "guarded", json!({}));
                assert_eq!(response.status, 200, "{}", response.text());
            });
        }
    });
    assert_eq!(exchange.asked.load(Ordering::SeqCst), 2);
    // A refusal that a fresh token doesn't help against is passed on, and causes no further fetch.
    exchange.accepted.store(99, Ordering::SeqCst);
    let refused = proxy.call(None, "guarded", json!({}));
    assert_eq!(
        refused.json()["error"],
        "Upstream API error: API error (401): who are you?"
    );
    assert_eq!(exchange.asked.load(Ordering::SeqCst), 2);
}

#[test]
fn tenants_with_one_client_keep_their_own_extra_headers() {
    let authority = Authority::new();
    let tokens = authority.answering("127.0.0.1", |_, _| (200, token(1).1.to_string()));
    let api = upstream(|received| {
        let workspace = received.header("x-workspace").unwrap_or_default();
        (200, String::new(), json!(workspace.len()).to_string())
    });
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .file("ca.pem", authority.pem())
        .conf("[egress]\nca_file = 'ca.pem'\n")
        .credentials(&json!({"id": "client", "secret": "planted-client-secret", "w@a": "planted-w-of-a", "w@bb": "planted-w-of-bb"}))
        .jwt(&public)
        .tools(
            "oauth",
            &api.url(),
            &format!(r#"
                auth_type = 'oauth2'
                auth_key_name = 'id'
                auth_secret_name = 'secret'
                oauth2_token_url = 'https://{tokens}/token'
                [provider.extra_headers]
                X-Workspace = '${{w}}'
            "#),
            &tool("guarded", ""),
        )
        .start();
    for (customer, length) in [("a", 14), ("bb", 15), ("a", 14)] {
        let token = bearer_of(&signer, Some(customer));
        let answer = proxy.call(Some(&token), "guarded", json!({}));
        assert_eq!(answer.json()["result"], length, "{}", answer.text());
    }
}

#[test]
fn token_request_that_fails_is_reported_without_secrets() {
    let exchange = exchange("oauth2_basic_auth = true", |_| {
        use base64::Engine as _;
        let basic =
            base64::engine::general_purpose::STANDARD.encode("client:planted-client-secret");
        (
            400,
            json!({"error": "invalid_client", "got": "planted-client-secret", "header": basic}),
        )
    });
    let refused = exchange.proxy.call(None, "guarded", json!({}));
    let text = refused.text();
    assert_eq!(refused.status, 502);
    assert!(
        text.contains("Upstream API error: OAuth2 token exchange failed: HTTP 400: invalid_client"),
        "{text}"
    );
    crate::support::ati::tells_nothing("the refusal", &text);
    let (line, form) = exchange.forms.lock().unwrap()[0].clone();
    assert_eq!(form, "grant_type=client_credentials");
    assert!(
        line.to_lowercase().contains("authorization: basic "),
        "{line}"
    );

    let plain = Setup::new()
        .credentials(&json!({"id": "client", "secret": "planted-client-secret"}))
        .tools(
            "plain",
            "http://127.0.0.1:1",
            r#"
                auth_type = 'oauth2'
                auth_key_name = 'id'
                auth_secret_name = 'secret'
                oauth2_token_url = '/token'
            "#,
            &tool("plain", ""),
        )
        .start();
    let refused = plain.call(None, "plain", json!({}));
    assert_eq!(
        refused.json()["error"],
        "Upstream API error: OAuth2 token URL must use HTTPS: '/token'"
    );
}

#[test]
fn token_with_a_huge_lifetime_is_cached() {
    let exchange = exchange("", |nth| {
        (
            200,
            json!({"access_token": format!("planted-token-{nth}"), "expires_in": 1e19}),
        )
    });
    for _ in 0..2 {
        assert_eq!(exchange.proxy.call(None, "guarded", json!({})).status, 200);
    }
    assert_eq!(exchange.asked.load(Ordering::SeqCst), 1);
}
