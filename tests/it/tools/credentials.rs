//! Which credential a call presents, and where it may not appear.

use std::io::Write;
use std::sync::Arc;

use serde_json::json;

use super::{BEARER, KEY, json_upstream, upstream, with_key};
use crate::support::ati::{Setup, tool};
use crate::support::tokens::{bearer_of, key_pair};
use crate::support::upstream::Upstream;

#[test]
fn tool_presents_its_credential_by_each_auth_type() {
    let api = json_upstream(json!({}));
    let one = |name: &str| {
        format!(
            r#"
                [[tools]]
                name = '{name}'
                endpoint = '/x'
            "#
        )
    };
    let url_key = "planted/url key";
    let proxy = Setup::new()
        .credentials(&json!({"api": KEY, "url_key": url_key, "pair": "planted-user:planted-word"}))
        .tools(
            "header",
            &api.url(),
            r#"
                auth_type = 'header'
                auth_key_name = 'api'
                auth_value_prefix = 'Token '
            "#,
            &one("header"),
        )
        .tools(
            "named",
            &api.url(),
            r#"
                auth_type = 'header'
                auth_key_name = 'api'
                auth_header_name = 'X-Mine'
            "#,
            &one("named"),
        )
        .tools(
            "query",
            &api.url(),
            r#"
                auth_type = 'query'
                auth_key_name = 'api'
                auth_query_name = 'token'
            "#,
            &one("query"),
        )
        .tools(
            "basic",
            &api.url(),
            "auth_type = 'basic'\nauth_key_name = 'api'",
            &one("basic"),
        )
        .tools(
            "pair",
            &api.url(),
            "auth_type = 'basic'\nauth_key_name = 'pair'",
            &one("pair"),
        )
        .tools("none", &api.url(), "", &one("none"))
        .tools(
            "url",
            &format!("{}/${{url_key}}", api.url()),
            "auth_type = 'url'",
            &one("url"),
        )
        .start();
    let ask = |tool: &str| {
        let response = proxy.call(None, tool, json!({"token": "theirs", "q": 1}));
        assert_eq!(response.status, 200, "{}", response.text());
        api.last()
    };
    assert_eq!(
        ask("header").header("x-api-key"),
        Some(format!("Token {KEY}").as_str())
    );
    assert_eq!(ask("named").header("x-mine"), Some(KEY));
    // It replaces what the caller sent under that name.
    assert_eq!(ask("query").target, format!("/x?q=1&token={KEY}"));
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{KEY}:"));
    assert_eq!(
        ask("basic").header("authorization"),
        Some(format!("Basic {encoded}").as_str())
    );
    let encoded = base64::engine::general_purpose::STANDARD.encode("planted-user:planted-word");
    assert_eq!(
        ask("pair").header("authorization"),
        Some(format!("Basic {encoded}").as_str())
    );
    assert_eq!(ask("none").header("authorization"), None);
    assert_eq!(ask("url").target, "/planted/url%20key/x?token=theirs&q=1");
}

#[test]
fn answer_that_repeats_the_key_is_redacted() {
    let api = Upstream::answering(|received, stream| {
        let status = if received.target.contains("fail") {
            400
        } else {
            200
        };
        let body = json!({"headers": received.headers, "url": received.target}).to_string();
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).is_ok()
    });
    let two = |name: &str| {
        format!(
            r#"
                [[tools]]
                name = '{name}'
                endpoint = '/ok'

                [[tools]]
                name = '{name}_fail'
                endpoint = '/fail'
            "#
        )
    };
    let proxy = Setup::new()
        .credentials(&json!({"api": KEY, "odd": "planted-\"quoted\"/&ü"}))
        .tools(
            "bearer",
            &api.url(),
            &format!("{BEARER}\nextra_headers = {{ X-Odd = '${{odd}}' }}"),
            &two("bearer"),
        )
        .tools(
            "basic",
            &api.url(),
            "auth_type = 'basic'\nauth_key_name = 'api'",
            &two("basic"),
        )
        .tools(
            "query",
            &api.url(),
            "auth_type = 'query'\nauth_key_name = 'odd'",
            &two("query"),
        )
        .start();
    for tool in [
        "bearer",
        "bearer_fail",
        "basic",
        "basic_fail",
        "query",
        "query_fail",
    ] {
        let text = proxy.call(None, tool, json!({})).text();
        crate::support::ati::tells_nothing(tool, &text);
        assert!(text.contains("[REDACTED]"), "{tool}: {text}");
    }
}

