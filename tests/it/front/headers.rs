//! Which requests and headers reach an edge, and what is logged.

use std::io::Write;

use serde_json::{Value, json};

use super::{Caddy, enforcing};
use crate::support::eventually;
use crate::support::tokens::sign;
use crate::support::upstream::{Received, Upstream};

#[test]
#[ignore = "needs Caddy"]
fn caddy_forwards_signed_requests_and_the_edge_refuses_unsigned_ones() {
    let upstream = Upstream::echo();
    let proxy = enforcing()
        .route(
            "svc",
            &upstream.url(),
            r#"
                path_prefix = '/svc'
                auth_type = 'bearer'
                auth_key_name = 'api_key'
            "#,
        )
        .start();
    let caddy = Caddy::start(&[proxy.edge]);
    let signature = sign("GET", "/svc/a");
    let signed = [
        ("X-Sandbox-Signature", signature.as_str()),
        ("X-Sandbox-Job-Id", "job-5"),
    ];
    let response = caddy.send("GET", "/svc/a?b=%2f", &signed, b"");
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.json()["target"], "/a?b=%2f");
    let key = upstream.last().header("authorization").map(str::to_owned);
    assert_eq!(key.as_deref(), Some("Bearer planted-upstream-key"));
    let seen = proxy.log.wait_for("sig_verify");
    assert_eq!(
        (&seen["valid"], &seen["job_id"]),
        (&json!(true), &json!("job-5"))
    );

    let response = caddy.send("GET", "/svc/a", &[], b"");
    assert_eq!(
        (response.status, response.text().as_str()),
        (403, "missing_signature")
    );
    assert_eq!(upstream.received().len(), 1);
    // The admin endpoints are not reachable through Caddy.
    for path in ["/metrics", "/keyring", "/credentials", "/ready"] {
        let signature = sign("GET", path);
        let signed = [("X-Sandbox-Signature", signature.as_str())];
        assert_eq!(caddy.send("GET", path, &signed, b"").status, 404, "{path}");
    }
    // A host name that Caddy doesn't serve.
    let mut client = caddy.client();
    client.write(b"GET /health HTTP/1.1\r\nhost: unknown.example\r\n\r\n");
    assert_eq!(client.read(false).status, 421);
}

/// Headers by which a caller could pretend to be another one.
const FORGED: &[(&str, &str)] = &[
    ("X-Forwarded-For", "203.0.113.66"),
    ("x-forwarded-for", "203.0.113.67"),
    ("X-Forwarded-Proto", "gopher-203.0.113.66"),
    ("X-Forwarded-Host", "203.0.113.66"),
    ("X-Forwarded-Port", "203.0.113.66"),
    ("X-Forwarded-Client-Cert", "203.0.113.66"),
    ("Forwarded", "for=203.0.113.66"),
    ("X-Real-IP", "203.0.113.66"),
    ("Via", "1.1 203.0.113.66"),
    ("True-Client-IP", "203.0.113.66"),
    ("CF-Connecting-IP", "203.0.113.66"),
    ("X-Client-IP", "203.0.113.66"),
    ("X-Cluster-Client-IP", "203.0.113.66"),
    ("X-Original-URL", "/203.0.113.66"),
    ("X-Sandbox-Id", "203.0.113.66"),
    ("x-sandbox-customer", "203.0.113.66"),
    ("X_Sandbox_Signature", "203.0.113.66"),
    ("X-Sandbox_Signature", "203.0.113.66"),
    ("X_Forwarded_For", "203.0.113.66"),
    ("X-Forwarded_For", "203.0.113.66"),
    ("X-Real_IP", "203.0.113.66"),
    ("Proxy", "203.0.113.66"),
    ("Connection", "X-Forwarded-For, X-Forwarded-Proto"),
];

fn shows_no_forgery(received: &Received) {
    for (name, value) in &received.headers {
        assert!(!value.contains("203.0.113"), "{name}: {value}");
        assert!(!name.contains('_'), "{name}: {value}");
    }
    for name in ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"] {
        assert!(received.all(name).len() < 2, "{name} came twice");
    }
}

