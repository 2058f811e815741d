use std::time::Duration;

use http::HeaderMap;
use pingora_core::protocols::l4::socket::SocketAddr;
use pingora_error::Result as HookResult;
use pingora_proxy::Session;

use super::{Ctx, peer, refuse, refuse_because};
use crate::error::Refusal;
use crate::filters::forwarded;
use crate::request_id::{self, RequestId};
use crate::telemetry::otel::RequestTrace;

/// How long the unread rest of a request body is read and dropped, so that the connection can be
/// used again.
const DRAIN: Duration = Duration::from_secs(5);
/// A trusted proxy's request id that is longer than this isn't recorded.
const LONGEST_ID: usize = 128;

/// The first hook, called when the header is complete: who calls, which id the request has, and
/// whether ati takes one more request.
pub(super) fn run(session: &mut Session, ctx: &mut Ctx) -> HookResult<()> {
    if let Some(watch) = &ctx.header_watch {
        watch.serving();
    }
    let Some(snapshot) = &ctx.snapshot else {
        return refuse(ctx, Refusal::Internal);
    };
    let stall = snapshot.settings.limits.stall;
    session.set_total_drain_timeout(Some(DRAIN));
    session.set_read_timeout(Some(stall));
    session.set_write_timeout(Some(stall));
    if ctx.is_begun {
        return match (ctx.refusal.take(), ctx.cause.take()) {
            (None, _) => Ok(()),
            (Some(refusal), None) => refuse(ctx, refusal),
            (Some(refusal), Some(cause)) => refuse_because(ctx, refusal, cause),
        };
    }
    let begun = begin(ctx, session.client_addr(), &session.req_header().headers);
    match begun {
        Ok(()) => Ok(()),
        Err(refusal) => refuse(ctx, refusal),
    }
}

/// What is known of a request before it is looked at: its caller and its id.
pub(super) fn begin(
    ctx: &mut Ctx,
    address: Option<&SocketAddr>,
    headers: &HeaderMap,
) -> Result<(), Refusal> {
    ctx.trace = RequestTrace::begin(headers);
    ctx.caller.peer = address.and_then(|address| address.as_inet().copied());
    let Some(snapshot) = &ctx.snapshot else {
        return Err(Refusal::Internal);
    };
    let settings = &snapshot.settings;
    let trusted = &settings.trusted_proxies;
    if !trusted.is_empty() && trusted.trusts(peer(address)) {
        ctx.caller.behind_proxy = true;
        ctx.caller.address = forwarded::client(headers, trusted);
        let id = headers.get(request_id::HEADER);
        if let Some(text) = id.and_then(|id| readable_id(id.as_bytes())) {
            match RequestId::parse(text) {
                Some(id) => ctx.request_id = id,
                None => ctx.caller.request_id = Some(text.into()),
            }
        }
    }
    if ctx.in_flight.count > settings.limits.requests_in_flight {
        return Err(Refusal::Overloaded);
    }
    Ok(())
}

/// A request id that another program made, if it is fit for a log line.
pub(super) fn readable_id(bytes: &[u8]) -> Option<&str> {
    let readable =
        (1..=LONGEST_ID).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(bytes).ok().filter(|_| readable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_ids_of_visible_ascii_are_recorded() {
        let readable = |bytes: &[u8]| readable_id(bytes).map(str::to_owned);
        assert_eq!(readable(b"req-1/{a}").as_deref(), Some("req-1/{a}"));
        assert!(readable(&[b'a'; 128]).is_some());
        for other in [&b""[..], &[b'a'; 129], b"a b", "\u{fc}".as_bytes(), b"a\tb"] {
            assert_eq!(readable(other), None, "{other:?}");
        }
    }
}
