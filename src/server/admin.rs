//! The admin listener's answers: metrics, readiness and state, for operators and their tools.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{Method, StatusCode};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_http::ResponseHeader;

use super::Shared;
use super::listen::downstream::Downstream;
use crate::api::{self, Body, KEYS_BODY as LONGEST_BODY, ReplyBody};
use crate::error::Refusal;
use crate::filters::{self, Target};
use crate::gateway::plain_refusal;
use crate::request_id::RequestId;
use crate::telemetry::health;
use crate::telemetry::metrics::METRICS;

/// Where key administration is.
const KEYS: &str = "/admin/keys";
/// How long a connection may be idle between requests, and a client may take to read a response.
/// A request may take twice as long to arrive.
const TIMEOUT: Duration = Duration::from_secs(10);

pub async fn serve(stream: TcpStream, peer: SocketAddr, shared: &Shared) {
    let Ok(socket) = tokio::net::TcpStream::from_std(stream) else {
        return;
    };
    let fd = socket.as_raw_fd();
    let mut stream: Stream = Box::new(Downstream::new(Box::new(socket), fd, Some(peer.into())));
    loop {
        let mut session = ServerSession::new_http1(stream);
        session.set_keepalive(Some(TIMEOUT.as_secs()));
        session.set_total_drain_timeout(Some(Duration::from_secs(1)));
        match tokio::time::timeout(TIMEOUT * 2, session.read_request()).await {
            Ok(Ok(true)) => {}
            _ => return,
        }
        let answered = async {
            answer(&mut session, shared).await?;
            session.finish().await
        };
        // A client that doesn't read its response is disconnected: there is room for few.
        match tokio::time::timeout(TIMEOUT, answered).await {
            Ok(Ok(Some(reusable))) => stream = reusable.into_parts().0,
            _ => return,
        }
    }
}

async fn answer(session: &mut ServerSession, shared: &Shared) -> pingora_error::Result<()> {
    let request = session.req_header();
    let path = request.uri.path();
    if path == KEYS
        || path
            .strip_prefix(KEYS)
            .is_some_and(|rest| rest.starts_with('/'))
    {
        return administer_keys(session, shared).await;
    }
    let allowed = request.method == Method::GET || request.method == Method::HEAD;
    let (status, content_type, body) = match request.uri.path() {
        _ if !allowed => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", String::new()),
        "/metrics" => (
            StatusCode::OK,
            "text/plain; version=0.0.4",
            METRICS.render(),
        ),
        "/credentials" => (StatusCode::OK, "application/json", credentials()),
        "/providers" => (StatusCode::OK, "application/json", providers(shared)),
        "/keyring" => (StatusCode::OK, "application/json", keyring(shared)),
        "/healthz" => (StatusCode::OK, "text/plain", "ok\n".to_owned()),
        "/ready" if shared.ready.load(Ordering::Acquire) => {
            (StatusCode::OK, "text/plain", "ready\n".to_owned())
        }
        "/ready" => (
            StatusCode::SERVICE_UNAVAILABLE,
            "text/plain",
            "draining\n".to_owned(),
        ),
        _ => (
            StatusCode::NOT_FOUND,
            "text/plain",
            "not found: /metrics, /healthz, /ready, /keyring, /credentials, /providers and \
             /admin/keys are here\n"
                .to_owned(),
        ),
    };
    let mut header = ResponseHeader::build(status, Some(4))?;
    header.insert_header("content-type", content_type)?;
    header.insert_header("content-length", body.len())?;
    if !allowed {
        header.insert_header("allow", "GET,HEAD")?;
    }
    session.write_response_header(Box::new(header)).await?;
    session.write_response_body(body.into(), true).await
}

/// Key administration, as callers' listeners have it.
async fn administer_keys(
    session: &mut ServerSession,
    shared: &Shared,
) -> pingora_error::Result<()> {
    let snapshot = shared.current.load_full();
    let parts: Parts = (**session.req_header()).clone();
    let method = parts.method.clone();
    let answered = match filters::admit_administration(&parts, &snapshot) {
        Err(refusal) => Err(refusal),
        Ok(pass) => match (pass.target(), read_body(session).await?) {
            (_, None) => Err(Refusal::TooLarge),
            (Target::Admin(endpoint), Some(body)) => {
                let request = api::Request {
                    id: RequestId::generate(),
                    parts,
                    body: Body::whole(body),
                    trail: Arc::default(),
                };
                api::answer(*endpoint, &pass, request, &snapshot, &shared.services).await
            }
            (_, Some(_)) => Err(Refusal::Internal),
        },
    };
    let reply = answered.unwrap_or_else(|refusal| plain_refusal(&refusal));
    let ReplyBody::Whole(body) = reply.body else {
        return Ok(());
    };
    let mut header = ResponseHeader::build(reply.status, Some(4))?;
    for (name, value) in reply.headers {
        header.insert_header(name, value)?;
    }
    header.insert_header("content-length", body.len())?;
    session.write_response_header(Box::new(header)).await?;
    match method == Method::HEAD {
        true => Ok(()),
        false => session.write_response_body(body, true).await,
    }
}

/// None: it is longer than any that key administration takes.
async fn read_body(session: &mut ServerSession) -> pingora_error::Result<Option<Bytes>> {
    let mut body = BytesMut::new();
    while let Some(piece) = session.read_request_body().await? {
        body.extend_from_slice(&piece);
        if body.len() > LONGEST_BODY {
            return Ok(None);
        }
    }
    Ok(Some(body.freeze()))
}

/// Which keyring is in use, without its contents, and why the last reload failed, if it did.
fn keyring(shared: &Shared) -> String {
    let snapshot = shared.current.load();
    let loaded = snapshot.keyring_loaded.duration_since(UNIX_EPOCH);
    let (ok, failed) = METRICS.reloads();
    let last = shared.reloader.last_report();
    let problems = last.map(|report| report.problems).unwrap_or_default();
    let answer = serde_json::json!({
        "fingerprint": snapshot.keyring.fingerprint(),
        "source": snapshot.keyring.source().as_str(),
        "keys": snapshot.keyring.len(),
        "loaded_at": loaded.unwrap_or_default().as_secs(),
        "reloads_ok": ok,
        "reloads_failed": failed,
        "problems": problems,
    });
    answer.to_string() + "\n"
}

/// The state of each MCP provider.
fn providers(shared: &Shared) -> String {
    serde_json::to_string(&shared.provider_states.all()).unwrap_or_default() + "\n"
}

/// How often upstreams accepted and refused each credential.
fn credentials() -> String {
    serde_json::to_string(&health::report()).unwrap_or_default() + "\n"
}
