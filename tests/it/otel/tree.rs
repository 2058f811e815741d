//! Which spans upstreams are told of, and what requests that ati refuses leave at the collector.

use std::io::Write as _;

use serde_json::json;

use super::collector::{Collector, Span};
use super::{PARENT, api, parts};
use crate::support::ati::Setup;
use crate::support::upstream::{Received, Upstream};

/// The upstream's parent is this span, in the caller's trace.
fn assert_child(received: &Received, span: &Span) {
    let sent = received.all("traceparent");
    assert_eq!(sent.len(), 1, "{sent:?}");
    let [_, trace, parent, _] = parts(sent[0]);
    assert_eq!(trace, parts(PARENT)[1]);
    assert_eq!((trace, parent), (span.trace.as_str(), span.id.as_str()));
}

#[test]
fn message_to_an_mcp_server_as_it_is_is_one_tree() {
    let collector = Collector::start();
    let server = crate::mcp::particular_server(
        |_, _, _| None,
        |_, message, stream| {
            let answer = crate::mcp::told(message, "x");
            stream.write_all(answer.as_bytes()).is_ok()
        },
    );
    let text = format!(
        "[provider]\nname = 's'\nhandler = 'mcp'\nmcp_transport = 'http'\nmcp_url = '{}/mcp'\n",
        server.url()
    );
    let proxy = collector.setup().manifest("s", &text).start();
    proxy.log.wait_for("tools listed");
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"}}});
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "who", "arguments": {}}});
    let mut session = String::new();
    for (message, method, tool) in [
        (initialize, "initialize", None),
        (call, "tools/call", Some("s:who")),
    ] {
        let mut headers = vec![
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("traceparent", PARENT),
        ];
        if !session.is_empty() {
            headers.push(("mcp-session-id", &session));
        }
        let body = message.to_string();
        let answer = proxy
            .client()
            .send("POST", "/mcp/s", &headers, body.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        let id = answer.header("x-request-id").unwrap();
        let mcp = collector.span(method, |span| {
            span.name == "proxy.mcp" && span.get("request_id") == Some(id)
        });
        let request = collector.span(method, |span| span.id == mcp.parent);
        assert_eq!(request.get("http.route"), Some("/mcp/{provider}"));
        assert_eq!(
            (mcp.get("jsonrpc.method"), mcp.get("tool")),
            (Some(method), tool)
        );
        let received = server.received();
        let mut received = received.iter().rev();
        let received = received.find(|it| it.header("traceparent").is_some());
        assert_child(received.unwrap(), &mcp);
        if let Some(id) = answer.header("mcp-session-id") {
            session = id.to_owned();
        }
    }
}