#[test]
fn redirect_to_another_origin_carries_no_credential() {
    let foreign = Arc::new(json_upstream(json!({"from": "foreign"})));
    let foreign_url = foreign.url();
    let api = upstream(move |received| {
        let to = |location: &str| (307, format!("location: {location}\r\n"), String::new());
        match received.target.split('?').next().unwrap() {
            "/near" => to("/arrived"),
            "/far" => to(&format!("{foreign_url}/x")),
            // As many servers do: with the query that came.
            "/kept" => to(&format!("{foreign_url}{}", received.target)),
            "/other" => to(&format!("{foreign_url}/x?k={KEY}")),
            "/path" => to(&format!("{foreign_url}/{KEY}/x")),
            "/see" => (303, "location: /arrived\r\n".into(), String::new()),
            "/round" => to("/round"),
            "/odd" => to("ftp://x/y"),
            _ => (
                200,
                String::new(),
                json!({"method": received.method, "body": received.body.len()}).to_string(),
            ),
        }
    });
    let one = |name: &str| {
        format!(
            r#"
                [[tools]]
                name = '{name}'
                endpoint = '/{name}'
                method = 'POST'
            "#
        )
    };
    let tools = [
        "near", "far", "kept", "other", "path", "see", "round", "odd",
    ];
    let tools = tools.map(one).concat();
    let query = tools.replace("name = '", "name = 'q_");
    let provider = format!("{BEARER}\nextra_headers = {{ X-Extra = 'k ${{api}}' }}");
    let proxy = with_key(Setup::new())
        .tools("p", &api.url(), &provider, &tools)
        .tools(
            "q",
            &api.url(),
            "auth_type = 'query'\nauth_key_name = 'api'",
            &query,
        )
        .start();
    let call = |tool: &str| proxy.call(None, tool, json!({"a": 1})).json();
    assert_eq!(call("near")["result"], json!({"method": "POST", "body": 7}));
    assert_eq!(
        api.last().header("authorization"),
        Some(format!("Bearer {KEY}").as_str())
    );
    call("q_near");
    assert_eq!(api.last().target, format!("/arrived?api_key={KEY}"));
    assert_eq!(call("see")["result"], json!({"method": "GET", "body": 0}));
    for tool in ["far", "q_far"] {
        assert_eq!(call(tool)["result"]["from"], "foreign");
        let seen = foreign.last();
        assert_eq!(
            (seen.header("authorization"), seen.header("x-extra")),
            (None, None)
        );
        assert_eq!((seen.target.as_str(), seen.body.len()), ("/x", 7));
    }
    assert_eq!(call("q_kept")["result"]["from"], "foreign");
    assert_eq!(foreign.last().target, "/kept?");
    let before = foreign.received().len();
    for tool in ["other", "path", "q_other", "q_path"] {
        assert_eq!(
            call(tool)["error"],
            "Upstream API error: HTTP request failed: it redirected to another origin with a \
             credential in the URL",
            "{tool}"
        );
    }
    assert_eq!(foreign.received().len(), before);
    assert_eq!(
        call("round")["error"],
        "Upstream API error: HTTP request failed: more than 10 redirects"
    );
    assert_eq!(
        call("odd")["error"],
        "Upstream API error: HTTP request failed: it redirected to something that is no http or https URL"
    );
}

#[test]
fn tenants_use_their_own_keys() {
    let api = json_upstream(json!({}));
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .jwt(&public)
        .credentials(&json!({"api": "planted-everybody", "api@acme": "planted-acme-own", "solo@acme": "planted-solo-one"}))
        .tools("p", &api.url(), BEARER, &tool("p", ""))
        .tools("s", &api.url(), "auth_type = 'bearer'\nauth_key_name = 'solo'", &tool("s", ""))
        .start();
    let ask = |customer: Option<&str>, tool: &str| {
        let token = bearer_of(&signer, customer);
        let response = proxy.call(Some(&token), tool, json!({}));
        (response.status == 200).then(|| api.last().header("authorization").unwrap().to_owned())
    };
    for _ in 0..2 {
        assert_eq!(ask(None, "p").as_deref(), Some("Bearer planted-everybody"));
        assert_eq!(
            ask(Some("acme"), "p").as_deref(),
            Some("Bearer planted-acme-own")
        );
        assert_eq!(
            ask(Some("globex"), "p").as_deref(),
            Some("Bearer planted-everybody")
        );
    }
    assert_eq!(
        ask(Some("acme"), "s").as_deref(),
        Some("Bearer planted-solo-one")
    );
    assert_eq!(ask(Some("globex"), "s"), None);
}

#[test]
fn key_in_the_url_is_redacted_for_each_tenant() {
    let api = Upstream::echo();
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .jwt(&public)
        .credentials(&json!({"k": "planted-shared-0001", "k@acme": "planted-acme-0002"}))
        .tools(
            "p",
            &format!("{}/v/${{k}}", api.url()),
            "auth_type = 'url'",
            r#"
                [[tools]]
                name = 'p'
                endpoint = '/t'
            "#,
        )
        .start();
    for customer in [Some("acme"), None, Some("acme"), Some("other")] {
        let token = bearer_of(&signer, customer);
        let answer = proxy.call(Some(&token), "p", json!({}));
        assert_eq!(
            answer.json()["result"]["target"],
            "/v/[REDACTED]/t",
            "{customer:?}"
        );
    }
}
