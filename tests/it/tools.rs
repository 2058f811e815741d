//! What agents ask: does the tool run, with the operator's key, within my scope, and nothing else?

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::ati::{Proxy, Setup, write};
use crate::support::eventually;
use crate::support::http::Client;
use crate::support::tls::Authority;
use crate::support::tokens::{bearer, bearer_of, claims, key_pair};
use crate::support::upstream::{Received, Upstream};

const KEY: &str = "planted-api-key-41c2";

/// An upstream that answers `(status, headers, body)` to each target.
fn upstream(
    answer: impl Fn(&Received) -> (u16, String, String) + Send + Sync + 'static,
) -> Upstream {
    Upstream::answering(move |received, stream| {
        let (status, headers, body) = answer(received);
        let text = format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n{body}",
            body.len()
        );
        stream.write_all(text.as_bytes()).is_ok()
    })
}

fn json_upstream(body: Value) -> Upstream {
    upstream(move |_| (200, String::new(), body.to_string()))
}

const BEARER: &str = "auth_type = 'bearer'\nauth_key_name = 'api'";

fn with_key(setup: Setup) -> Setup {
    setup.credentials(&json!({"api": KEY}))
}

#[test]
fn a_tool_runs_with_the_operators_key() {
    let api = json_upstream(json!({"b": 1.50, "a": [1]}));
    let proxy = with_key(Setup::new())
        .tools(
            "shop",
            &api.url(),
            &format!("{BEARER}\nextra_headers = {{ X-Static = 'yes', X-Keyed = 'k ${{api}}' }}"),
            "[[tools]]\nname = 'shop:find_item'\nendpoint = '/items'\n[[tools]]\nname = 'shop:add'\nmethod = 'POST'\nendpoint = '/items'",
        )
        .start();
    let found = proxy.call(None, "shop:find_item", json!({"q": "red shoes", "n": 3}));
    // As it came, and without an `error`.
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

    // Underscores of older callers, and no content type.
    let added = proxy.call(None, "shop_add", json!({"name": "hat"}));
    assert_eq!(added.status, 200);
    assert_eq!(api.last().body, br#"{"name":"hat"}"#);
    assert_eq!(api.last().header("content-type"), Some("application/json"));

    let health = proxy.client().get("/health").json();
    assert_eq!(
        (&health["tools"], &health["providers"]),
        (&json!(2), &json!(1))
    );
    proxy.settles(
        r#"ati_tool_calls_total{outcome="ok",provider="shop",tool="shop:find_item"}"#,
        1.0,
    );
    proxy.settles(r#"ati_tool_duration_seconds_count{provider="shop"}"#, 2.0);
}

#[test]
fn every_refusal_has_its_status_and_its_words() {
    let api = upstream(|received| match received.target.as_str() {
        "/teapot" => (418, String::new(), "short and stout".into()),
        "/none" => (
            404,
            String::new(),
            r#"{"error":{"message":"No records found"}}"#.into(),
        ),
        "/gone" => (404, String::new(), r#"{"error":"no such endpoint"}"#.into()),
        "/text" => (200, String::new(), "plain".into()),
        "/long" => (200, String::new(), "x".repeat(2000)),
        _ => (
            200,
            String::new(),
            r#"{"rows":[{"id":1},{"id":2}],"one":5}"#.into(),
        ),
    });
    let (signer, public) = key_pair();
    let tool = |name: &str, more: &str| {
        format!("[[tools]]\nname = '{name}'\nendpoint = '/{name}'\n{more}\n")
    };
    let tools = [
        tool("teapot", ""),
        tool("none", ""),
        tool("gone", ""),
        tool("text", ""),
        tool("long", ""),
        tool("rows", "response = { extract = '$.rows[*].id' }"),
        tool("nothing", "response = { extract = '$.absent' }"),
        tool("bad_path", "response = { extract = '$[' }"),
        tool("strict", "input_schema = { type = 'object', required = ['q'], properties = { q = { type = 'string' }, n = { type = 'integer' } } }"),
        tool("open", "scope = ''"),
    ]
    .concat();
    let proxy = Setup::new()
        .jwt(&public)
        .tools("p", &api.url(), "", &tools)
        .tools("keyed", &api.url(), BEARER, "[[tools]]\nname = 'keyed'")
        .tools("dead", "http://127.0.0.1:1", "", "[[tools]]\nname = 'dead'")
        .tools(
            "hidden",
            &api.url(),
            "internal = true",
            "[[tools]]\nname = '_hidden'",
        )
        .conf("[tools]\nmax_call_bytes = 1000\nmax_response_bytes = 1500\n")
        .start();
    let everything = bearer(&signer, &claims());
    let nothing = bearer(
        &signer,
        &ati::auth::token::Claims {
            scope: "help".into(),
            ..claims()
        },
    );
    let call = |tool: &str, args: Value| {
        let response = proxy.call(Some(&everything), tool, args);
        (response.status, response.json())
    };
    let failure = |status: u16, text: &str| (status, json!({"result": null, "error": text}));

    assert_eq!(
        call("teapot", json!({})),
        failure(502, "Upstream API error: API error (418): short and stout")
    );
    assert_eq!(call("gone", json!({})).0, 502);
    assert_eq!(
        call("none", json!({})),
        (200, json!({"result": {"records": []}}))
    );
    assert_eq!(call("text", json!({})), (200, json!({"result": "plain"})));
    assert_eq!(call("rows", json!({})), (200, json!({"result": [1, 2]})));
    assert_eq!(call("nothing", json!({})), (200, json!({"result": null})));
    let (status, body) = call("bad_path", json!({}));
    assert_eq!((status, &body["result"]["one"]), (500, &json!(5)));
    assert!(
        body["error"]
            .as_str()
            .unwrap()
            .starts_with("Response processing error: JSONPath extraction failed: "),
        "{body}"
    );
    assert_eq!(
        call("long", json!({})),
        failure(
            502,
            "Upstream API error: HTTP request failed: the answer exceeds 1500 bytes"
        )
    );
    assert_eq!(
        call("keyed", json!({})),
        failure(
            502,
            "Upstream API error: API key 'api' not found in keyring"
        )
    );
    assert_eq!(
        call("dead", json!({})),
        failure(
            502,
            "Upstream API error: HTTP request failed: connection refused or unreachable"
        )
    );
    assert_eq!(
        call("absent", json!({})),
        failure(404, "Unknown tool: 'absent'")
    );
    assert_eq!(
        call("_hidden", json!({})),
        failure(404, "Unknown tool: '_hidden'")
    );
    assert_eq!(
        call("strict", json!({})),
        failure(422, "Invalid arguments: q: is required")
    );
    let (status, body) = call("strict", json!({"q": "x", "n": "many"}));
    assert_eq!(status, 422);
    assert!(
        body["error"]
            .as_str()
            .unwrap()
            .starts_with("Invalid arguments: n: "),
        "{body}"
    );
    assert_eq!(call("strict", json!({"Q": 5, "n": "7"})).0, 200);
    assert_eq!(api.last().target, "/strict?q=5&n=7");
    // Only an object counts.
    assert_eq!(call("text", json!([1, 2])).0, 200);

    // Who lacks the scope is told so; who asks for what isn't there learns no more than anybody.
    let denied = proxy.call(Some(&nothing), "teapot", json!({}));
    assert_eq!(
        (denied.status, denied.json()),
        failure(403, "Access denied: 'teapot' is not in your scopes")
    );
    assert_eq!(proxy.call(Some(&nothing), "absent", json!({})).status, 404);
    assert_eq!(proxy.call(Some(&nothing), "open", json!({})).status, 200);
    assert_eq!(proxy.call(None, "open", json!({})).status, 401);

    let post = |body: &[u8]| {
        let response =
            proxy
                .client()
                .send("POST", "/call", &[("authorization", &everything)], body);
        (
            response.status,
            response.json()["error"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        )
    };
    for body in ["", "{", "[]", "{}", r#"{"tool_name": 5}"#] {
        let (status, error) = post(body.as_bytes());
        assert_eq!(status, 422, "{body}");
        assert!(error.starts_with("Invalid request: "), "{body}: {error}");
    }
    let (status, error) = post(&vec![b' '; 1001]);
    assert_eq!(status, 400);
    assert!(
        error.starts_with("Failed to read request body: "),
        "{error}"
    );
    let mut chunked = proxy.client();
    chunked.write(format!("POST /call HTTP/1.1\r\nhost: x\r\nauthorization: {everything}\r\ntransfer-encoding: chunked\r\n\r\n").as_bytes());
    for _ in 0..2 {
        chunked.write(format!("258\r\n{}\r\n", "x".repeat(600)).as_bytes());
    }
    assert_eq!(chunked.read(false).status, 400);
}

#[test]
fn listings_show_what_a_token_may_use() {
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .jwt(&public)
        .tools(
            "pets",
            "http://127.0.0.1:1",
            "category = 'animals'\nskills = ['care']",
            "[[tools]]\nname = 'pets:get'\ndescription = 'One pet'\nendpoint = '/pets'\nmethod = 'post'\ntags = ['zoo']\nhint = 'by id'\n\
             input_schema = { type = 'object' }\n[[tools]]\nname = 'pets:feed'\ndescription = 'Give a pet food'",
        )
        .tools("other", "http://127.0.0.1:1", "", "[[tools]]\nname = 'other_thing'\ndescription = 'Feed the press'")
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
        ["other_thing", "pets:get", "pets:feed"]
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
        "tags": ["zoo"], "skills": ["care"], "input_schema": {"type": "object"}});
    assert_eq!(ask("tool:pets:get", "/tools").1, json!([expected]));

    for path in ["/tools/pets:get", "/tools/pets%3Aget", "/tools/pets_get"] {
        let (status, tool) = ask("tool:pets:*", path);
        assert_eq!(status, 200, "{path}");
        let expected = json!({"name": "pets:get", "description": "One pet", "provider": "pets", "method": "Post",
            "endpoint": "/pets", "tags": ["zoo"], "hint": "by id", "skills": ["care"],
            "input_schema": {"type": "object"}, "scope": "tool:pets:get"});
        assert_eq!(tool, expected);
    }
    for (scope, name) in [("tool:other_thing", "pets:get"), ("*", "nobody")] {
        let expected = json!({"error": format!("Tool '{name}' not found")});
        assert_eq!(ask(scope, &format!("/tools/{name}")), (404, expected));
    }
}

#[test]
fn each_way_to_present_a_credential() {
    let api = json_upstream(json!({}));
    let one = |name: &str| format!("[[tools]]\nname = '{name}'\nendpoint = '/x'");
    let url_key = "planted/url key";
    let proxy = Setup::new()
        .credentials(&json!({"api": KEY, "url_key": url_key}))
        .tools(
            "header",
            &api.url(),
            "auth_type = 'header'\nauth_key_name = 'api'\nauth_value_prefix = 'Token '",
            &one("header"),
        )
        .tools(
            "named",
            &api.url(),
            "auth_type = 'header'\nauth_key_name = 'api'\nauth_header_name = 'X-Mine'",
            &one("named"),
        )
        .tools(
            "query",
            &api.url(),
            "auth_type = 'query'\nauth_key_name = 'api'\nauth_query_name = 'token'",
            &one("query"),
        )
        .tools(
            "basic",
            &api.url(),
            "auth_type = 'basic'\nauth_key_name = 'api'",
            &one("basic"),
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
    // In place of what the caller sent under that name.
    assert_eq!(ask("query").target, format!("/x?q=1&token={KEY}"));
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{KEY}:"));
    assert_eq!(
        ask("basic").header("authorization"),
        Some(format!("Basic {encoded}").as_str())
    );
    assert_eq!(ask("none").header("authorization"), None);
    assert_eq!(ask("url").target, "/planted/url%20key/x?token=theirs&q=1");
}

#[test]
fn an_answer_that_repeats_the_key_does_not_reach_the_agent() {
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
            "[[tools]]\nname = '{name}'\nendpoint = '/ok'\n[[tools]]\nname = '{name}_fail'\nendpoint = '/fail'"
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
        // Slow enough that everybody comes before the first is served.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let (status, body) = answer(nth);
        (status, body.to_string())
    });
    let valid = accepted.clone();
    let api = Box::leak(Box::new(upstream(move |received| {
        let expected = format!("Bearer planted-token-{}", valid.load(Ordering::SeqCst));
        match received.header("authorization") == Some(expected.as_str()) {
            true => (200, String::new(), "{}".into()),
            false => (401, String::new(), "who are you?".into()),
        }
    })));
    let setup = Setup::new().file("ca.pem", authority.pem());
    let proxy = setup
        .credentials(&json!({"id": "client", "secret": "planted-client-secret"}))
        .conf("[egress]\nca_file = 'ca.pem'\n")
        .tools(
            "oauth",
            &api.url(),
            &format!("auth_type = 'oauth2'\nauth_key_name = 'id'\nauth_secret_name = 'secret'\noauth2_token_url = 'https://{tokens}/token'\n{more}"),
            "[[tools]]\nname = 'guarded'",
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
fn two_hundred_callers_cause_one_token_request() {
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

    // A token that is refused is fetched anew, once, whoever finds out.
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
    // What no token helps against stays what it is, and doesn't make everybody's token anew each time.
    exchange.accepted.store(99, Ordering::SeqCst);
    let refused = proxy.call(None, "guarded", json!({}));
    assert_eq!(
        refused.json()["error"],
        "Upstream API error: API error (401): who are you?"
    );
    assert_eq!(exchange.asked.load(Ordering::SeqCst), 2);
}

#[test]
fn tenants_share_a_client_but_not_what_goes_beside_its_token() {
    let authority = Authority::new();
    let tokens = authority.answering("127.0.0.1", |_, _| (200, token(1).1.to_string()));
    let api = upstream(|received| {
        let beside = received.header("x-workspace").unwrap_or_default();
        (200, String::new(), json!(beside.len()).to_string())
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
            &format!("auth_type = 'oauth2'\nauth_key_name = 'id'\nauth_secret_name = 'secret'\noauth2_token_url = 'https://{tokens}/token'\n[provider.extra_headers]\nX-Workspace = '${{w}}'"),
            "[[tools]]\nname = 'guarded'",
        )
        .start();
    for (customer, length) in [("a", 14), ("bb", 15), ("a", 14)] {
        let token = bearer_of(&signer, Some(customer));
        let answer = proxy.call(Some(&token), "guarded", json!({}));
        assert_eq!(answer.json()["result"], length, "{}", answer.text());
    }
}

#[test]
fn a_token_request_that_fails_says_why_and_tells_nothing() {
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
            "auth_type = 'oauth2'\nauth_key_name = 'id'\nauth_secret_name = 'secret'\noauth2_token_url = '/token'",
            "[[tools]]\nname = 'plain'",
        )
        .start();
    let refused = plain.call(None, "plain", json!({}));
    assert_eq!(
        refused.json()["error"],
        "Upstream API error: OAuth2 token URL must use HTTPS: '/token'"
    );
}

#[test]
fn a_limit_is_exact_whoever_calls_however() {
    let api = json_upstream(json!({}));
    let (signer, public) = key_pair();
    let setup = Setup::new().jwt(&public).tools(
        "shop",
        &api.url(),
        "",
        "[[tools]]\nname = 'shop:find'\n[[tools]]\nname = 'free'\n\
         [[tools]]\nname = 'shop:strict'\ninput_schema = { type = 'object', required = ['q'] }",
    );
    let proxy = setup.start();
    let limited = |subject: &str, rates: &[(&str, &str)]| {
        let rate = rates
            .iter()
            .map(|(p, r)| ((*p).to_owned(), (*r).to_owned()))
            .collect();
        let ati = ati::auth::token::Namespace {
            v: 1,
            rate,
            customer_id: None,
        };
        let claims = ati::auth::token::Claims {
            sub: subject.into(),
            ati: Some(ati),
            ..claims()
        };
        bearer(&signer, &claims)
    };
    let five = [("tool:shop:*", "5/hour")];
    let token = limited("a", &five);
    // What could never have been sent costs nothing.
    for _ in 0..10 {
        assert_eq!(
            proxy.call(Some(&token), "shop:strict", json!({})).status,
            422
        );
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
    // Another token of the same subject doesn't help, nor does the old spelling of the pattern; another subject has its own.
    assert_eq!(
        proxy
            .call(Some(&limited("a", &five)), "shop:strict", json!({"q": 1}))
            .status,
        429
    );
    assert_eq!(
        proxy
            .call(Some(&limited("b", &five)), "shop:find", json!({}))
            .status,
        200
    );
    assert_eq!(proxy.call(Some(&token), "free", json!({})).status, 200);
    let old = limited("c", &[("tool:shop_*", "1/day")]);
    assert_eq!(proxy.call(Some(&old), "shop:find", json!({})).status, 200);
    assert_eq!(proxy.call(Some(&old), "shop:find", json!({})).status, 429);

    // A limit that can't be read is no limit to pass: the token is refused.
    assert_eq!(
        proxy
            .call(
                Some(&limited("d", &[("tool:*", "lots")])),
                "free",
                json!({})
            )
            .status,
        401
    );

    // A restart forgives nobody.
    let dir = proxy.dir.path().to_path_buf();
    let state = eventually("the state file", || {
        let text = std::fs::read_to_string(dir.join("rate-state.json")).ok()?;
        let state: Value = serde_json::from_str(&text).ok()?;
        (state["calls"]["c tool:shop_*"].as_array()?.len() == 1).then_some(state)
    });
    assert_eq!(state["calls"]["a tool:shop:*"].as_array().unwrap().len(), 5);
    let again = Setup::new()
        .jwt(&public)
        .file("rate-state.json", state.to_string())
        .tools("shop", &api.url(), "", "[[tools]]\nname = 'shop:find'")
        .start();
    assert_eq!(again.call(Some(&token), "shop:find", json!({})).status, 429);
}

#[test]
fn redirects_are_followed_and_credentials_stay_home() {
    let elsewhere = Arc::new(json_upstream(json!({"from": "elsewhere"})));
    let foreign = elsewhere.url();
    let api = upstream(move |received| {
        let to = |location: &str| (307, format!("location: {location}\r\n"), String::new());
        match received.target.split('?').next().unwrap() {
            "/near" => to("/arrived"),
            "/far" => to(&format!("{foreign}/x")),
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
    let one =
        |name: &str| format!("[[tools]]\nname = '{name}'\nendpoint = '/{name}'\nmethod = 'POST'\n");
    let tools = ["near", "far", "see", "round", "odd"].map(one).concat();
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
        assert_eq!(call(tool)["result"]["from"], "elsewhere");
        let seen = elsewhere.last();
        assert_eq!(
            (seen.header("authorization"), seen.header("x-extra")),
            (None, None)
        );
        assert_eq!((seen.target.as_str(), seen.body.len()), ("/x", 7));
    }
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
fn generators_mint_what_a_call_presents() {
    let api = upstream(|received| {
        let seen = json!({"auth": received.header("authorization").map(str::len), "x": received.header("x-session")});
        (200, String::new(), seen.to_string())
    });
    let provider = |generator: &str| {
        format!(
            "auth_type = 'bearer'\nauth_key_name = 'unused'\n[provider.auth_generator]\n{generator}"
        )
    };
    let one = |name: &str| format!("[[tools]]\nname = '{name}'\nendpoint = '/{name}'");
    let setup = with_key(Setup::new());
    let counter = setup.path().join("count");
    let counted = format!("echo x >> {}; echo planted-minted", counter.display());
    let (signer, public) = key_pair();
    let proxy = setup
        .jwt(&public)
        .tools("script", &api.url(), &provider(&format!("type = 'script'\ninterpreter = 'sh'\nscript = '''{counted}'''\ncache_ttl_secs = 600")), &one("script"))
        .tools(
            "command",
            &api.url(),
            &provider("type = 'command'\ncommand = 'sh'\nargs = ['-c', 'echo $SUB:$SCOPE:$TOOL:$(echo $K | cut -c9-)']\n\
                       env = { SUB = '${JWT_SUB}', SCOPE = '${JWT_SCOPE}', TOOL = '${TOOL_NAME}', K = '${api}' }"),
            &one("command"),
        )
        .tools(
            "json",
            &api.url(),
            &provider("type = 'command'\ncommand = 'echo'\nargs = ['{\"data\": {\"t\": \"planted-t0ken\", \"s\": 5}}']\noutput_format = 'json'\n\
                       [provider.auth_generator.inject]\n\"data.t\" = { type = 'query' }\n\"data.s\" = { type = 'header', name = 'X-Session' }"),
            &one("json"),
        )
        .tools("fails", &api.url(), &provider("type = 'command'\ncommand = 'sh'\nargs = ['-c', 'echo oops $K >&2; exit 3']\nenv = { K = '${api}' }"), &one("fails"))
        .tools("hangs", &api.url(), &provider("type = 'command'\ncommand = 'sleep'\nargs = ['60']\ntimeout_secs = 1"), &one("hangs"))
        .tools("keyless", &api.url(), &provider("type = 'command'\ncommand = 'true'\nenv = { K = '${absent}' }"), &one("keyless"))
        .start();
    let token = bearer(&signer, &claims());
    let other = bearer(
        &signer,
        &ati::auth::token::Claims {
            sub: "agent-8".into(),
            ..claims()
        },
    );
    let call = |tool: &str| proxy.call(Some(&token), tool, json!({})).json();
    let presented = || api.last().header("authorization").unwrap().to_owned();

    for _ in 0..3 {
        assert_eq!(call("script")["result"]["auth"], 21);
    }
    assert_eq!(presented(), "Bearer planted-minted");
    proxy.call(Some(&other), "script", json!({}));
    assert_eq!(
        std::fs::read_to_string(&counter).unwrap(),
        "x\nx\n",
        "once for each subject"
    );

    call("command");
    assert_eq!(presented(), "Bearer agent-7:*:command:api-key-41c2");
    assert_eq!(call("json")["result"]["x"], "5");
    assert_eq!(presented(), "Bearer planted-t0ken");
    assert_eq!(
        call("fails")["error"],
        "Upstream API error: auth_generator: Generator exited with code 3: oops [REDACTED]"
    );
    assert_eq!(
        call("hangs")["error"],
        "Upstream API error: auth_generator: Generator timed out after 1s"
    );
    assert_eq!(
        call("keyless")["error"],
        "Upstream API error: API key 'absent' not found in keyring"
    );
}

#[test]
fn tenants_use_their_own_keys() {
    let api = json_upstream(json!({}));
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .jwt(&public)
        .credentials(&json!({"api": "planted-everybody", "api@acme": "planted-acme-own", "solo@acme": "planted-solo-one"}))
        .tools("p", &api.url(), BEARER, "[[tools]]\nname = 'p'")
        .tools("s", &api.url(), "auth_type = 'bearer'\nauth_key_name = 'solo'", "[[tools]]\nname = 's'")
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
fn older_manifests_ask_an_agentic_endpoint() {
    let api = json_upstream(
        json!({"choices": [{"message": {"content": "42"}}], "citations": ["https://a"]}),
    );
    let proxy = with_key(Setup::new())
        .tools(
            "xai",
            &api.url(),
            &format!("handler = 'xai'\n{BEARER}"),
            "[[tools]]\nname = 'ask'\nmethod = 'POST'\nendpoint = '/chat/completions'",
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
fn a_slow_upstream_does_not_hold_a_call_forever() {
    let silent = Upstream::raw(|stream| {
        let _ = std::io::Read::read(&mut &stream, &mut [0; 1 << 16]);
        let _ = std::io::Read::read(&mut &stream, &mut [0; 1]);
    });
    let proxy = Setup::new()
        .conf("[tools]\ntimeout_seconds = 1\n")
        .tools("slow", &silent.url(), "", "[[tools]]\nname = 'slow'")
        .start();
    let response = proxy.call(None, "slow", json!({}));
    assert_eq!(response.status, 502);
    assert_eq!(
        response.json()["error"],
        "Upstream API error: HTTP request failed: timed out while waiting for data"
    );
    silent.wait_until_left();
}

#[test]
fn tools_and_keys_are_swapped_under_load_and_no_call_is_lost() {
    let api = upstream(|received| {
        (
            200,
            String::new(),
            json!(received.header("authorization")).to_string(),
        )
    });
    let manifest = |tool: &str| {
        format!(
            "[provider]\nname = 'p'\nbase_url = '{}'\n{BEARER}\n[[tools]]\nname = 'steady'\n[[tools]]\nname = '{tool}'",
            api.url()
        )
    };
    let proxy = with_key(Setup::new())
        .manifest("p", &manifest("t0"))
        .start();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = proxy.client();
                while !stop.load(Ordering::Relaxed) {
                    let body = br#"{"tool_name":"steady"}"#;
                    let response = client.send("POST", "/call", &[], body);
                    assert_eq!(response.status, 200, "{}", response.text());
                }
            });
        }
        for n in 1..8 {
            write(&proxy.path("manifests/p.toml"), manifest(&format!("t{n}")));
            write(
                &proxy.path("credentials"),
                json!({"api": format!("planted-key-{n}")}).to_string(),
            );
            assert_eq!(proxy.reload()["message"], "reload done");
            assert_eq!(proxy.call(None, &format!("t{n}"), json!({})).status, 200);
            let expected = format!("Bearer planted-key-{n}");
            assert!(
                api.saw(|received| received.header("authorization") == Some(expected.as_str()))
            );
            assert_eq!(
                proxy.call(None, &format!("t{}", n - 1), json!({})).status,
                404
            );
        }
        stop.store(true, Ordering::Relaxed);
    });
    // A manifest that can't be read changes nothing.
    write(&proxy.path("manifests/p.toml"), "[provider");
    assert!(
        proxy.reload()["message"]
            .as_str()
            .unwrap()
            .starts_with("reload failed")
    );
    assert_eq!(proxy.call(None, "t7", json!({})).status, 200);
}

#[test]
fn what_is_wrong_with_a_manifest_stops_the_start() {
    let output = Setup::new()
        .manifest(
            "a",
            "[provider]\nname = 'a'\nauth_type = 'magic'\n[[tools]]\nname = 't'\nmethod = 'BREW'",
        )
        .manifest("b", "[provider")
        .output();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    for expected in [
        "unknown auth type 'magic'",
        "unknown method 'BREW'",
        "Failed to parse manifest",
        "b.toml",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn a_large_body_is_asked_for_before_it_is_sent() {
    let api = json_upstream(json!({}));
    let proxy = Setup::new()
        .tools(
            "p",
            &api.url(),
            "",
            "[[tools]]\nname = 'p'\nmethod = 'POST'",
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
fn small_requests_do_not_become_large_work() {
    let api = json_upstream(json!({}));
    let properties: String = (0..20)
        .map(|n| format!("p{n} = {{ type = 'string' }}\n"))
        .collect();
    let proxy = Setup::new()
        .tools(
            "p",
            &api.url(),
            "",
            &format!("[[tools]]\nname = 'p'\nmethod = 'POST'\n[tools.input_schema]\ntype = 'object'\n[tools.input_schema.properties]\n{properties}"),
        )
        .start();
    let many: serde_json::Map<String, Value> =
        (0..100_000).map(|n| (format!("k{n}"), json!(n))).collect();
    assert_eq!(proxy.call(None, "p", Value::Object(many)).status, 200);
    // Three bytes for each value, and a hundred in memory.
    let bomb = format!(
        "{{\"tool_name\":\"p\",\"args\":{{\"a\":[{}[]]}}}}",
        "[],".repeat(1_000_000)
    );
    let refused = proxy.client().send("POST", "/call", &[], bomb.as_bytes());
    assert_eq!(refused.status, 422);
    assert_eq!(
        refused.json()["error"],
        "Invalid request: args: it has more than 200000 values"
    );
    let long = "xy+".repeat(10_000);
    assert_eq!(
        proxy.client().get(&format!("/tools?search={long}")).status,
        200
    );
    let list = proxy.client().send("POST", "/call", &[], br#"["p", {}]"#);
    assert_eq!(
        (list.status, list.json()["error"].as_str()),
        (422, Some("Invalid request: expected a JSON object"))
    );
}

#[test]
fn a_key_in_the_url_is_taken_out_for_every_tenant() {
    let api = Upstream::echo();
    let (signer, public) = key_pair();
    let proxy = Setup::new()
        .jwt(&public)
        .credentials(&json!({"k": "planted-shared-0001", "k@acme": "planted-acme-0002"}))
        .tools(
            "p",
            &format!("{}/v/${{k}}", api.url()),
            "auth_type = 'url'",
            "[[tools]]\nname = 'p'\nendpoint = '/t'",
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

#[test]
fn generators_complain_without_their_secrets_and_are_what_is_cached() {
    let api = json_upstream(json!({}));
    let provider = |script: &str, more: &str| {
        format!(
            "auth_type = 'bearer'\nauth_key_name = 'x'\n[provider.auth_generator]\ntype = 'script'\ninterpreter = 'sh'\nscript = '''{script}'''\n{more}"
        )
    };
    let one = |name: &str| format!("[[tools]]\nname = '{name}'\nendpoint = '/{name}'");
    let manifest = |token: &str| {
        let generator = provider(
            &format!("echo {token}"),
            "cache_ttl_secs = 9223372036854775807",
        );
        format!(
            "[provider]\nname = 'kept'\nbase_url = '{}'\n{generator}\n{}",
            api.url(),
            one("kept")
        )
    };
    let proxy = with_key(Setup::new())
        .tools(
            "fails",
            &api.url(),
            &provider(
                "echo bad key: ${H#Bearer } >&2; exit 3",
                "env = { H = 'Bearer ${api}' }",
            ),
            &one("fails"),
        )
        .manifest("kept", &manifest("planted-first"))
        .start();
    let failed = proxy.call(None, "fails", json!({})).json();
    assert_eq!(
        failed["error"],
        "Upstream API error: auth_generator: Generator exited with code 3: bad key: [REDACTED]"
    );
    assert_eq!(proxy.call(None, "kept", json!({})).status, 200);
    assert_eq!(
        api.last().header("authorization"),
        Some("Bearer planted-first")
    );
    // Another script is another credential.
    write(
        &proxy.path("manifests/kept.toml"),
        manifest("planted-second"),
    );
    assert_eq!(proxy.reload()["message"], "reload done");
    proxy.call(None, "kept", json!({}));
    assert_eq!(
        api.last().header("authorization"),
        Some("Bearer planted-second")
    );
}

#[test]
fn a_token_that_holds_forever_is_a_token() {
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

#[test]
fn a_trickling_body_does_not_hold_its_place() {
    let proxy = Setup::new().conf("[tools]\ntimeout_seconds = 1\n").start();
    let mut client = proxy.client();
    client.write(b"POST /call HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{");
    let answer = client.read(false);
    assert_eq!(answer.status, 400);
    assert_eq!(
        answer.json()["error"],
        "Failed to read request body: not complete after 1 s"
    );
}

#[test]
fn upstreams_that_speak_http2_are_spoken_to_in_http2() {
    let authority = Authority::new();
    let api = authority.serve("127.0.0.1", true);
    let proxy = Setup::new()
        .file("ca.pem", authority.pem())
        .conf("[egress]\nca_file = 'ca.pem'\n")
        .tools(
            "p",
            &format!("https://{api}"),
            "",
            "[[tools]]\nname = 'p'\nendpoint = '/x'",
        )
        .start();
    let answer = proxy.call(None, "p", json!({})).json();
    let text = answer["result"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"));
    assert!(text.starts_with("h2 /x "), "{text}");
    // Trust is not a matter of course.
    let stranger = Setup::new()
        .tools("p", &format!("https://{api}"), "", "[[tools]]\nname = 'p'")
        .start();
    let refused = stranger.call(None, "p", json!({})).json();
    assert_eq!(
        refused["error"],
        "Upstream API error: HTTP request failed: the TLS handshake failed"
    );
}

#[test]
fn a_body_that_breaks_off_or_goes_too_deep_is_no_call() {
    let api = json_upstream(json!({}));
    let proxy = Setup::new()
        .tools("p", &api.url(), "", "[[tools]]\nname = 'p'")
        .start();
    let deep = format!(
        "{{\"tool_name\":\"p\",\"args\":{{\"a\":{}{}}}}}",
        "[".repeat(5_000),
        "]".repeat(5_000)
    );
    let refused = proxy.client().send("POST", "/call", &[], deep.as_bytes());
    assert_eq!(refused.status, 422, "{}", refused.text());
    let mut half = proxy.client();
    half.write(
        b"POST /call HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n14\r\n{\"tool_name\"",
    );
    drop(half);
    proxy.settles(r#"ati_in_flight{route="/call"}"#, 0.0);
    assert!(api.received().is_empty());
    // A name that is encoded twice is another name.
    assert_eq!(proxy.client().get("/tools/%2570").status, 404);
    assert_eq!(proxy.client().get("/tools/%70").status, 200);
}
