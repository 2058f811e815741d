//! Requests over HTTP/2: drains, resets, stalls, signatures.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::{TLS, encrypted, http2};
use crate::support::http::Client;
use crate::support::tls::{self, Authority};
use crate::support::tokens::SIGNING;
use crate::support::upstream::Upstream;
use crate::support::{PATIENCE, eventually};

#[test]
fn drain_waits_for_requests_over_http2() {
    let authority = Authority::new();
    let (begun, go) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (seen, may) = (begun.clone(), go.clone());
    let upstream = Upstream::answering(move |_, stream| {
        seen.store(true, Ordering::Release);
        eventually("the word to go on", || {
            may.load(Ordering::Acquire).then_some(())
        });
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate";
        stream.write_all(answer).is_ok()
    });
    let mut proxy = encrypted(&authority, TLS)
        .route("api", &upstream.url(), "path_prefix = \"/api\"")
        .start();
    let config = authority.caller(None, &["h2"]);
    let edge = proxy.edge;
    let asking = std::thread::spawn(move || {
        let request = http::Request::get("https://edge.test/api/slow");
        http2(edge, &config, request.body(Vec::new()).unwrap())
    });
    eventually("the request", || {
        begun.load(Ordering::Acquire).then_some(())
    });
    proxy.signal("TERM");
    proxy.log.wait_for("draining");
    go.store(true, Ordering::Release);
    assert_eq!(asking.join().unwrap(), (200, b"late".to_vec()));
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn requests_reset_over_http2_leave_nothing_in_flight() {
    let authority = Authority::new();
    // Takes a request, and never answers.
    let upstream = Upstream::raw(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let tool = r#"
        [[tools]]
        name = "hang"
        description = "d"
        endpoint = "/"
        method = "GET"
    "#;
    let proxy = encrypted(&authority, TLS)
        .tools("t", &upstream.url(), "", tool)
        .start();
    let config = authority.caller(None, &["h2"]);
    // The series exists from the first request on, which is this one.
    let invalid = http::Request::post("https://edge.test/call").body(Vec::new());
    assert_eq!(http2(proxy.edge, &config, invalid.unwrap()).0, 422);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(proxy.edge).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(config.clone());
        let name = rustls::pki_types::ServerName::try_from("edge.test").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(async move {
            let _ = connection.await;
        });
        for _ in 0..300 {
            let Ok(mut ready) = client.clone().ready().await else {
                break;
            };
            let request = http::Request::post("https://edge.test/call")
                .body(())
                .unwrap();
            let Ok((response, mut body)) = ready.send_request(request, false) else {
                break;
            };
            let _ = body.send_data(r#"{"tool_name":"hang","args":{}}"#.into(), true);
            tokio::task::yield_now().await;
            body.send_reset(h2::Reason::CANCEL);
            drop(response);
        }
    });
    proxy.settles(r#"ati_in_flight{route="/call"}"#, 0.0);
    runtime.shutdown_background();
    proxy.settles(r#"ati_connections{listener="edge"}"#, 0.0);
    assert_eq!(
        Client::over(
            tls::over(
                TcpStream::connect(proxy.edge).unwrap(),
                &authority.caller(None, &["http/1.1"])
            ),
            "edge.test"
        )
        .get("/health")
        .status,
        200
    );
}

#[test]
fn scrubbed_answer_is_whole_over_http2() {
    let authority = Authority::new();
    let upstream = Upstream::echo();
    let lines = "path_prefix = '/svc'\nscrub = true\nauth_type = 'bearer'\nauth_key_name = 'k'";
    let proxy = encrypted(&authority, TLS)
        .credentials(&serde_json::json!({"k": "planted-upstream-key"}))
        .route("svc", &upstream.url(), lines)
        .start();
    let config = authority.caller(None, &["h2"]);
    let request = http::Request::get("https://edge.test/svc/x").body(Vec::new());
    let (status, body) = http2(proxy.edge, &config, request.unwrap());
    assert_eq!(status, 200);
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["authorization"][0], "Bearer [REDACTED]");
    assert_eq!(body["length"], 0);
}

#[test]
fn call_whose_body_stalls_over_http2_gets_400() {
    let authority = Authority::new();
    let conf = format!("{TLS}[limits]\nstall_seconds = 1\n");
    let proxy = encrypted(&authority, &conf).start();
    let config = authority.caller(None, &["h2"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let status = runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(proxy.edge).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(config.clone());
        let name = rustls::pki_types::ServerName::try_from("edge.test").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let request = http::Request::post("https://edge.test/call")
            .body(())
            .unwrap();
        let (response, mut body) = client.send_request(request, false).unwrap();
        // The rest of the body is never sent.
        body.send_data(r#"{"tool_name":"#.into(), false).unwrap();
        let response = tokio::time::timeout(PATIENCE, response).await.unwrap();
        response.unwrap().status().as_u16()
    });
    assert_eq!(status, 400);
    proxy.settles(r#"ati_in_flight{route="/call"}"#, 0.0);
}

#[test]
fn signatures_are_enforced_over_http2() {
    let authority = Authority::new();
    let proxy = encrypted(&authority, TLS)
        .credentials(&json!({"sandbox_signing_shared_secret": SIGNING}))
        .arg("--sig-verify-mode")
        .arg("enforce")
        .start();
    let config = authority.caller(None, &["h2"]);
    let ask = |signature: Option<String>| {
        let mut request = http::Request::get("https://edge.test/tools");
        if let Some(signature) = signature {
            request = request.header("x-sandbox-signature", signature);
        }
        http2(proxy.edge, &config, request.body(Vec::new()).unwrap())
    };
    assert_eq!(ask(None), (403, b"missing_signature".to_vec()));
    assert_eq!(
        ask(Some(crate::support::tokens::sign("GET", "/tools"))).0,
        200
    );
}
