//! Access lines say where a request went, and what became of it there.

use std::io::{Read, Write};

use ati::auth::token::Claims;
use serde_json::{Value, json};

use super::access_line;
use crate::support::ati::{Proxy, Setup, tool};
use crate::support::free_address;
use crate::support::tokens::{bearer, claims, key_pair};
use crate::support::upstream::Upstream;

/// How many requests were counted as refused, for whatever reason.
fn refusals(proxy: &Proxy) -> Vec<String> {
    let metrics = crate::support::http::Client::connect(proxy.admin).get("/metrics");
    let metrics = metrics.text();
    let lines = metrics.lines();
    lines
        .filter(|line| line.starts_with("ati_refusals_total"))
        .map(str::to_owned)
        .collect()
}

fn has_no(line: &Value, keys: &[&str]) {
    for key in keys {
        assert_eq!(line.get(key), None, "{key} of {line}");
    }
}

#[test]
fn dead_upstream_is_a_warning_that_names_it_and_no_refusal() {
    let dead = free_address();
    let proxy = Setup::new()
        .route("dead", &format!("http://{dead}"), "path_prefix = '/dead'")
        .start();
    let headers = [("x-sandbox-job-id", "job-42")];
    let answer = proxy
        .client()
        .send("GET", "/dead/x?key=planted-in-the-query", &headers, b"");
    assert_eq!(answer.status, 502);
    // What the operator sees isn't the caller's to know.
    assert!(!answer.text().contains(&dead.to_string()));
    let line = access_line(&proxy, "/dead/x");
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["upstream"], dead.to_string());
    assert_eq!(line["upstream_error"], "connect");
    assert_eq!(line["attempts"], 1);
    assert_eq!(
        (&line["job_id"], &line["job_id_from"]),
        (&json!("job-42"), &json!("header"))
    );
    assert!(line["upstream_ms"].as_f64().unwrap() <= line["ms"].as_f64().unwrap());
    has_no(&line, &["refused", "connect_ms", "tool", "sandbox_id"]);
    proxy.settles(
        r#"ati_upstream_errors_total{kind="connect",route="dead"}"#,
        1.0,
    );
    assert_eq!(refusals(&proxy), Vec::<String>::new());
}

#[test]
fn upstream_that_is_silent_breaks_off_or_has_no_name_is_told_apart() {
    let silent = Upstream::raw(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let broken = Upstream::answering(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf");
        false
    });
    let proxy = Setup::new()
        .route(
            "silent",
            &silent.url(),
            "path_prefix = '/silent'\nread_timeout_seconds = 1",
        )
        .route("broken", &broken.url(), "path_prefix = '/broken'")
        .route(
            "nowhere",
            "http://no.such.name.invalid:81",
            "path_prefix = '/nowhere'",
        )
        .conf("[egress]\nnameservers = ['127.0.0.1:1']\n")
        .start();
    assert_eq!(proxy.client().get("/silent/x").status, 504);
    assert_eq!(proxy.client().get("/nowhere/x").status, 502);
    let _ = proxy.client().try_get("/broken/x");
    for (path, kind, upstream, connected) in [
        ("/silent/x", "timeout", silent.address.to_string(), true),
        ("/broken/x", "closed", broken.address.to_string(), true),
        ("/nowhere/x", "dns", "no.such.name.invalid:81".into(), false),
    ] {
        let line = access_line(&proxy, path);
        assert_eq!(line["level"], "WARN", "{line}");
        assert_eq!(line["upstream_error"], kind, "{line}");
        assert_eq!(line["upstream"], upstream, "{line}");
        assert_eq!(line["attempts"], 1, "{line}");
        assert_eq!(line["connect_ms"].is_number(), connected, "{line}");
    }
    let silence = access_line(&proxy, "/silent/x");
    assert!(silence["upstream_ms"].as_f64().unwrap() > 900.0);
    assert!(silence["connect_ms"].as_f64().unwrap() < 900.0);
    assert_eq!(refusals(&proxy), Vec::<String>::new());
}

