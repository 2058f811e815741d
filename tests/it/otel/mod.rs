//! Spans and metrics as a collector gets them.

mod answers;
mod collector;
mod faults;
mod tree;

use std::path::Path;

use serde_json::json;

use crate::support::ati::{BINARY, Setup, command};
use crate::support::upstream::Upstream;
use collector::{Collector, Span};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const TOOL: &str = "[[tools]]\nname = 'shop:find'\nendpoint = '/find'";
/// Of OTLP.
const SERVER: i32 = 2;

fn api() -> Upstream {
    Upstream::fixed("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ntrue")
}

fn mcp_server() -> String {
    let server = Path::new(BINARY).parent().unwrap();
    let server = server.join("examples/mcp_server");
    format!(
        "[provider]\nname = \"s\"\nhandler = \"mcp\"\nmcp_command = \"{}\"\nmcp_args = [\"traced\"]\n",
        server.display()
    )
}

fn named<'a>(trace: &'a [Span], name: &str) -> &'a Span {
    let mut found = trace.iter().filter(|span| span.name == name);
    let span = found
        .next()
        .unwrap_or_else(|| panic!("no {name} in {trace:#?}"));
    assert!(found.next().is_none(), "{name} twice in {trace:#?}");
    span
}

/// The parts of a `traceparent`.
fn parts(traceparent: &str) -> [&str; 4] {
    let parts: Vec<&str> = traceparent.split('-').collect();
    parts.try_into().unwrap()
}

#[test]
fn call_of_an_http_tool_is_one_tree_from_the_caller_to_the_upstream() {
    let (collector, api) = (Collector::start(), api());
    let proxy = collector
        .setup()
        .env("ENVIRONMENT_TIER", "staging")
        .tools("shop", &api.url(), "", TOOL)
        .start();
    let body = json!({"tool_name": "shop:find", "args": {}}).to_string();
    let headers = [
        ("traceparent", PARENT),
        ("tracestate", "vendor=planted-state"),
    ];
    let answer = proxy
        .client()
        .send("POST", "/call", &headers, body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let trace = collector.trace("the call", |span| span.name == "http.server.request");

    let [_, trace_id, caller_span, _] = parts(PARENT);
    let server = named(&trace, "http.server.request");
    assert_eq!(
        (server.trace.as_str(), server.parent.as_str()),
        (trace_id, caller_span)
    );
    assert_eq!(server.kind, SERVER);
    let wanted = [
        ("http.route", "/call"),
        ("http.request.method", "POST"),
        ("http.response.status_code", "200"),
        ("url.path", "/call"),
        ("request_id", answer.header("x-request-id").unwrap()),
    ];
    for (name, value) in wanted {
        assert_eq!(server.get(name), Some(value), "{name}");
    }
    let call = named(&trace, "proxy.call");
    assert_eq!(
        (&call.parent, call.get("tool")),
        (&server.id, Some("shop:find"))
    );
    assert_eq!(call.get("request_id"), server.get("request_id"));

    let received = api.last();
    let [version, trace_id, span, flags] = parts(received.header("traceparent").unwrap());
    assert_eq!((version, flags), ("00", "01"));
    assert_eq!((trace_id, span), (server.trace.as_str(), call.id.as_str()));
    assert_eq!(received.header("tracestate"), None);
    for (name, value) in [
        ("service.name", "ati-proxy"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("deployment.environment", "staging"),
    ] {
        let found = server.resource.iter().find(|(known, _)| known == name);
        assert_eq!(found.unwrap().1, value, "{name}");
    }
}

#[test]
fn call_of_an_mcp_tool_tells_the_server_its_trace() {
    let collector = Collector::start();
    let proxy = collector.setup().manifest("s", &mcp_server()).start();
    proxy.log.wait_for("tools listed");
    let answer = proxy.call(None, "s:meta", json!({}));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let trace = collector.trace("the call", |span| span.get("tool") == Some("s:meta"));
    let call = named(&trace, "proxy.call");
    let seen = answer.json()["result"]["traceparent"].clone();
    let [_, trace_id, span, _] = parts(seen.as_str().unwrap());
    assert_eq!((trace_id, span), (call.trace.as_str(), call.id.as_str()));
}

#[test]
fn mcp_request_is_a_span_with_its_method() {
    let (collector, api) = (Collector::start(), api());
    let proxy = collector
        .setup()
        .tools("shop", &api.url(), "", TOOL)
        .start();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "shop:find", "arguments": {}}});
    let headers = [("content-type", "application/json")];
    let body = body.to_string();
    let answer = proxy
        .client()
        .send("POST", "/mcp", &headers, body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let trace = collector.trace("the call", |span| span.name == "proxy.mcp");
    let (server, mcp) = (
        named(&trace, "http.server.request"),
        named(&trace, "proxy.mcp"),
    );
    assert_eq!((&mcp.parent, server.parent.as_str()), (&server.id, ""));
    assert_eq!(mcp.get("jsonrpc.method"), Some("tools/call"));
    let received = api.last();
    let [_, trace_id, span, _] = parts(received.header("traceparent").unwrap());
    assert_eq!((trace_id, span), (mcp.trace.as_str(), mcp.id.as_str()));
}

