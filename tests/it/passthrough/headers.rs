//! Which headers reach an upstream: the credential, and nothing that only ati may send.

use super::{KEY, with_keys};
use crate::support::ati::Setup;
use crate::support::eventually;
use crate::support::upstream::Upstream;

#[test]
fn route_presents_its_credential_by_each_auth_type() {
    let upstream = Upstream::echo();
    let url = upstream.url();
    let proxy = with_keys()
        .env("RUST_LOG", "trace")
        .route("bearer", &url, r#"
            path_prefix = '/bearer'
            auth_type = 'bearer'
            auth_key_name = 'api_key'
        "#)
        .route("header", &url, r#"
            path_prefix = '/header'
            auth_type = 'header'
            auth_key_name = 'API_KEY'
            auth_header_name = 'X-Token'
            auth_value_prefix = 'Token '
        "#)
        .route("plain-header", &url, r#"
            path_prefix = '/plain-header'
            auth_type = 'header'
            auth_key_name = 'api_key'
        "#)
        .route("query", &url, r#"
            path_prefix = '/query'
            auth_type = 'query'
            auth_key_name = 'api_key'
        "#)
        .route("basic", &url, r#"
            path_prefix = '/basic'
            auth_type = 'basic'
            auth_key_name = 'basic'
        "#)
        .route("extra", &url, "path_prefix = '/extra'\nextra_headers = { X-One = 'v ${api_key}', X-Two = '${absent}', X-Three = 'plain' }")
        .start();
    let ask = |path: &str| {
        let response = proxy.client().get(path);
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        upstream.last()
    };
    assert_eq!(
        ask("/bearer/a").header("authorization"),
        Some(format!("Bearer {KEY}").as_str())
    );
    assert_eq!(
        ask("/header/a").header("x-token"),
        Some(format!("Token {KEY}").as_str())
    );
    assert_eq!(ask("/plain-header/a").header("x-api-key"), Some(KEY));
    assert_eq!(
        ask("/query/a").target,
        "/a?api_key=planted-upstream-key-1c9d%2F%2B"
    );
    assert_eq!(
        ask("/query/a?x=%2f&y").target,
        "/a?x=%2f&y&api_key=planted-upstream-key-1c9d%2F%2B"
    );
    assert_eq!(
        ask("/basic/a").header("authorization"),
        Some("Basic dXNlcjpwbGFudGVkLXBhc3N3b3Jk")
    );
    let extra = ask("/extra/a");
    assert_eq!(extra.header("x-one"), Some(format!("v {KEY}").as_str()));
    assert_eq!(
        (extra.header("x-two"), extra.header("x-three")),
        (None, Some("plain"))
    );
    eventually("the warning", || {
        let log = proxy.log.text();
        log.contains("'absent' is not in the keyring").then_some(())
    });
    proxy.settles(r#"ati_credential_missing{name="absent"}"#, 1.0);
}

#[test]
fn headers_reserved_to_ati_are_stripped_from_requests() {
    let upstream = Upstream::echo();
    let proxy = with_keys()
        .route(
            "svc",
            &upstream.url(),
            r#"
                path_prefix = '/svc'
                auth_type = 'header'
                auth_key_name = 'api_key'
                auth_header_name = 'X-Key'
                extra_headers = { X-Extra = 'ours' }
                forward_authorization_paths = ['/own/*']
            "#,
        )
        .start();
    let sent = [
        ("X-Key", "mine"),
        ("x-key", "mine too"),
        ("X-Extra", "mine"),
        ("Authorization", "Bearer mine"),
        ("X-Sandbox-Job-Id", "7"),
        ("x-sandbox-anything", "x"),
        ("traceparent", "00-1"),
        ("tracestate", "a=b"),
        ("Connection", "close, X-Named"),
        ("X-Named", "x"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers"),
        ("Proxy-Authorization", "Basic x"),
        ("Upgrade", "h2c"),
        ("Cookie", "a=b"),
        ("X-Forwarded-For", "1.2.3.4"),
        ("Accept-Encoding", "br"),
    ];
    assert_eq!(proxy.client().send("GET", "/svc/x", &sent, b"").status, 200);
    let got = upstream.last();
    assert_eq!(got.header("x-key"), Some(KEY));
    assert_eq!(got.header("x-extra"), Some("ours"));
    for name in [
        "authorization",
        "x-sandbox-job-id",
        "x-sandbox-anything",
        "traceparent",
        "tracestate",
        "x-named",
        "keep-alive",
        "te",
        "proxy-authorization",
        "upgrade",
    ] {
        assert_eq!(got.header(name), None, "{name}");
    }
    for (name, value) in [
        ("cookie", "a=b"),
        ("x-forwarded-for", "1.2.3.4"),
        ("accept-encoding", "br"),
    ] {
        assert_eq!(got.header(name), Some(value), "{name}");
    }
    assert_eq!(
        got.header("host"),
        Some(upstream.address.to_string().as_str())
    );

    proxy.client().send(
        "GET",
        "/svc/own/x",
        &[("Authorization", "Bearer mine"), ("X-Key", "mine")],
        b"",
    );
    let got = upstream.last();
    assert_eq!(got.header("authorization"), Some("Bearer mine"));
    assert_eq!(
        (got.header("x-key"), got.header("x-extra")),
        (Some("mine"), Some("ours"))
    );
}

#[test]
fn headers_spelled_with_underscores_like_reserved_ones_are_dropped() {
    let upstream = Upstream::echo();
    let proxy = with_keys()
        .route(
            "svc",
            &upstream.url(),
            r#"
                path_prefix = '/svc'
                auth_type = 'header'
                auth_key_name = 'api_key'
            "#,
        )
        .start();
    let sent = [
        ("X_Api_Key", "mine"),
        ("X_Sandbox_Job_Id", "7"),
        ("X-Sandbox_Id", "7"),
        ("Content_Length", "5"),
        ("Transfer_Encoding", "x"),
        ("My_Own", "fine"),
    ];
    proxy.client().send("GET", "/svc/x", &sent, b"");
    let names: Vec<String> = upstream
        .last()
        .headers
        .iter()
        .map(|(name, _)| name.clone())
        .collect();
    let left: Vec<&String> = names.iter().filter(|name| name.contains('_')).collect();
    assert_eq!(left, ["my_own"]);
}

#[test]
fn trace_requests_get_405() {
    let upstream = Upstream::echo();
    let proxy = Setup::new()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    let response = proxy.client().send("TRACE", "/svc/x", &[], b"");
    assert_eq!(response.status, 405);
    assert!(upstream.received().is_empty());
}
