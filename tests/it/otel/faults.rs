//! Collectors that are down, slow or confused, and what must never get to one.

use std::io::Write as _;

use serde_json::json;

use super::collector::{Collector, setup};
use crate::support::ati::Proxy;
use crate::support::upstream::Upstream;
use crate::support::{eventually, free_address};

pub const LOST: &str = "the collector did not take spans or metrics";

pub fn serve(proxy: &Proxy, requests: usize) {
    let mut client = proxy.client();
    for _ in 0..requests {
        assert_eq!(client.send("GET", "/up/x", &[], b"").status, 200);
    }
}

/// Requests are answered, one line says what is wrong, and what is lost is counted.
fn requests_are_answered_next_to(collector: &str) {
    let upstream = Upstream::echo();
    let proxy = setup(collector)
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "200")
        .route("up", &upstream.url(), "path_prefix = '/up'")
        .start();
    serve(&proxy, 50);
    proxy.rises_to("ati_otlp_spans_total{outcome=\"failed\"}", 100.0);
    serve(&proxy, 50);
    assert_eq!(proxy.log.find_all(LOST).len(), 1);
}

#[test]
fn collector_that_is_down_slows_no_request() {
    requests_are_answered_next_to(&format!("http://{}", free_address()));
}

#[test]
fn collector_that_never_answers_slows_no_request() {
    let collector = Upstream::raw(|stream| {
        let _ = std::io::copy(&mut &stream, &mut std::io::sink());
    });
    requests_are_answered_next_to(&collector.url());
}

#[test]
fn collector_that_fails_slows_no_request() {
    let answer = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
    let collector = Upstream::fixed(answer);
    requests_are_answered_next_to(&collector.url());
}

#[test]
fn collector_that_answers_no_http_slows_no_request() {
    let collector = Upstream::fixed("planted-garbage\r\n\r\n");
    requests_are_answered_next_to(&collector.url());
}

#[test]
fn collector_that_answers_garbage_slows_no_request() {
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n\xff\xfegarbage";
    let collector = Upstream::fixed(answer);
    requests_are_answered_next_to(&collector.url());
}

#[test]
fn collector_whose_answer_never_ends_slows_no_request() {
    let collector = Collector::answering(|stream| {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
        while stream.write_all(&[b'x'; 8192]).is_ok() {}
        false
    });
    requests_are_answered_next_to(&collector.url());
}

#[test]
fn queue_that_is_full_drops_spans_and_counts_them() {
    let upstream = Upstream::echo();
    let proxy = setup(&format!("http://{}", free_address()))
        .env("OTEL_BSP_SCHEDULE_DELAY", "3600000")
        .env("OTEL_BSP_MAX_QUEUE_SIZE", "10")
        .route("up", &upstream.url(), "path_prefix = '/up'")
        .start();
    serve(&proxy, 20);
    proxy.settles("ati_otlp_spans_total{outcome=\"dropped\"}", 30.0);
    let warning = proxy.log.wait_for("spans are dropped");
    assert_eq!(
        (&warning["level"], &warning["most"]),
        (&json!("WARN"), &json!(10))
    );
    assert_eq!(proxy.log.find_all("spans are dropped").len(), 1);
}

#[test]
fn end_of_the_process_waits_no_longer_than_its_limit_for_a_collector() {
    let collector = Upstream::raw(|stream| {
        let _ = std::io::copy(&mut &stream, &mut std::io::sink());
    });
    let upstream = Upstream::echo();
    let mut proxy = setup(&collector.url())
        .route("up", &upstream.url(), "path_prefix = '/up'")
        .start();
    serve(&proxy, 1);
    proxy.signal("TERM");
    // The limit is ten seconds, and `wait` gives up much later.
    assert!(proxy.wait().success());
}

#[test]
fn variables_that_can_t_be_used_are_warnings_without_their_values() {
    let upstream = Upstream::echo();
    let proxy = setup("ftp://planted-endpoint")
        .env("OTEL_TRACES_SAMPLER", "planted-sampler")
        .route("up", &upstream.url(), "path_prefix = '/up'")
        .start();
    serve(&proxy, 1);
    let warned = proxy.log.find_all("OTEL_EXPORTER_OTLP_ENDPOINT");
    assert!(!warned.is_empty(), "{}", proxy.log.text());
    assert!(!proxy.log.text().contains("planted-"));
}

#[test]
fn no_secret_no_query_and_no_argument_reaches_the_collector() {
    let collector = Collector::start();
    let api = Upstream::fixed("HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n\"canary-answer\"");
    let proxy = collector
        .setup()
        .env(
            "OTEL_EXPORTER_OTLP_HEADERS",
            "x-collector=for-the-collector",
        )
        .credentials(&json!({"key": "planted-credential"}))
        .tools(
            "shop",
            &api.url(),
            "auth_type = 'bearer'\nauth_key_name = 'key'",
            "[[tools]]\nname = 'shop:find'\nendpoint = '/find/{id}'\n\
             [tools.input_schema.properties.id]\ntype = 'string'\n\
             x-ati-param-location = 'path'",
        )
        .route(
            "up",
            &api.url(),
            "path_prefix = '/up'\nauth_type = 'bearer'\nauth_key_name = 'key'",
        )
        .start();
    let args = json!({"id": "canary-path", "text": "canary-argument"});
    proxy.call(Some("Bearer canary-token"), "shop:find", args);
    let headers = [
        ("x-planted", "canary-header"),
        ("cookie", "canary-cookie"),
        ("tracestate", "canary-state"),
        ("baggage", "canary-baggage"),
    ];
    let target = "/up/x?token=canary-query";
    assert_eq!(
        proxy.client().send("GET", target, &headers, b"").status,
        200
    );
    let unknown = json!({"tool_name": "canary-tool-name", "args": {}}).to_string();
    proxy
        .client()
        .send("POST", "/call", &[], unknown.as_bytes());
    collector.span("the route", |span| span.name == "passthrough.request");
    collector.span("the call", |span| span.get("tool") == Some("shop:find"));
    let calls = || {
        collector
            .spans()
            .into_iter()
            .filter(|span| span.name == "proxy.call")
    };
    eventually("both calls", || (calls().count() == 2).then_some(()));
    collector.point("metrics", |point| point.get("route") == Some("up"));
    let received = collector.received();
    for request in &received {
        assert_eq!(request.header("x-collector"), Some("for-the-collector"));
        let body = String::from_utf8_lossy(&request.body);
        for word in ["planted-", "canary-"] {
            let at = body.find(word).map(|at| body[at..].chars().take(40));
            assert_eq!(at.map(String::from_iter), None);
        }
    }
    assert!(!proxy.log.text().contains("for-the-collector"));
}