#[test]
fn request_to_a_route_is_a_span_and_the_upstream_gets_a_fresh_parent() {
    let (collector, upstream) = (Collector::start(), Upstream::echo());
    let proxy = collector
        .setup()
        .route("up", &upstream.url(), "path_prefix = '/up'")
        .start();
    let headers = [
        ("traceparent", PARENT),
        ("tracestate", "vendor=planted-state"),
    ];
    let query = "/up/x?key=planted-query";
    // The short way, and Pingora's.
    for (method, more) in [("GET", None), ("DELETE", Some(("te", "trailers")))] {
        let headers: Vec<_> = headers.into_iter().chain(more).collect();
        let answer = proxy.client().send(method, query, &headers, b"");
        assert_eq!(answer.status, 200, "{}", answer.text());
        let id = answer.header("x-request-id").unwrap();
        let span = collector.span(method, |span| {
            span.name == "passthrough.request" && span.get("request_id") == Some(id)
        });
        let server = collector.span(method, |it| it.id == span.parent);
        assert_eq!(
            server.get("http.route"),
            Some("/__passthrough_or_unmatched")
        );
        assert_eq!(server.get("url.path"), Some("/up/x"));
        assert_eq!(span.get("route"), Some("up"));
        let authority = upstream.address.to_string();
        assert_eq!(span.get("upstream"), Some(authority.as_str()));
        let received = upstream.last();
        let [_, trace_id, parent, flags] = parts(received.header("traceparent").unwrap());
        assert_eq!(
            (trace_id, parent, flags),
            (parts(PARENT)[1], span.id.as_str(), "01")
        );
        assert_eq!(received.header("tracestate"), None);
    }
}

#[test]
fn refused_and_failed_requests_are_spans_that_say_why() {
    let collector = Collector::start();
    let nowhere = format!("http://{}", crate::support::free_address());
    let proxy = collector
        .setup()
        .route(
            "down",
            &nowhere,
            "path_prefix = '/down'\ndeny_paths = ['/no', '/down/no']",
        )
        .start();
    let cases = [
        ("/down/x", 502, "connect", true),
        ("/down/no", 403, "path_denied", false),
        ("/nothing", 404, "not_found", false),
    ];
    for (path, status, failure, failed) in cases {
        let answer = proxy.client().send("GET", path, &[], b"");
        assert_eq!(answer.status, status, "{path}");
        let span = collector.span(path, |span| span.get("url.path") == Some(path));
        assert_eq!(span.name, "http.server.request");
        let status = status.to_string();
        assert_eq!(span.get("http.response.status_code"), Some(status.as_str()));
        assert_eq!(
            (span.get("error.type"), span.failed),
            (Some(failure), failed),
            "{path}"
        );
    }
    let failed = collector.point("the failure", |point| point.metric == "ati.upstream.errors");
    assert_eq!(
        (failed.get("provider"), failed.get("error_kind")),
        (Some("down"), Some("connect"))
    );
    let denied = collector.point("the denial", |point| {
        point.metric == "ati.passthrough.denied"
    });
    assert_eq!((denied.get("route"), denied.count), (Some("down"), 1));
}

#[test]
fn metrics_have_the_documented_labels() {
    let (collector, api) = (Collector::start(), api());
    let proxy = collector
        .setup()
        .tools("shop", &api.url(), "", TOOL)
        .route("up", &api.url(), "path_prefix = '/up'")
        .start();
    assert_eq!(proxy.call(None, "shop:find", json!({})).status, 200);
    assert_eq!(proxy.client().send("GET", "/up/x", &[], b"").status, 200);
    assert_eq!(proxy.client().send("BREW", "/up/x", &[], b"").status, 200);
    for metric in ["ati.proxy.requests", "ati.proxy.request_duration_ms"] {
        let call = collector.point("the call", |point| {
            point.metric == metric && point.get("http.route") == Some("/call")
        });
        let labels = [
            "http.request.method",
            "http.response.status_class",
            "provider",
            "tool",
        ];
        let labels = labels.map(|name| call.get(name).unwrap());
        assert_eq!(labels, ["POST", "2xx", "shop", "shop:find"]);
        for method in ["GET", "_OTHER"] {
            let route = collector.point("the route", |point| {
                point.metric == metric && point.get("http.request.method") == Some(method)
            });
            let labels = ["http.route", "route"].map(|name| route.get(name).unwrap());
            assert_eq!(labels, ["/__passthrough_or_unmatched", "up"]);
            assert_eq!(route.count, 1);
        }
    }
}