#[test]
fn served_request_tells_the_upstreams_time_apart() {
    let slow = Upstream::answering(|_, stream| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            .is_ok()
    });
    let proxy = Setup::new()
        .route("slow", &slow.url(), "path_prefix = '/slow'")
        .start();
    let mut client = proxy.client();
    for path in ["/slow/first", "/slow/second"] {
        assert_eq!(client.get(path).status, 200);
        let line = access_line(&proxy, path);
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["upstream"], slow.address.to_string());
        let [all, upstream, connect] =
            ["ms", "upstream_ms", "connect_ms"].map(|key| line[key].as_f64().unwrap());
        assert!(
            upstream >= 50.0 && upstream <= all && connect < upstream,
            "{line}"
        );
        has_no(&line, &["upstream_error", "refused", "job_id", "tool"]);
    }
    proxy.settles(r#"ati_upstream_duration_seconds_count{route="slow"}"#, 2.0);
    let line = {
        assert_eq!(client.get("/health").status, 200);
        access_line(&proxy, "/health")
    };
    has_no(
        &line,
        &["upstream", "attempts", "upstream_ms", "connect_ms", "tool"],
    );
}

#[test]
fn call_line_names_tool_job_sandbox_and_the_upstreams_answer() {
    let api = Upstream::answering(|received, stream| {
        let answer = if received.target.starts_with("/bad") {
            "HTTP/1.1 418 Teapot\r\ncontent-length: 2\r\n\r\nno"
        } else {
            "HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}"
        };
        stream.write_all(answer.as_bytes()).is_ok()
    });
    let dead = free_address();
    let (signer, public) = key_pair();
    let tools = [
        tool("shop:good", "endpoint = '/good'"),
        tool("shop:bad", "endpoint = '/bad'"),
        tool(
            "shop:strict",
            "input_schema = { type = 'object', required = ['q'] }",
        ),
    ];
    let proxy = Setup::new()
        .jwt(&public)
        .tools("shop", &api.url(), "", &tools.concat())
        .tools("gone", &format!("http://{dead}"), "", &tool("gone:it", ""))
        .start();
    let claims = Claims {
        job_id: Some("job-1".into()),
        sandbox_id: Some("box-2".into()),
        ..claims()
    };
    let token = bearer(&signer, &claims);
    let line_of = |name: &str, status: u16| {
        // A header can't speak against the token.
        let headers = [
            ("authorization", token.as_str()),
            ("x-sandbox-job-id", "someone-elses"),
        ];
        let body = json!({"tool_name": name, "args": {}}).to_string();
        let mut client = proxy.client();
        let answer = client.send("POST", "/call", &headers, body.as_bytes());
        assert_eq!(answer.status, status, "{}", answer.text());
        let id = answer.header("x-request-id").unwrap().to_owned();
        crate::support::eventually("the access line", || {
            let lines = proxy.log.find_all("request");
            lines.into_iter().find(|line| line["request_id"] == id)
        })
    };
    let line = line_of("shop:good", 200);
    for (key, value) in [
        ("level", json!("INFO")),
        ("tool", json!("shop:good")),
        ("job_id", json!("job-1")),
        ("job_id_from", json!("token")),
        ("sandbox_id", json!("box-2")),
        ("sub", json!("agent-7")),
        ("upstream", json!(api.address.to_string())),
        ("upstream_status", json!(201)),
        ("attempts", json!(1)),
    ] {
        assert_eq!(line[key], value, "{key} of {line}");
    }
    assert!(line["upstream_ms"].as_f64().unwrap() <= line["ms"].as_f64().unwrap());

    let line = line_of("shop:bad", 502);
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["upstream_error"], "status");
    assert_eq!(line["upstream_status"], 418);
    let line = line_of("gone:it", 502);
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["upstream_error"], "connect");
    assert_eq!(line["upstream"], dead.to_string());
    has_no(&line, &["upstream_status", "refused"]);
    assert_eq!(refusals(&proxy), Vec::<String>::new());

    // What ati itself refuses is a refusal, and no warning.
    let line = line_of("shop:strict", 422);
    assert_eq!(line["level"], "INFO");
    assert_eq!(line["refused"], "invalid_arguments");
    assert_eq!(line["tool"], "shop:strict");
    has_no(&line, &["upstream_error", "attempts", "upstream_ms"]);
    proxy.settles(r#"ati_refusals_total{reason="invalid_arguments"}"#, 1.0);
}

#[test]
fn key_in_the_host_of_a_tool_stays_out_of_the_access_line() {
    let proxy = Setup::new()
        .credentials(&json!({"tenant": "planted-tenant"}))
        .tools(
            "t",
            "http://${tenant}.invalid:81/x",
            "auth_type = 'url'",
            &tool("t:one", ""),
        )
        .conf("[egress]\nnameservers = ['127.0.0.1:1']\n")
        .start();
    assert_eq!(proxy.call(None, "t:one", json!({})).status, 502);
    let line = access_line(&proxy, "/call");
    assert_eq!(line["upstream"], "${tenant}.invalid:81");
    assert_eq!(line["upstream_error"], "dns");
}
