//! What a refusal says next to its status, and what becomes of its connection.

use ati::auth::token::{Claims, Namespace, Signer};
use ati::clock::unix_now;
use serde_json::{Value, json};

use crate::support::ati::{Proxy, Setup, tool};
use crate::support::free_address;
use crate::support::http::{Client, Response};
use crate::support::tokens::{SIGNING, bearer, claims, key_pair, shared};
use crate::support::upstream::Upstream;

const TEXT: Option<&str> = Some("text/plain; charset=utf-8");

/// One POST as one write, so that its body arrives with its head.
fn post(client: &mut Client, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
    let mut text = format!("POST {path} HTTP/1.1\r\nhost: x\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += &format!("content-length: {}\r\n\r\n{body}", body.len());
    client.write(text.as_bytes());
    client.read(false)
}

fn call(tool: &str) -> String {
    json!({"tool_name": tool, "args": {}}).to_string()
}

/// A token with this scope and this limit on every tool.
fn limited(signer: &Signer, subject: &str, scope: &str, rate: &str) -> String {
    let namespace = Namespace {
        v: 1,
        rate: [("tool:*".to_owned(), rate.to_owned())].into(),
        customer_id: None,
        delegation: None,
    };
    let claims = Claims {
        sub: subject.into(),
        scope: scope.into(),
        ati: Some(namespace),
        ..claims()
    };
    bearer(signer, &claims)
}

/// A proxy with tools behind tokens.
fn start() -> (Proxy, Signer) {
    let api = Upstream::fixed("HTTP/1.1 200 X\r\ncontent-length: 2\r\n\r\n{}");
    let strict = "input_schema = { type = 'object', required = ['q'] }";
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .jwt(&public)
        .tools("p", &api.url(), "", &tool("ok", ""))
        .tools("s", &api.url(), "", &tool("strict", strict))
        .tools("dead", "http://127.0.0.1:1", "", &tool("dead", ""))
        .start();
    (proxy, signer)
}

#[test]
fn refused_calls_share_one_connection() {
    let (proxy, signer) = start();
    let all = limited(&signer, "a", "*", "3/hour");
    let none = limited(&signer, "b", "help", "3/hour");
    let mut client = proxy.client();
    for (token, body, status) in [
        (Some(&all), call("absent"), 404),
        (Some(&all), call("strict"), 422),
        (Some(&all), "{".to_owned(), 422),
        (Some(&none), call("ok"), 403),
        (Some(&all), call("dead"), 502),
        (Some(&all), call("dead"), 502),
        (Some(&all), call("ok"), 200),
        (Some(&all), call("ok"), 429),
        (None, call("ok"), 401),
    ] {
        let headers: Vec<_> = token
            .map(|token| ("authorization", token.as_str()))
            .into_iter()
            .collect();
        let answer = post(&mut client, "/call", &headers, &body);
        assert_eq!(answer.status, status, "{body}");
        assert_eq!(answer.header("connection"), Some("keep-alive"), "{body}");
    }
    let not_json = post(
        &mut client,
        "/skills/resolve",
        &[("authorization", &all)],
        "{}",
    );
    assert_eq!(not_json.status, 415);
    assert_eq!(post(&mut client, "/nothing", &[], "body").status, 401);
    assert_eq!(post(&mut client, "/health", &[], "body").status, 405);
    assert_eq!(client.get("/health").status, 200);
}

#[test]
fn pipelined_calls_are_answered_one_by_one_after_a_refusal() {
    let proxy = Setup::new().start();
    let mut client = proxy.client();
    let body = call("absent");
    let request = format!(
        "POST /call HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let chunked = "POST /call HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n\
                   1\r\n{\r\n0\r\n\r\n";
    let unread = "POST /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc";
    let last = "GET /health HTTP/1.1\r\nhost: x\r\n\r\n";
    let all = [&request, chunked, unread, &request, unread, last].concat();
    client.write(all.as_bytes());
    let statuses: Vec<u16> = (0..6).map(|_| client.read(false).status).collect();
    assert_eq!(statuses, [404, 422, 404, 404, 404, 200]);
    assert_eq!(client.get("/health").status, 200);
}

#[test]
fn body_whose_end_is_not_reached_ends_the_connection() {
    let proxy = Setup::new().start();
    let smuggled = "GET /health HTTP/1.1\r\nhost: x\r\n\r\n";
    let cases = [
        // Half of a body. The rest looks like a request.
        (
            "POST /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\nhalf",
            404,
        ),
        (
            "POST /nothing HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1f4\r\nhalf",
            404,
        ),
        // Chunks that can't be read, at an endpoint that reads them and at two that don't.
        (
            "POST /call HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n0\r\n\r\n",
            400,
        ),
        (
            "POST /mcp HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n0\r\n\r\n",
            400,
        ),
        (
            "POST /nothing HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            400,
        ),
        // Announced, and kept back until ati asks for it.
        (
            "POST /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: 36\r\n\
             expect: 100-continue\r\n\r\n",
            404,
        ),
        // Too long to wait for.
        (
            "POST /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: 70000\r\n\r\n",
            404,
        ),
    ];
    // At once: ati waits a while for the rest of a body before it closes.
    std::thread::scope(|scope| {
        for (request, status) in cases {
            let mut client = proxy.client();
            scope.spawn(move || {
                client.write(request.as_bytes());
                let answer = client.read(false);
                assert_eq!(answer.status, status, "{request}");
                assert_eq!(answer.header("connection"), Some("close"), "{request}");
                let _ = client.try_write(smuggled.as_bytes());
                assert!(client.try_read(false).is_none(), "{request}");
            });
        }
    });
}

#[test]
fn body_that_was_asked_for_keeps_the_connection_of_a_refused_call() {
    let proxy = Setup::new().start();
    let mut client = proxy.client();
    let body = call("absent");
    let head = format!(
        "POST /call HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    for _ in 0..2 {
        client.write(head.as_bytes());
        assert_eq!(client.read(false).status, 100);
        client.write(body.as_bytes());
        let answer = client.read(false);
        assert_eq!(answer.status, 404);
        assert_eq!(answer.header("connection"), Some("keep-alive"));
    }
}

#[test]
fn texts_say_that_they_are_text() {
    let echo = Upstream::echo();
    let closed = free_address();
    let proxy = Setup::new()
        .credentials(&json!({"sandbox_signing_shared_secret": SIGNING}))
        .arg("--sig-verify-mode")
        .arg("enforce")
        .arg("--sig-exempt-paths")
        .arg("/e/*,/dead/*,/nothing")
        .route(
            "e",
            &echo.url(),
            "path_prefix = '/e'\ndeny_paths = ['/no']\nmax_request_bytes = 4",
        )
        .route("dead", &format!("http://{closed}"), "path_prefix = '/dead'")
        .start();
    for (path, body, status, text) in [
        ("/nothing", "", 404, "not found: no passthrough route"),
        ("/tools", "", 403, "missing_signature"),
        ("/e/no", "", 403, "forbidden: path denied by policy"),
        (
            "/e/x",
            "12345",
            413,
            "payload too large: request exceeds max_request_bytes",
        ),
        (
            "/dead/x",
            "",
            502,
            "bad gateway: upstream error: connection refused or unreachable",
        ),
    ] {
        let answer = post(&mut proxy.client(), path, &[], body);
        assert_eq!((answer.status, answer.text().as_str()), (status, text));
        assert_eq!(answer.header("content-type"), TEXT, "{path}");
    }
    let unsafe_path = proxy.client().get("/e/../x");
    assert_eq!(unsafe_path.status, 400);
    assert_eq!(unsafe_path.header("content-type"), TEXT);
    // What is JSON, or empty, says so.
    let wrong = proxy.client().send("TRACE", "/e/x", &[], b"");
    assert_eq!((wrong.status, wrong.header("content-type")), (405, None));
}

#[test]
fn unauthenticated_requests_are_told_why() {
    let secret = "ab".repeat(32);
    let signer = shared(&secret);
    let proxy = Setup::new()
        .env("ATI_JWT_SECRET", secret.as_str())
        .env("ATI_JWT_ISSUER", "orchestrator")
        .start();
    let good = Claims {
        iss: Some("orchestrator".into()),
        ..claims()
    };
    let with = |change: &dyn Fn(&mut Value)| {
        let mut claims = serde_json::to_value(&good).unwrap();
        change(&mut claims);
        let key = jsonwebtoken::EncodingKey::from_secret(&[0xab; 32]);
        let header = jsonwebtoken::Header::default();
        let token = jsonwebtoken::encode(&header, &claims, &key).unwrap();
        format!("Bearer {token}")
    };
    let ask = |token: &str| {
        let headers = [("authorization", token)];
        proxy.client().send("GET", "/tools", &headers, b"")
    };
    assert_eq!(ask(&bearer(&signer, &good)).status, 200);
    assert_eq!(ask(&with(&|_| {})).status, 200);
    let exp = unix_now() - 120;
    for (name, token, label) in [
        ("malformed", "Bearer a.b.c".to_owned(), "token_malformed"),
        (
            "too long",
            format!("Bearer {}", "x".repeat(20_000)),
            "token_too_long",
        ),
        (
            "another key",
            bearer(&shared(&"cd".repeat(32)), &good),
            "token_signature",
        ),
        ("expired", with(&|c| c["exp"] = exp.into()), "token_expired"),
        (
            "audience",
            with(&|c| c["aud"] = "other".into()),
            "token_audience",
        ),
        ("issuer", with(&|c| c["iss"] = "x".into()), "token_issuer"),
        (
            "no scope",
            with(&|c| drop(c.as_object_mut().unwrap().remove("scope"))),
            "token_claim: has no claim scope",
        ),
        (
            "no end",
            with(&|c| drop(c.as_object_mut().unwrap().remove("exp"))),
            "token_claim: has no claim exp",
        ),
        (
            "rate",
            with(&|c| c["ati"] = json!({"v": 1, "rate": {"tool:x": "lots"}})),
            "token_rate",
        ),
    ] {
        let answer = ask(&token);
        assert_eq!((answer.status, answer.text().as_str()), (401, ""), "{name}");
        let challenge = answer.header("www-authenticate").unwrap();
        let begin =
            format!("Bearer realm=\"ati\", error=\"invalid_token\", error_description=\"{label}");
        assert!(challenge.starts_with(&begin), "{name}: {challenge}");
    }
    let expired = ask(&with(&|c| c["exp"] = exp.into()));
    let challenge = expired.header("www-authenticate").unwrap();
    let ago = challenge.split(" expired ").nth(1).unwrap();
    let ago: u64 = ago.strip_suffix(" s ago\"").unwrap().parse().unwrap();
    assert!(ago >= 120, "{challenge}");

    // Without a token there is no error code (RFC 6750, 3.1).
    for missing in [proxy.client().get("/tools"), ask("Basic eDp5")] {
        assert_eq!(missing.status, 401);
        assert_eq!(
            missing.header("www-authenticate"),
            Some(
                "Bearer realm=\"ati\", error_description=\"token_missing: \
                 there is no Authorization: Bearer <token>\""
            )
        );
    }
}

#[test]
fn key_administration_is_refused_by_its_own_challenge() {
    let off = Setup::new().start().client().get("/admin/keys");
    assert_eq!((off.status, off.text().as_str()), (503, ""));

    let proxy = Setup::new()
        .env("ATI_ADMIN_TOKEN", "planted-admin-token")
        .start();
    let missing = proxy.client().get("/admin/keys");
    let challenge = missing.header("www-authenticate").unwrap();
    assert!(
        challenge
            .starts_with("Bearer realm=\"ati-admin\", error_description=\"admin_token_missing: "),
        "{challenge}"
    );
    let wrong = [("authorization", "Bearer nonsense")];
    let wrong = proxy.client().send("GET", "/admin/keys", &wrong, b"");
    assert_eq!((wrong.status, wrong.text().as_str()), (401, ""));
    assert_eq!(
        wrong.header("www-authenticate"),
        Some(
            "Bearer realm=\"ati-admin\", error=\"invalid_token\", \
             error_description=\"admin_token: it isn't the value of ATI_ADMIN_TOKEN\""
        )
    );
    let right = [("authorization", "Bearer planted-admin-token")];
    let right = proxy.client().send("GET", "/admin/keys", &right, b"");
    assert_eq!(right.status, 503);
    assert_eq!(
        right.json(),
        json!({"error": "admin endpoints require ATI_DB_URL + ATI_ADMIN_TOKEN"})
    );
}

#[test]
fn exceeded_limit_says_when_there_is_room_again() {
    let (proxy, signer) = start();
    let token = limited(&signer, "a", "*", "1/hour");
    assert_eq!(proxy.call(Some(&token), "ok", json!({})).status, 200);
    let refused = proxy.call(Some(&token), "ok", json!({}));
    assert_eq!(refused.status, 429);
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    // The hour, less what has passed of it on a slow machine.
    assert!((3000..=3600).contains(&wait), "{wait}");
    let never = limited(&signer, "b", "*", "0/minute");
    let refused = proxy.call(Some(&never), "ok", json!({}));
    assert_eq!(refused.header("retry-after"), Some("60"));
}

#[test]
fn variable_of_what_is_not_built_is_warned_about() {
    let proxy = Setup::new()
        .env("SENTRY_DSN", "https://planted-dsn@sentry.example/1")
        .start();
    let warnings = proxy.log.find_all("SENTRY_DSN");
    assert_eq!(warnings.len(), 1, "{}", proxy.log.text());
    assert_eq!(warnings[0]["level"], "WARN");
}
