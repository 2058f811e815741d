//! The admin listener: what an operator's tools ask, on an address of their own.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

use http::{Method, StatusCode};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_http::ResponseHeader;

use super::downstream::Downstream;
use super::{Shared, metrics};
use crate::telemetry::health;
use crate::telemetry::metrics::METRICS;

const HEADER: Duration = Duration::from_secs(10);

pub async fn serve(stream: TcpStream, peer: SocketAddr, shared: &Shared) {
    let Ok(socket) = tokio::net::TcpStream::from_std(stream) else {
        return;
    };
    let fd = socket.as_raw_fd();
    let mut stream: Stream = Box::new(Downstream::new(socket, fd, Some(peer.into())));
    loop {
        let mut session = ServerSession::new_http1(stream);
        session.set_keepalive(Some(HEADER.as_secs()));
        session.set_total_drain_timeout(Some(Duration::from_secs(1)));
        match tokio::time::timeout(HEADER * 2, session.read_request()).await {
            Ok(Ok(true)) => {}
            _ => return,
        }
        let answered = async {
            answer(&mut session, shared).await?;
            session.finish().await
        };
        // Whoever doesn't take the answer makes room for others.
        match tokio::time::timeout(HEADER, answered).await {
            Ok(Ok(Some(reusable))) => stream = reusable.into_parts().0,
            _ => return,
        }
    }
}

async fn answer(session: &mut ServerSession, shared: &Shared) -> pingora_error::Result<()> {
    let request = session.req_header();
    let known = request.method == Method::GET || request.method == Method::HEAD;
    let (status, content_type, body) = match request.uri.path() {
        _ if !known => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", String::new()),
        "/metrics" => (StatusCode::OK, "text/plain; version=0.0.4", metrics()),
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
            "not found: /metrics, /healthz, /ready, /keyring, /credentials and /providers are here\n"
                .to_owned(),
        ),
    };
    let mut header = ResponseHeader::build(status, Some(4))?;
    header.insert_header("content-type", content_type)?;
    header.insert_header("content-length", body.len())?;
    if !known {
        header.insert_header("allow", "GET,HEAD")?;
    }
    session.write_response_header(Box::new(header)).await?;
    session.write_response_body(body.into(), true).await
}

/// Which keyring is in use, without what is in it.
fn keyring(shared: &Shared) -> String {
    let snapshot = shared.current.load();
    let loaded = snapshot.keyring_loaded.duration_since(UNIX_EPOCH);
    let (ok, failed) = METRICS.reloads();
    let answer = serde_json::json!({
        "fingerprint": snapshot.keyring.fingerprint(),
        "source": snapshot.keyring.source().as_str(),
        "keys": snapshot.keyring.len(),
        "loaded_at": loaded.unwrap_or_default().as_secs(),
        "reloads_ok": ok,
        "reloads_failed": failed,
    });
    answer.to_string() + "\n"
}

/// How MCP servers are, by provider.
fn providers(shared: &Shared) -> String {
    serde_json::to_string(&shared.states.all()).unwrap_or_default() + "\n"
}

/// How upstreams take our credentials, by name.
fn credentials() -> String {
    serde_json::to_string(&health::report()).unwrap_or_default() + "\n"
}
