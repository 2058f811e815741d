//! Calls that are refused or fail: their statuses, their texts, and what they may cost.

use ati::auth::token::Claims;
use serde_json::{Value, json};

use super::{BEARER, json_upstream, upstream};
use crate::support::ati::{Proxy, Setup, tool};
use crate::support::tokens::{bearer, claims, key_pair};
use crate::support::upstream::Upstream;

/// Each tool is at the target of its own name.
const TOOLS: &str = r#"
[[tools]]
name = "teapot"
endpoint = "/teapot"

[[tools]]
name = "none"
endpoint = "/none"

[[tools]]
name = "gone"
endpoint = "/gone"

[[tools]]
name = "text"
endpoint = "/text"

[[tools]]
name = "long"
endpoint = "/long"

[[tools]]
name = "rows"
endpoint = "/rows"
response = { extract = "$.rows[*].id" }

[[tools]]
name = "nothing"
endpoint = "/nothing"
response = { extract = "$.absent" }

[[tools]]
name = "bad_path"
endpoint = "/bad_path"
response = { extract = "$[" }

[[tools]]
name = "strict"
endpoint = "/strict"
[tools.input_schema]
type = "object"
required = ["q"]
properties = { q = { type = "string" }, n = { type = "integer" } }

[[tools]]
name = "open"
endpoint = "/open"
scope = ""
"#;

/// A proxy that checks tokens, and the API behind its tools.
struct Guarded {
    proxy: Proxy,
    api: Upstream,
    /// A token for every tool.
    everything: String,
    /// A token for no tool.
    nothing: String,
}

