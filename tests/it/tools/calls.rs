//! Calls that succeed, and the listings of tools.

use serde_json::{Value, json};

use super::{BEARER, KEY, json_upstream, with_key};
use crate::support::ati::{Setup, tool};
use crate::support::http::Client;
use crate::support::tls::Authority;
use crate::support::tokens::{bearer, claims, key_pair};

#[test]
fn call_presents_the_operators_key_and_returns_the_result() {
    let api = json_upstream(json!({"b": 1.50, "a": [1]}));
    let proxy = with_key(Setup::new())
        .tools(
            "shop",
            &api.url(),
            &format!("{BEARER}\nextra_headers = {{ X-Static = 'yes', X-Keyed = 'k ${{api}}' }}"),
            r#"
                [[tools]]
                name = 'shop:find_item'
                endpoint = '/items'

                [[tools]]
                name = 'shop:add'
                method = 'POST'
                endpoint = '/items'
            "#,
        )
        .start();
    let found = proxy.call(None, "shop:find_item", json!({"q": "red shoes", "n": 3}));
    // The upstream's JSON unchanged, and no `error`.
    assert_eq!(
        (found.status, found.text().as_str()),
        (200, r#"{"result":{"b":1.5,"a":[1]}}"#)
    );
    assert_eq!(found.header("content-type"), Some("application/json"));
    let seen = api.last();
    assert_eq!(
        (seen.method.as_str(), seen.target.as_str()),
        ("GET", "/items?q=red%20shoes&n=3")
    );
    assert_eq!(
        seen.header("authorization"),
        Some(format!("Bearer {KEY}").as_str())
    );
    assert_eq!(seen.header("x-static"), Some("yes"));
    assert_eq!(seen.header("x-keyed"), Some(format!("k {KEY}").as_str()));

    // The older spelling of the name, with an underscore.
    let added = proxy.call(None, "shop_add", json!({"name": "hat"}));
    assert_eq!(added.status, 200);
    assert_eq!(api.last().body, br#"{"name":"hat"}"#);
    assert_eq!(api.last().header("content-type"), Some("application/json"));

    let health = proxy.client().get("/health").json();
    assert_eq!(
        (&health["tools"], &health["providers"]),
        (&json!(2 + 2), &json!(1 + 1))
    );
    proxy.settles(
        r#"ati_tool_calls_total{outcome="ok",provider="shop",tool="shop:find_item"}"#,
        1.0,
    );
    proxy.settles(r#"ati_tool_duration_seconds_count{provider="shop"}"#, 2.0);
}

#[test]
fn tool_listing_shows_only_what_the_token_allows() {
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .jwt(&public)
        .tools(
            "pets",
            "http://127.0.0.1:1",
            "category = 'animals'\nskills = ['care']",
            r#"
                [[tools]]
                name = 'pets:get'
                description = 'One pet'
                endpoint = '/pets'
                method = 'post'
                tags = ['zoo']
                hint = 'by id'
                input_schema = { type = 'object' }

                [[tools]]
                name = 'pets:feed'
                description = 'Give a pet food'
            "#,
        )
        .tools(
            "other",
            "http://127.0.0.1:1",
            "",
            r#"
                [[tools]]
                name = 'other_thing'
                description = 'Feed the press'
            "#,
        )
        .start();
    let ask = |scope: &str, path: &str| {
        let token = bearer(
            &signer,
            &ati::auth::token::Claims {
                scope: scope.into(),
                ..claims()
            },
        );
        let response = proxy
            .client()
            .send("GET", path, &[("authorization", &token)], b"");
        (response.status, response.json())
    };
    let names = |scope: &str, path: &str| -> Vec<String> {
        let (_, list) = ask(scope, path);
        list.as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        names("*", "/tools"),
        [
            "other_thing",
            "pets:get",
            "pets:feed",
            "file_manager:download",
            "file_manager:upload"
        ]
    );
    assert_eq!(names("tool:pets:*", "/tools"), ["pets:get", "pets:feed"]);
    assert_eq!(names("tool:pets_get", "/tools"), ["pets:get"]);
    assert!(names("skill:care", "/tools").is_empty());
    assert_eq!(names("*", "/tools?provider=other"), ["other_thing"]);
    // Ranked: a name counts for more than a description.
    assert_eq!(
        names("*", "/tools?search=feed"),
        ["pets:feed", "other_thing"]
    );
    assert_eq!(
        names("*", "/tools?search=feed%20pet&provider=pets"),
        ["pets:feed", "pets:get"]
    );
    let expected = json!({"name": "pets:get", "description": "One pet", "provider": "pets", "method": "Post",
        "tags": ["zoo"], "skills": ["care"], "input_schema": {"type": "object"},
        "scope": "tool:pets:get", "category": "animals", "handler": "http"});
    assert_eq!(ask("tool:pets:get", "/tools").1, json!([expected]));

    for path in ["/tools/pets:get", "/tools/pets%3Aget", "/tools/pets_get"] {
        let (status, tool) = ask("tool:pets:*", path);
        assert_eq!(status, 200, "{path}");
        let expected = json!({"name": "pets:get", "description": "One pet", "provider": "pets", "method": "Post",
            "endpoint": "/pets", "tags": ["zoo"], "hint": "by id", "skills": ["care"],
            "input_schema": {"type": "object"}, "scope": "tool:pets:get",
            "category": "animals", "handler": "http", "transport": null, "provider_description": "",
            "examples": []});
        assert_eq!(tool, expected);
    }
    for (scope, name) in [("tool:other_thing", "pets:get"), ("*", "absent")] {
        let expected = json!({"error": format!("Tool '{name}' not found")});
        assert_eq!(ask(scope, &format!("/tools/{name}")), (404, expected));
    }
}

#[test]
fn xai_handler_asks_a_chat_endpoint() {
    let api = json_upstream(
        json!({"choices": [{"message": {"content": "42"}}], "citations": ["https://a"]}),
    );
    let proxy = with_key(Setup::new())
        .tools(
            "xai",
            &api.url(),
            &format!("handler = 'xai'\n{BEARER}"),
            r#"
                [[tools]]
                name = 'ask'
                method = 'POST'
                endpoint = '/chat/completions'
            "#,
        )
        .start();
    let answer = proxy.call(None, "ask", json!({"query": "why?"}));
    assert_eq!(
        answer.json(),
        json!({"result": {"text": "42", "citations": ["https://a"]}})
    );
    let body: Value = serde_json::from_slice(&api.last().body).unwrap();
    assert_eq!(
        body["messages"][0],
        json!({"role": "user", "content": "why?"})
    );
}

#[test]
fn expect_100_continue_is_answered_before_a_large_body() {
    let api = json_upstream(json!({}));
    let proxy = Setup::new()
        .tools(
            "p",
            &api.url(),
            "",
            r#"
                [[tools]]
                name = 'p'
                method = 'POST'
            "#,
        )
        .start();
    let body = json!({"tool_name": "p", "args": {"text": "x".repeat(3 << 20)}}).to_string();
    let mut client = Client::connect(proxy.edge);
    let head = format!(
        "POST /call HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    client.write(head.as_bytes());
    assert_eq!(client.read(false).status, 100);
    client.write(body.as_bytes());
    assert_eq!(client.read(false).status, 200);
    assert!(api.last().body.len() > 3 << 20);
}

#[test]
fn upstream_over_tls_is_called_in_http2() {
    let authority = Authority::new();
    let api = authority.serve("127.0.0.1", true);
    let proxy = Setup::new()
        .file("ca.pem", authority.pem())
        .conf("[egress]\nca_file = 'ca.pem'\n")
        .tools(
            "p",
            &format!("https://{api}"),
            "",
            r#"
                [[tools]]
                name = 'p'
                endpoint = '/x'
            "#,
        )
        .start();
    let answer = proxy.call(None, "p", json!({})).json();
    let text = answer["result"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"));
    assert!(text.starts_with("h2 /x "), "{text}");
    // Without the authority's certificate the upstream isn't trusted.
    let stranger = Setup::new()
        .tools("p", &format!("https://{api}"), "", &tool("p", ""))
        .start();
    let refused = stranger.call(None, "p", json!({})).json();
    assert_eq!(
        refused["error"],
        "Upstream API error: HTTP request failed: the TLS handshake failed"
    );
}