#[test]
fn download_and_upload_tell_the_servers_their_trace() {
    let (collector, files, store) = (Collector::start(), api(), api());
    let text = format!(
        "[provider]\nname = 'file_manager'\nhandler = 'file_manager'\n\
         [provider.upload_destinations.store]\nkind = 's3'\nbucket = 'b'\nregion = 'eu'\n\
         endpoint = '{}'\naccess_key_ref = 'id'\nsecret_key_ref = 'key'\n",
        store.url()
    );
    let proxy = collector
        .setup()
        .manifest("file_manager", &text)
        .credentials(&json!({"id": "planted-id", "key": "planted-key"}))
        .start();
    let download = json!({"url": format!("{}/file", files.url())});
    let upload = json!({"filename": "a.txt", "content_base64": "YQ==", "destination": "store"});
    for (tool, args, server) in [
        ("file_manager:download", download, &files),
        ("file_manager:upload", upload, &store),
    ] {
        let body = json!({"tool_name": tool, "args": args}).to_string();
        let headers = [("traceparent", PARENT)];
        let answer = proxy
            .client()
            .send("POST", "/call", &headers, body.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        let call = collector.span(tool, |span| span.get("tool") == Some(tool));
        assert_child(&server.last(), &call);
    }
}

#[test]
fn redirected_download_keeps_the_trace_from_other_servers() {
    let (collector, other) = (Collector::start(), api());
    let answer = format!(
        "HTTP/1.1 302 X\r\nlocation: {}/there\r\ncontent-length: 0\r\n\r\n",
        other.url()
    );
    let first = Upstream::fixed(answer);
    let proxy = collector.setup().start();
    let args = json!({"url": format!("{}/here", first.url())});
    let answer = proxy.call(None, "file_manager:download", args);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(first.last().header("traceparent").is_some());
    assert_eq!(other.last().header("traceparent"), None);
}

#[test]
fn question_to_the_language_model_tells_it_its_trace() {
    let collector = Collector::start();
    let body = json!({"choices": [{"message": {"content": "hello"}}]}).to_string();
    let llm = Upstream::fixed(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    let proxy = collector
        .setup()
        .manifest("_llm", &crate::assist::llm_manifest(&llm.url()))
        .credentials(&json!({"cerebras_api_key": "planted-key"}))
        .start();
    let headers = [
        ("content-type", "application/json"),
        ("traceparent", PARENT),
    ];
    let question = json!({"query": "what is there?"}).to_string();
    let answer = proxy
        .client()
        .send("POST", "/help", &headers, question.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let help = collector.span("the question", |span| span.name == "proxy.help");
    assert_child(&llm.last(), &help);
}

#[test]
fn refused_request_to_a_route_is_counted_under_the_route() {
    let (collector, upstream) = (Collector::start(), Upstream::echo());
    let proxy = collector
        .setup()
        .route(
            "up",
            &upstream.url(),
            "path_prefix = '/up'\ndeny_paths = ['/no', '/up/no']",
        )
        .start();
    assert_eq!(proxy.client().get("/up/no").status, 403);
    assert_eq!(proxy.client().get("/nothing").status, 404);
    for route in [Some("up"), None] {
        let point = collector.point("the refusal", |point| {
            point.metric == "ati.proxy.requests" && point.get("route") == route
        });
        assert_eq!(point.get("http.route"), Some("/__passthrough_or_unmatched"));
        assert_eq!(point.get("http.response.status_class"), Some("4xx"));
        assert_eq!(point.count, 1);
    }
}

#[test]
fn header_that_can_t_be_read_is_a_span_and_is_counted() {
    let collector = Collector::start();
    let proxy = collector.setup().start();
    let mut client = proxy.client();
    client.write(b"GET /planted-path HTTP/1.1\r\nbad header\r\n\r\n");
    assert_eq!(client.read(false).status, 400);
    let span = collector.span("the header", |span| span.name == "http.server.request");
    assert_eq!(span.get("http.response.status_code"), Some("400"));
    assert_eq!(span.get("http.request.method"), Some("_OTHER"));
    assert_eq!((span.get("url.path"), span.get("request_id")), (None, None));
    assert!(span.get("error.type").is_some() && !span.failed, "{span:?}");
    let point = collector.point("the header", |point| point.metric == "ati.proxy.requests");
    assert_eq!(point.get("http.request.method"), Some("_OTHER"));
    assert_eq!(point.get("http.response.status_class"), Some("4xx"));
}

#[test]
fn upstream_s_own_failure_is_an_error_with_a_type() {
    let collector = Collector::start();
    let upstream = Upstream::fixed("HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n");
    let proxy = collector
        .setup()
        .route("up", &upstream.url(), "path_prefix = '/up'")
        .start();
    assert_eq!(proxy.client().get("/up/x").status, 503);
    let span = collector.span("the request", |span| span.name == "http.server.request");
    assert_eq!((span.get("error.type"), span.failed), (Some("503"), true));
}

#[test]
fn each_process_is_an_instance_of_its_own_unless_the_environment_names_it() {
    let instance = |setup: fn(Setup) -> Setup| {
        let (collector, upstream) = (Collector::start(), Upstream::echo());
        let proxy = setup(collector.setup())
            .route("up", &upstream.url(), "path_prefix = '/up'")
            .start();
        assert_eq!(proxy.client().get("/up/x").status, 200);
        let span = collector.span("the request", |span| span.name == "http.server.request");
        let named = |wanted: &str| {
            let mut found = span.resource.iter().filter(|(name, _)| name == wanted);
            let value = found.next().unwrap().1.clone();
            assert!(found.next().is_none(), "{:?}", span.resource);
            value
        };
        assert_eq!(named("telemetry.sdk.name"), "opentelemetry");
        named("service.instance.id")
    };
    let (one, other) = (instance(|setup| setup), instance(|setup| setup));
    assert_ne!(one, other);
    assert!(uuid::Uuid::parse_str(&one).is_ok(), "{one}");
    let named =
        instance(|setup| setup.env("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=edge-7,a=b"));
    assert_eq!(named, "edge-7");
}