#[test]
fn caller_that_does_not_record_is_followed_and_upstreams_are_told() {
    let (collector, upstream) = (Collector::start(), Upstream::echo());
    let proxy = collector
        .setup()
        .route("up", &upstream.url(), "path_prefix = '/up'")
        .start();
    let unsampled = PARENT.replace("-01", "-00");
    let get = |headers: &[(&str, &str)]| {
        assert_eq!(
            proxy.client().send("GET", "/up/x", headers, b"").status,
            200
        );
        upstream.last().header("traceparent").unwrap().to_owned()
    };
    assert!(get(&[("traceparent", &unsampled)]).ends_with("-00"));
    let recorded = get(&[]);
    let trace = parts(&recorded)[1];
    collector.span("the second request", |span| span.trace == trace);
    let trace = parts(&unsampled)[1];
    assert!(collector.spans().iter().all(|span| span.trace != trace));
}

#[test]
fn sampler_of_the_environment_decides() {
    let (collector, upstream) = (Collector::start(), Upstream::echo());
    let proxy = collector
        .setup()
        .env("OTEL_TRACES_SAMPLER", "always_off")
        .route("up", &upstream.url(), "path_prefix = '/up'")
        .start();
    let headers = [("traceparent", PARENT)];
    let answer = proxy.client().send("GET", "/up/x", &headers, b"");
    assert_eq!(answer.status, 200);
    let sent = upstream.last();
    assert!(sent.header("traceparent").unwrap().ends_with("-00"));
    collector.point("metrics", |point| point.get("route") == Some("up"));
    assert_eq!(collector.spans().len(), 0);
}

#[test]
fn without_an_endpoint_no_upstream_gets_a_traceparent() {
    let upstream = Upstream::echo();
    let proxy = Setup::new()
        .route("up", &upstream.url(), "path_prefix = '/up'")
        .start();
    let headers = [("traceparent", PARENT)];
    assert_eq!(
        proxy.client().send("GET", "/up/x", &headers, b"").status,
        200
    );
    assert_eq!(upstream.last().header("traceparent"), None);
}

#[test]
fn spans_of_both_processes_of_a_hand_over_arrive() {
    let (collector, upstream) = (Collector::start(), Upstream::echo());
    let mut proxy = collector
        .setup()
        // So long that only the end of the process sends them.
        .env("OTEL_BSP_SCHEDULE_DELAY", "3600000")
        .route("up", &upstream.url(), "path_prefix = '/up'")
        .start();
    let get = |proxy: &crate::support::ati::Proxy, path: &str| {
        assert_eq!(proxy.client().send("GET", path, &[], b"").status, 200);
    };
    get(&proxy, "/up/old");
    let mut former = proxy.upgrade();
    assert!(former.wait().success());
    get(&proxy, "/up/new");
    proxy.signal("TERM");
    assert!(proxy.wait().success());
    let spans = collector.spans();
    for path in ["/up/old", "/up/new"] {
        let count = spans
            .iter()
            .filter(|span| span.get("url.path") == Some(path));
        assert_eq!(count.count(), 1, "{path}");
    }
    let handover = spans.iter().filter(|span| span.name == "handover");
    assert_eq!(handover.count(), 1);
}

#[test]
fn reload_is_a_span() {
    let collector = Collector::start();
    let proxy = collector.setup().start();
    proxy.reload();
    let span = collector.span("the reload", |span| span.name == "reload");
    assert_eq!((span.parent.as_str(), span.failed), ("", false));
}

#[test]
fn run_through_the_proxy_is_a_part_of_the_trace_of_its_environment() {
    let (collector, api) = (Collector::start(), api());
    let proxy = collector
        .setup()
        .tools("shop", &api.url(), "", TOOL)
        .start();
    let run = command(proxy.dir.path())
        .args(["run", "shop:find"])
        .env("ATI_PROXY_URL", format!("http://{}", proxy.edge))
        .env("TRACEPARENT", PARENT)
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    let call = collector.span("the call", |span| span.name == "proxy.call");
    assert_eq!(call.trace, parts(PARENT)[1]);
}