impl Guarded {
    fn start() -> Self {
        let api = upstream(|received| {
            let (status, body) = match received.target.as_str() {
                "/teapot" => (418, "short and stout".into()),
                "/none" => (404, r#"{"error":{"message":"No records found"}}"#.into()),
                "/gone" => (404, r#"{"error":"no such endpoint"}"#.into()),
                "/text" => (200, "plain".into()),
                "/long" => (200, "x".repeat(2000)),
                _ => (200, r#"{"rows":[{"id":1},{"id":2}],"one":5}"#.into()),
            };
            (status, String::new(), body)
        });
        let (signer, public) = key_pair();
        let proxy = Setup::new()
            .jwt(&public)
            .tools("p", &api.url(), "", TOOLS)
            .tools("keyed", &api.url(), BEARER, &tool("keyed", ""))
            .tools("dead", "http://127.0.0.1:1", "", &tool("dead", ""))
            .tools(
                "hidden",
                &api.url(),
                "internal = true",
                &tool("_hidden", ""),
            )
            .conf(
                r#"
                    [tools]
                    max_call_bytes = 1000
                    max_response_bytes = 1500
                "#,
            )
            .start();
        let help = Claims {
            scope: "help".into(),
            ..claims()
        };
        Guarded {
            proxy,
            api,
            everything: bearer(&signer, &claims()),
            nothing: bearer(&signer, &help),
        }
    }

    fn call(&self, tool: &str, args: Value) -> (u16, Value) {
        let response = self.proxy.call(Some(&self.everything), tool, args);
        (response.status, response.json())
    }

    /// Status and error of a call whose body is this.
    fn post(&self, body: &[u8]) -> (u16, String) {
        let headers = [("authorization", self.everything.as_str())];
        let response = self.proxy.client().send("POST", "/call", &headers, body);
        let error = response.json()["error"].as_str().map(str::to_owned);
        (response.status, error.unwrap_or_default())
    }
}

#[test]
fn call_refusals_have_their_status_and_text() {
    let guarded = Guarded::start();
    // An error that ends in `...` begins like this.
    for (tool, args, status, expected) in [
        (
            "teapot",
            json!({}),
            502,
            "Upstream API error: API error (418): short and stout",
        ),
        (
            "gone",
            json!({}),
            502,
            "Upstream API error: API error (404): ...",
        ),
        (
            "long",
            json!({}),
            502,
            "Upstream API error: HTTP request failed: the answer exceeds 1500 bytes",
        ),
        (
            "keyed",
            json!({}),
            502,
            "Upstream API error: API key 'api' not found in keyring",
        ),
        (
            "dead",
            json!({}),
            502,
            "Upstream API error: HTTP request failed: connection refused or unreachable",
        ),
        ("absent", json!({}), 404, "Unknown tool: 'absent'"),
        ("_hidden", json!({}), 404, "Unknown tool: '_hidden'"),
        (
            "strict",
            json!({}),
            422,
            "Invalid arguments: q: is required",
        ),
        (
            "strict",
            json!({"q": "x", "n": "many"}),
            422,
            "Invalid arguments: n: ...",
        ),
    ] {
        let (found, body) = guarded.call(tool, args);
        let error = body["error"].as_str().unwrap_or_default();
        assert_eq!(found, status, "{tool}: {error}");
        let matches = match expected.strip_suffix("...") {
            Some(beginning) => error.starts_with(beginning),
            None => error == expected,
        };
        assert!(matches, "{tool}: {error}");
        assert_eq!(body, json!({"result": null, "error": error}), "{tool}");
    }
}

#[test]
fn call_results_are_passed_on_or_extracted() {
    let guarded = Guarded::start();
    for (tool, args, result) in [
        ("none", json!({}), json!({"records": []})),
        ("text", json!({}), json!("plain")),
        ("rows", json!({}), json!([1, 2])),
        ("nothing", json!({}), json!(null)),
        // Arguments that are no object count as none.
        ("text", json!([1, 2]), json!("plain")),
    ] {
        let expected = (200, json!({"result": result}));
        assert_eq!(guarded.call(tool, args), expected, "{tool}");
    }
    // Arguments are matched by folded names and converted to the declared types.
    let (status, _) = guarded.call("strict", json!({"Q": 5, "n": "7"}));
    assert_eq!(status, 200);
    assert_eq!(guarded.api.last().target, "/strict?q=5&n=7");

    // An extraction that can't be done is an error, next to the whole result.
    let (status, body) = guarded.call("bad_path", json!({}));
    assert_eq!((status, &body["result"]["one"]), (500, &json!(5)));
    let error = body["error"].as_str().unwrap();
    assert!(
        error.starts_with("Response processing error: JSONPath extraction failed: "),
        "{body}"
    );
}

#[test]
fn call_outside_of_the_scope_gets_403_and_an_unknown_tool_404() {
    let guarded = Guarded::start();
    let call = |token: Option<&str>, tool: &str| {
        let response = guarded.proxy.call(token, tool, json!({}));
        (response.status, response.text())
    };
    let nothing = Some(guarded.nothing.as_str());
    let (status, text) = call(nothing, "teapot");
    let error = json!({"result": null, "error": "Access denied: 'teapot' is not in your scopes"});
    assert_eq!(status, 403);
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), error);
    assert_eq!(call(nothing, "absent").0, 404);
    assert_eq!(call(nothing, "open").0, 200);
    assert_eq!(call(None, "open").0, 401);
}

#[test]
fn call_with_an_unreadable_body_gets_422_and_a_too_large_one_400() {
    let guarded = Guarded::start();
    for body in ["", "{", "[]", "{}", r#"{"tool_name": 5}"#] {
        let (status, error) = guarded.post(body.as_bytes());
        assert_eq!(status, 422, "{body}");
        assert!(error.starts_with("Invalid request: "), "{body}: {error}");
    }
    let (status, error) = guarded.post(&vec![b' '; 1001]);
    assert_eq!(status, 400);
    assert!(
        error.starts_with("Failed to read request body: "),
        "{error}"
    );
    let mut chunked = guarded.proxy.client();
    let head = format!(
        "POST /call HTTP/1.1\r\nhost: x\r\nauthorization: {}\r\ntransfer-encoding: chunked\r\n\r\n",
        guarded.everything
    );
    chunked.write(head.as_bytes());
    for _ in 0..2 {
        chunked.write(format!("258\r\n{}\r\n", "x".repeat(600)).as_bytes());
    }
    assert_eq!(chunked.read(false).status, 400);
}

#[test]
fn upstream_slower_than_the_tool_timeout_gets_502() {
    let silent = Upstream::raw(|stream| {
        let _ = std::io::Read::read(&mut &stream, &mut [0; 1 << 16]);
        let _ = std::io::Read::read(&mut &stream, &mut [0; 1]);
    });
    let proxy = Setup::new()
        .conf("[tools]\ntimeout_seconds = 1\n")
        .tools("slow", &silent.url(), "", &tool("slow", ""))
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
fn small_requests_that_expand_are_refused_or_cheap() {
    let api = json_upstream(json!({}));
    let properties: String = (0..20)
        .map(|n| format!("p{n} = {{ type = 'string' }}\n"))
        .collect();
    let proxy = Setup::new()
        .tools(
            "p",
            &api.url(),
            "",
            &format!(
                r#"
                    [[tools]]
                    name = 'p'
                    method = 'POST'
                    [tools.input_schema]
                    type = 'object'
                    [tools.input_schema.properties]
                    {properties}
                "#
            ),
        )
        .start();
    let many: serde_json::Map<String, Value> =
        (0..100_000).map(|n| (format!("k{n}"), json!(n))).collect();
    assert_eq!(proxy.call(None, "p", Value::Object(many)).status, 200);
    // Each value takes three bytes here, and a hundred in memory.
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
fn call_body_slower_than_the_timeout_gets_400() {
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
fn call_body_that_breaks_off_or_nests_too_deep_is_refused() {
    let api = json_upstream(json!({}));
    let proxy = Setup::new()
        .tools("p", &api.url(), "", &tool("p", ""))
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
    // The name is decoded once: one that is encoded twice is not found.
    assert_eq!(proxy.client().get("/tools/%2570").status, 404);
    assert_eq!(proxy.client().get("/tools/%70").status, 200);
}
