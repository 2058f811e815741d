//! The only place that writes an error response.

use std::time::Duration;

use pingora_error::{Error, ErrorSource, ErrorType};
use pingora_proxy::{FailToProxy, Session};

use super::{Ctx, respond, stream};
use crate::error::{AfterRefusal, Refusal, UpstreamFault};
use crate::telemetry::metrics::METRICS;

/// How long, and how many bytes of, a refused caller's body are read and dropped: a connection that
/// closes with bytes unread is reset, and the caller would not see the answer.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 1 << 20;

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
    if refusal.upstream_failure().is_none() {
        METRICS.refused(refusal.label());
    }
    if let (Refusal::Upstream(fault), Some(forward)) = (&refusal, ctx.forward()) {
        METRICS.upstream_failed(&forward.route.name, fault.kind());
    }
    if refusal == Refusal::Internal {
        let cause = super::cause(e);
        let (id, kind) = (ctx.request_id, e.etype().as_str());
        tracing::error!(request_id = %id, kind, error = cause, "a request failed inside of ati");
    }
    if session.response_written().is_some() {
        return unanswered;
    }
    let had_body = !session.is_body_empty();
    let connection = refusal.connection();
    let closes = had_body || connection != AfterRefusal::KeepOpen;
    if closes {
        session.set_keepalive(None);
    }
    if respond::refusal(session, ctx, &refusal).await.is_err() {
        return unanswered;
    }
    if had_body && connection != AfterRefusal::CloseUnread {
        linger(session).await;
    }
    FailToProxy {
        error_code: refusal.status().as_u16(),
        can_reuse_downstream: !closes,
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

async fn linger(session: &mut Session) {
    // A caller that waits for a 100, which won't come, has sent nothing.
    let headers = &session.req_header().headers;
    if headers.contains_key(http::header::EXPECT) {
        return;
    }
    let read = async {
        let mut length = 0;
        while let Ok(Some(chunk)) = session.read_request_body().await {
            length += chunk.len();
            if length > LINGER_BYTES {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, read).await;
}
