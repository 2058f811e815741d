use std::time::Duration;

use pingora_error::Result;
use pingora_proxy::Session;

use super::{Ctx, peer, refuse};
use crate::error::Refusal;
use crate::filters::forwarded;
use crate::request_id::{self, RequestId};

/// How long the unread rest of a request body is read and dropped, so that the connection can be
/// used again.
const DRAIN: Duration = Duration::from_secs(5);
/// A trusted proxy's request id that is longer than this isn't recorded.
const LONGEST_ID: usize = 128;

/// The first hook, called when the header is complete: who calls, which id the request has, and
/// whether ati takes one more request.
pub(super) fn run(session: &mut Session, ctx: &mut Ctx) -> Result<()> {
    if let Some(watch) = &ctx.header_watch {
        watch.serving();
    }
    ctx.caller.peer = session
        .client_addr()
        .and_then(|address| address.as_inet().copied());
    let Some(snapshot) = &ctx.snapshot else {
        return refuse(ctx, Refusal::Internal);
    };
    let settings = &snapshot.settings;
    let trusted = &settings.trusted_proxies;
    if !trusted.is_empty() && trusted.trusts(peer(session.client_addr())) {
        let headers = &session.req_header().headers;
        ctx.caller.behind_proxy = true;
        ctx.caller.address = forwarded::client(headers, trusted);
        if let Some(text) = headers.get(request_id::HEADER).and_then(readable_id) {
            match RequestId::parse(text) {
                Some(id) => ctx.request_id = id,
                None => ctx.caller.request_id = Some(text.into()),
            }
        }
    }
    let limits = &settings.limits;
    session.set_total_drain_timeout(Some(DRAIN));
    session.set_read_timeout(Some(limits.stall));
    session.set_write_timeout(Some(limits.stall));
    if ctx.in_flight.count > limits.requests_in_flight {
        return refuse(ctx, Refusal::Overloaded);
    }
    Ok(())
}

/// A request id that another program made, if it is fit for a log line.
pub(super) fn readable_id(value: &http::HeaderValue) -> Option<&str> {
    let bytes = value.as_bytes();
    let readable =
        (1..=LONGEST_ID).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
    value.to_str().ok().filter(|_| readable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn only_short_ids_of_visible_ascii_are_recorded() {
        let readable = |bytes: &[u8]| {
            let value = HeaderValue::from_bytes(bytes).unwrap();
            readable_id(&value).map(str::to_owned)
        };
        assert_eq!(readable(b"req-1/{a}").as_deref(), Some("req-1/{a}"));
        assert!(readable(&[b'a'; 128]).is_some());
        for other in [&b""[..], &[b'a'; 129], b"a b", "\u{fc}".as_bytes(), b"a\tb"] {
            assert_eq!(readable(other), None, "{other:?}");
        }
    }
}