#[test]
#[ignore = "needs Caddy"]
fn caddy_strips_forged_forwarding_headers() {
    let upstream = Upstream::echo();
    let proxy = enforcing()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    let caddy = Caddy::start(&[proxy.edge]);
    let signature = sign("GET", "/svc/a");
    let mut headers = FORGED.to_vec();
    headers.push(("X-Sandbox-Signature", &signature));
    assert_eq!(caddy.send("GET", "/svc/a", &headers, b"").status, 200);
    shows_no_forgery(&upstream.last());
    assert!(!proxy.log.text().contains("203.0.113"));

    // The request as an edge receives it: here the test plays the edge.
    let edge = Upstream::echo();
    let caddy = Caddy::start(&[edge.address]);
    let wanted = |caddy: &Caddy, headers: &[(&str, &str)]| {
        let host = caddy.address.to_string();
        assert_eq!(caddy.send("GET", "/svc/a", headers, b"").status, 200);
        let received = edge.received();
        let received = received.iter().rfind(|r| r.target == "/svc/a").unwrap();
        shows_no_forgery(received);
        assert_eq!(received.header("x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!(received.header("x-forwarded-proto"), Some("https"));
        assert_eq!(received.header("x-forwarded-host"), Some(host.as_str()));
        received.clone()
    };
    headers.push(("X-Sandbox-Job-Id", "{env.HOME}"));
    headers.push(("X-Api-Key", "planted-callers-own"));
    let received = wanted(&caddy, &headers);
    let sandbox: Vec<_> = received
        .headers
        .iter()
        .filter(|(name, _)| name.starts_with("x-sandbox"))
        .collect();
    assert_eq!(sandbox.len(), 2, "{sandbox:?}");
    assert_eq!(
        received.header("x-sandbox-signature"),
        Some(signature.as_str())
    );
    // Unchanged: Caddy expands no placeholder that a caller sent.
    assert_eq!(received.header("x-sandbox-job-id"), Some("{env.HOME}"));
    assert_eq!(received.header("x-api-key"), Some("planted-callers-own"));
    // A caller that sends none of these headers has none added.
    let received = wanted(&caddy, FORGED);
    assert_eq!(received.header("x-sandbox-signature"), None);
    assert_eq!(received.header("x-sandbox-job-id"), None);
}

#[test]
#[ignore = "needs Caddy"]
fn caddy_logs_contain_no_secret() {
    let upstream = Upstream::echo();
    let proxy = enforcing()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    let headers = [
        ("Authorization", "Bearer planted-bearer"),
        ("Cookie", "session=planted-cookie"),
        ("X-Sandbox-Signature", "t=1,s=planted-signature"),
        ("X-Api-Key", "planted-key"),
        ("Referer", "https://example.com/?token=planted-referer"),
    ];
    let caddy = Caddy::start(&[proxy.edge]);
    for query in [
        "api_key=planted-a",
        "x=1&token=planted-b",
        "%61pi_key=planted-c?key=planted-d",
    ] {
        caddy.send("GET", &format!("/svc/a?{query}"), &headers, b"");
    }
    let mut client = caddy.client();
    client.write(b"GET /svc/b?key=planted-f HTTP/1.1\r\nhost: LOCALHOST:443\r\n\r\n");
    client.read(false);
    let lines = caddy.access_log(4);
    assert_eq!(lines[3]["request"]["uri"], "/svc/b");
    assert_eq!(lines[0]["request"]["uri"], "/svc/a");
    assert_eq!(lines[0]["status"], 403);
    assert_eq!(lines[0]["request"]["headers"], Value::Null);
    drop(caddy);

    // An edge that breaks off is logged by Caddy, together with the request.
    let edge = Upstream::answering(|received, stream| {
        received.target == "/health"
            && stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                .is_ok()
    });
    let caddy = Caddy::start(&[edge.address]);
    let response = caddy.send("GET", "/svc/a?api_key=planted-e", &headers, b"");
    assert_eq!(response.status, 502);
    eventually("Caddy's own record", || {
        caddy.file("caddy.log").contains("/svc/a").then_some(())
    });
    // `Drop` looks for secrets in the logs of ati and of Caddy.
}
