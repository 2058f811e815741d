//! Arguments and answers that are too big for memory.

use serde_json::{Value, json};

use super::{BEARER, KEY, upstream, with_key};
use crate::support::ati::{Proxy, Setup, tool};
use crate::support::upstream::Upstream;

/// Spools everything past 64 KiB.
const SPOOLING: &str = "[tools]\nspool_bytes = 65536\n";
/// Three megabytes.
const BIG: usize = 3 << 20;

fn start(api: &Upstream, conf: &str, more: &str) -> Proxy {
    with_key(Setup::new().conf(conf))
        .tools("big", &api.url(), BEARER, &tool("big:get", more))
        .start()
}

/// Answers this body to every request.
fn answering(body: String) -> Upstream {
    upstream(move |_| (200, String::new(), body.clone()))
}

#[test]
fn big_answer_is_streamed_whole_and_redacted() {
    let rows: Vec<String> = (0..BIG / 64)
        .map(|n| format!("row {n}: {KEY} {}", "x".repeat(n % 64)))
        .collect();
    let text = json!({ "rows": rows }).to_string();
    let api = answering(text.clone());
    let proxy = start(&api, SPOOLING, "");
    let answer = proxy.call(None, "big:get", json!({}));
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let expected = text.replace(KEY, "[REDACTED]");
    assert_eq!(answer.text(), format!("{{\"result\":{expected}}}"));
}

#[test]
fn big_answer_that_is_no_json_becomes_a_json_string() {
    let text = "a \"line\" with \u{e4} and \u{1f600}\n".repeat(BIG / 30);
    let api = answering(text.clone());
    let proxy = start(&api, SPOOLING, "");
    let answer = proxy.call(None, "big:get", json!({}));
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["result"], Value::String(text));
}

#[test]
fn extract_works_on_a_spooled_answer() {
    let body = json!({"padding": "x".repeat(BIG), "items": [{"id": 7}]}).to_string();
    let api = answering(body);
    let proxy = start(&api, SPOOLING, "response = { extract = '$.items[0].id' }");
    let answer = proxy.call(None, "big:get", json!({}));
    assert_eq!(answer.json(), json!({"result": 7}));
}

#[test]
fn big_error_body_is_cut_and_redacted() {
    let body = format!("{KEY} {}", "x".repeat(BIG));
    let api = upstream(move |_| (500, String::new(), body.clone()));
    let proxy = start(&api, SPOOLING, "");
    let answer = proxy.call(None, "big:get", json!({}));
    assert_eq!(answer.status, 502);
    let error = answer.json()["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("Upstream API error: API error (500): [REDACTED] xxx"));
    assert!(error.len() < 70_000, "{}", error.len());
}

#[test]
fn big_arguments_reach_the_upstream_unchanged() {
    let api = upstream(|received| {
        let given: Value = serde_json::from_slice(&received.body).unwrap_or_default();
        let length = given["text"].as_str().map_or(0, str::len);
        (200, String::new(), json!({ "length": length }).to_string())
    });
    let proxy = start(&api, SPOOLING, "method = 'POST'");
    let answer = proxy.call(None, "big:get", json!({"text": "y".repeat(BIG)}));
    assert_eq!(answer.json(), json!({"result": {"length": BIG}}));
    // An unknown tool is told as such, and malformed JSON too, at any length.
    let unknown = proxy.call(None, "big:none", json!({"text": "y".repeat(BIG)}));
    assert_eq!(unknown.status, 404);
    let malformed = format!(
        "{{\"tool_name\": \"big:get\", \"args\": {{\"a\": \"{}",
        "y".repeat(BIG)
    );
    let refused = proxy
        .client()
        .send("POST", "/call", &[], malformed.as_bytes());
    assert_eq!(refused.status, 422);
    let many = format!(
        "{{\"tool_name\": \"big:get\", \"args\": {{\"a\": [{}0]}}}}",
        "0,".repeat(300_000)
    );
    let refused = proxy.client().send("POST", "/call", &[], many.as_bytes());
    assert_eq!(refused.status, 422);
    assert!(refused.text().contains("more than 200000 values"));
}

#[test]
fn answer_beyond_the_spool_quota_fails_the_call_and_frees_the_quota() {
    let body = json!({"padding": "x".repeat(BIG)}).to_string();
    let small = answering(json!({"padding": "x".repeat(BIG / 4)}).to_string());
    let api = answering(body);
    let conf = format!("{SPOOLING}max_spool_bytes = {}\n", BIG / 2);
    let proxy = with_key(Setup::new().conf(&conf))
        .tools("big", &api.url(), BEARER, &tool("big:get", ""))
        .tools("small", &small.url(), BEARER, &tool("small:get", ""))
        .start();
    for n in 1..=3 {
        let answer = proxy.call(None, "big:get", json!({}));
        assert_eq!(answer.status, 503);
        assert_eq!(answer.header("retry-after"), Some("1"));
        let error = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(error.contains("the answer can't be kept"), "{error}");
        let answer = proxy.call(None, "small:get", json!({}));
        assert_eq!(answer.status, 200);
        proxy.settles("ati_refusals_total{reason=\"spool_full\"}", f64::from(n));
    }
    proxy.settles("ati_spool_bytes", 0.0);
    // A body that doesn't fit gets the same answer.
    let refused = proxy.call(None, "small:get", json!({"text": "y".repeat(BIG)}));
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("1"));
}

#[test]
fn bodies_beyond_the_memory_budget_get_503_until_there_is_room() {
    let api = answering("{}".to_owned());
    let conf = "[tools]\nspool_bytes = 1048576\nmax_memory_bytes = 3000000\n";
    let proxy = start(&api, conf, "method = 'POST'");
    let body = json!({"tool_name": "big:get", "args": {"text": "y".repeat(900_000)}}).to_string();
    // Three callers that keep back the last byte of their bodies.
    let mut waiting: Vec<_> = (0..3)
        .map(|_| {
            let mut client = proxy.client();
            let head = format!(
                "POST /call HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            client.write(head.as_bytes());
            client.write(&body.as_bytes()[..body.len() - 1]);
            client
        })
        .collect();
    let held = 3.0 * (body.len() as f64 - 1.0);
    proxy.settles("ati_call_memory_bytes", held);
    let refused = proxy.client().send("POST", "/call", &[], body.as_bytes());
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(
        refused.json()["error"],
        "Too busy: the bodies of all calls together would need more memory than max_memory_bytes"
    );
    proxy.settles("ati_refusals_total{reason=\"memory_full\"}", 1.0);
    // A small call finds room, and those that wait are answered when they go on.
    assert_eq!(proxy.call(None, "big:get", json!({})).status, 200);
    for client in &mut waiting {
        client.write(&body.as_bytes()[body.len() - 1..]);
        assert_eq!(client.read(false).status, 200);
    }
    proxy.settles("ati_call_memory_bytes", 0.0);
    let again = proxy.client().send("POST", "/call", &[], body.as_bytes());
    assert_eq!(again.status, 200);
}
