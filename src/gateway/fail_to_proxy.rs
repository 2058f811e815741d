//! The only place that writes an error response.

use std::time::Duration;

use pingora_error::{Error, ErrorSource, ErrorType};
use pingora_proxy::{FailToProxy, Session};

use super::{Ctx, respond};
use crate::error::{AfterRefusal, Refusal, UpstreamFault};
use crate::telemetry::metrics::METRICS;

/// A refused caller that is still sending gets this much time and attention, so that it reads the answer and not a reset.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 1 << 20;

pub(super) async fn run(session: &mut Session, e: &Error, ctx: &mut Ctx) -> FailToProxy {
    let gone = FailToProxy {
        error_code: 0,
        can_reuse_downstream: false,
    };
    if ctx.refusal.is_none() && is_gone(e) {
        return gone;
    }
    let refusal = ctx
        .refusal
        .get_or_insert_with(|| match e.esource() {
            ErrorSource::Upstream => Refusal::Upstream(fault(e)),
            ErrorSource::Downstream => Refusal::BadRequest,
            ErrorSource::Internal | ErrorSource::Unset => Refusal::Internal,
        })
        .clone();
    METRICS.refused(refusal.label());
    if let (Refusal::Upstream(fault), Some(forward)) = (&refusal, ctx.forward()) {
        METRICS.upstream_failed(&forward.route.name, fault.kind());
    }
    if session.response_written().is_some() {
        return gone;
    }
    let had_body = !session.is_body_empty();
    let connection = refusal.connection();
    let closes = had_body || connection != AfterRefusal::KeepOpen;
    if closes {
        session.set_keepalive(None);
    }
    if respond::refusal(session, ctx, &refusal).await.is_err() {
        return gone;
    }
    if had_body && connection != AfterRefusal::CloseUnread {
        linger(session).await;
    }
    FailToProxy {
        error_code: refusal.status().as_u16(),
        can_reuse_downstream: !closes,
    }
}

/// What an upstream's failure was, by Pingora's type of it.
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

/// Whether the caller left, so that there is nobody to answer.
fn is_gone(e: &Error) -> bool {
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
    if session
        .req_header()
        .headers
        .contains_key(http::header::EXPECT)
    {
        return; // it waits for a 100 that won't come, and has sent nothing
    }
    let read_away = async {
        let mut read = 0;
        while let Ok(Some(chunk)) = session.read_request_body().await {
            read += chunk.len();
            if read > LINGER_BYTES {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, read_away).await;
}
