//! Streamed answers: each piece is written as soon as it is there.

use futures::StreamExt;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{Method, Version};
use pingora_error::{Error, ErrorType, Result};
use pingora_http::ResponseHeader;
use pingora_proxy::Session;
use tokio::sync::watch;

use super::Ctx;
use super::body::Upload;
use crate::api::ReplyStream;

/// The answer began and can't be completed.
pub(super) const BROKEN_OFF: ErrorType = ErrorType::Custom("broken_off");

/// Ends when the stream ends, when it fails, when the caller leaves, or when the process ends. Only
/// the first is a clean end: HTTP/1.1 without its last chunk and an HTTP/2 reset tell the caller
/// that something is missing. Plain HTTP/1.0 has no such sign, its body ends with the connection.
pub(super) async fn write(
    session: &mut Session,
    ctx: &Ctx,
    mut header: ResponseHeader,
    mut stream: ReplyStream,
    upload: &mut Upload,
    mut abandoned: watch::Receiver<bool>,
) -> Result<()> {
    let request = session.req_header();
    let has_length = header.headers.contains_key(CONTENT_LENGTH);
    let is_head = request.method == Method::HEAD;
    match request.version {
        Version::HTTP_11 if !has_length => header.insert_header(TRANSFER_ENCODING, "chunked")?,
        Version::HTTP_10 if !has_length => session.set_keepalive(None),
        _ => {}
    }
    session
        .write_response_header(Box::new(header), is_head)
        .await
        .map_err(Error::into_down)?;
    if is_head {
        return Ok(());
    }
    loop {
        let piece = tokio::select! {
            biased;
            piece = stream.next() => piece,
            left = upload.pump(session) => return Err(left),
            _ = abandoned.wait_for(|end| *end) => Some(Err("the process ends".into())),
        };
        match piece {
            Some(Ok(bytes)) => {
                let written = session.write_response_body(Some(bytes), false).await;
                written.map_err(Error::into_down)?;
            }
            Some(Err(e)) => {
                tracing::warn!(
                    request_id = %ctx.request_id,
                    error = %e,
                    "a streamed answer broke off"
                );
                return Err(break_off(session, e).await);
            }
            None => {
                let ended = session.write_response_body(None, true).await;
                return ended.map_err(Error::into_down);
            }
        }
    }
}

/// HTTP/1 needs no call: Pingora closes the connection of a failed request.
async fn break_off(session: &mut Session, cause: crate::api::StreamError) -> Box<Error> {
    if session.is_http2() {
        session.shutdown().await;
    }
    Error::because(BROKEN_OFF, "", cause)
}

#[cfg(test)]
mod tests;
