//! A request's body, for the endpoints that need it whole.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, EXPECT};
use pingora_proxy::Session;

/// All of it, or why not. A trickle doesn't hold its place forever.
pub(super) async fn read(
    session: &mut Session,
    limit: usize,
    patience: Duration,
    stall: Duration,
) -> Result<Bytes, String> {
    tokio::time::timeout(patience, read_all(session, limit, stall))
        .await
        .unwrap_or_else(|_| Err(format!("not complete after {} s", patience.as_secs())))
}

/// A length that is announced and too large is refused before a byte is read.
async fn read_all(session: &mut Session, limit: usize, stall: Duration) -> Result<Bytes, String> {
    let too_large = || format!("length limit exceeded: more than {limit} bytes");
    let headers = &session.req_header().headers;
    let announced: usize = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .unwrap_or(0);
    if announced > limit {
        return Err(too_large());
    }
    if headers.contains_key(EXPECT) {
        session
            .write_continue_response()
            .await
            .map_err(|_| gone())?;
    }
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    // Pingora bounds the reads of HTTP/1 only.
    let mut next = async || {
        let chunk = tokio::time::timeout(stall, session.read_request_body()).await;
        chunk.map_err(|_| gone())?.map_err(|_| gone())
    };
    while let Some(chunk) = next().await? {
        if first.len() + rest.len() + chunk.len() > limit {
            return Err(too_large());
        }
        // Most bodies come in one piece, and need no copy.
        if first.is_empty() && rest.is_empty() {
            first = chunk;
        } else {
            if rest.is_empty() {
                rest.reserve(announced.max(first.len() + chunk.len()));
                rest.extend_from_slice(&first);
                first = Bytes::new();
            }
            rest.extend_from_slice(&chunk);
        }
    }
    Ok(if rest.is_empty() {
        first
    } else {
        rest.freeze()
    })
}

fn gone() -> String {
    "the connection broke, or nothing came for too long".to_owned()
}
