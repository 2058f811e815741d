//! The only place that writes an error response.

use std::time::Duration;

use http::header::{CONTENT_LENGTH, EXPECT};
use pingora_error::{Error, ErrorSource, ErrorType};
use pingora_http::ResponseHeader;
use pingora_proxy::{FailToProxy, Session};

use super::{Ctx, respond, stream};
use crate::error::{AfterRefusal, Refusal, UpstreamFault};
use crate::telemetry::metrics::METRICS;
use crate::telemetry::otel;

/// How long, and how many bytes of, a refused caller's body are read and dropped: a connection that
/// closes with bytes unread is reset, and the caller would not see the answer.
pub(super) const LINGER: Duration = Duration::from_secs(2);
pub(super) const LINGER_BYTES: usize = 1 << 20;
/// How long, and how many bytes of, a refused caller's body are read before the answer, so that the
/// connection can be used again. Short: the answer waits for it, and most bodies are already there.
pub(super) const FINISH: Duration = Duration::from_millis(100);
pub(super) const FINISH_BYTES: usize = 64 << 10;

pub(super) async fn run(session: &mut Session, e: &Error, ctx: &mut Ctx) -> FailToProxy {
    let unanswered = FailToProxy {
        error_code: 0,
        can_reuse_downstream: false,
    };
    let watch = ctx.header_watch.as_ref();
    if ctx.refusal.is_none() && watch.is_some_and(|watch| watch.has_bad_chunk()) {
        ctx.refusal = Some(Refusal::BadRequest);
    }
    if ctx.refusal.is_none() && (has_left(e) || *e.etype() == stream::BROKEN_OFF) {
        return unanswered;
    }
    let refusal = ctx
        .refusal
        .get_or_insert_with(|| match e.esource() {
            ErrorSource::Upstream => Refusal::Upstream(fault(e)),
            ErrorSource::Downstream => Refusal::BadRequest,
            ErrorSource::Internal | ErrorSource::Unset => Refusal::Internal,
        })
        .clone();
    count(&refusal, ctx);
    if refusal == Refusal::Internal {
        let cause = super::cause(e);
        let (id, kind) = (ctx.request_id, e.etype().as_str());
        tracing::error!(request_id = %id, kind, error = cause, "a request failed inside of ati");
    }
    // An interim response, such as the 100 that asks for a body, is no answer.
    let begun = |header: &ResponseHeader| !header.status.is_informational() || header.status == 101;
    if session.response_written().is_some_and(begun) {
        return unanswered;
    }
    let connection = refusal.connection();
    let keeps = connection == AfterRefusal::KeepOpen && finish_body(session, ctx).await;
    if !keeps {
        session.set_keepalive(None);
    }
    if respond::refusal(session, ctx, &refusal).await.is_err() {
        return unanswered;
    }
    if !keeps && connection != AfterRefusal::CloseUnread {
        linger(session).await;
    }
    FailToProxy {
        error_code: refusal.status().as_u16(),
        can_reuse_downstream: keeps,
    }
}

/// Counts a refusal, or an upstream's failure.
pub(super) fn count(refusal: &Refusal, ctx: &Ctx) {
    if refusal.upstream_failure().is_none() {
        METRICS.refused(refusal.label());
    }
    if let (Refusal::Upstream(fault), Some(forward)) = (refusal, ctx.forward()) {
        METRICS.upstream_failed(&forward.route.name, fault.kind());
    }
    if let Some(instruments) = otel::export().and_then(|export| export.instruments.as_ref()) {
        match (refusal, &ctx.route) {
            (Refusal::Upstream(fault), Some(route)) => {
                instruments.upstream_failed(route.metrics().name(), fault.phase());
            }
            (Refusal::PathDenied, Some(route)) => instruments.denied(route.metrics().name()),
            _ => {}
        }
    }
}

/// What Pingora's type of an upstream's failure means.
pub(super) fn fault(e: &Error) -> UpstreamFault {
    match e.etype() {
        ErrorType::ConnectTimedout => UpstreamFault::ConnectTimeout,
        ErrorType::TLSHandshakeTimedout => UpstreamFault::ConnectTimeout,
        ErrorType::TLSHandshakeFailure | ErrorType::InvalidCert | ErrorType::HandshakeError => {
            UpstreamFault::Tls
        }
        ErrorType::ReadTimedout | ErrorType::WriteTimedout => UpstreamFault::Timeout,
        ErrorType::ConnectRefused
        | ErrorType::ConnectNoRoute
        | ErrorType::ConnectError
        | ErrorType::BindError
        | ErrorType::SocketError
        | ErrorType::InternalError => UpstreamFault::Connect,
        ErrorType::InvalidHTTPHeader
        | ErrorType::H1Error
        | ErrorType::H2Error
        | ErrorType::InvalidH2
        | ErrorType::H2Downgrade => UpstreamFault::Protocol,
        _ => UpstreamFault::Closed,
    }
}

/// Whether the caller left before its answer.
fn has_left(e: &Error) -> bool {
    *e.esource() == ErrorSource::Downstream
        && matches!(
            e.etype(),
            ErrorType::WriteError
                | ErrorType::ReadError
                | ErrorType::ConnectionClosed
                | ErrorType::WriteTimedout
                | ErrorType::ReadTimedout
        )
}

/// Whether the request's body was read to its end, so that what follows on the connection is
/// another request. Reads the rest of a short one.
async fn finish_body(session: &mut Session, ctx: &Ctx) -> bool {
    if ctx.body_broken {
        return false;
    }
    if session.is_body_done() {
        return true;
    }
    // Before admission the framing is unchecked: where the body ends may be ambiguous.
    if ctx.route.is_none() || session.as_http1().is_none() {
        return false;
    }
    let headers = &session.req_header().headers;
    let length = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > FINISH_BYTES) {
        return false;
    }
    discard(session, FINISH, FINISH_BYTES).await
}

/// Reads on for a while, so that the caller gets its answer before the connection closes.
async fn linger(session: &mut Session) {
    discard(session, LINGER, LINGER_BYTES).await;
}

/// Whether the body came to its end within the limits.
async fn discard(session: &mut Session, patience: Duration, most: usize) -> bool {
    // A caller that waits for a 100, which won't come, has sent nothing.
    if session.req_header().headers.contains_key(EXPECT) {
        return false;
    }
    let read = async {
        let mut length = 0;
        loop {
            match session.read_request_body().await {
                Ok(None) => return true,
                Ok(Some(chunk)) => length += chunk.len(),
                Err(_) => return false,
            }
            if length > most {
                return false;
            }
        }
    };
    tokio::time::timeout(patience, read).await.unwrap_or(false)
}
