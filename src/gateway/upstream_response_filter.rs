use std::time::Instant;

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderName, Method, Version};
use pingora_error::Result as HookResult;
use pingora_http::ResponseHeader;
use pingora_proxy::Session;

use super::early_request_filter::readable_id;
use super::{Ctx, refuse, respond, scrub};
use crate::egress::Speaks;
use crate::error::{Refusal, UpstreamFault};
use crate::http1::answer::has_no_body;
use crate::{hop_by_hop, request_id};

pub(super) fn run(
    session: &Session,
    response: &mut ResponseHeader,
    ctx: &mut Ctx,
) -> HookResult<()> {
    ctx.dial.answered = Some(Instant::now());
    if let Err(refusal) = ctx.take_answer(response.status.as_u16()) {
        return refuse(ctx, refusal);
    }
    if check_lengths(response).is_err() {
        return refuse(ctx, Refusal::Upstream(UpstreamFault::Protocol));
    }
    if let Some(forward) = ctx.forward() {
        let speaks = match response.version {
            Version::HTTP_2 => Speaks::Http2,
            _ => Speaks::Http1,
        };
        forward.route.upstream.observe_version(speaks);
        ctx.observe(response.status.as_u16());
        scrub::headers(response, forward.attachment())?;
    }
    strip_hop_by_hop(response);
    let is_head = session.req_header().method == Method::HEAD;
    if let Err(fault) = scrub::begin(response, ctx, is_head) {
        return refuse(ctx, Refusal::Upstream(fault));
    }
    record_upstream_id(response, ctx);
    respond::add_common_headers(response, ctx)
}

/// One length, as digits, or none: callers differ in how they read two. An answer without a body
/// has neither length nor coding. (Of a length next to Transfer-Encoding, Pingora keeps the
/// latter.) No transfer coding but `chunked`, once.
fn check_lengths(response: &mut ResponseHeader) -> Result<(), TwoLengths> {
    let mut codings = response.headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        let is_chunked = coding
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"chunked");
        let is_known = is_chunked && codings.next().is_none();
        if !is_known || response.version == Version::HTTP_10 {
            return Err(TwoLengths);
        }
    }
    let status = response.status;
    if has_no_body(status.as_u16()) {
        response.remove_header(&TRANSFER_ENCODING);
    }
    if status.is_informational() || status.as_u16() == 204 {
        response.remove_header(&CONTENT_LENGTH);
        return Ok(());
    }
    let mut lengths = response.headers.get_all(CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else {
        return Ok(());
    };
    let is_number = !length.is_empty() && length.as_bytes().iter().all(u8::is_ascii_digit);
    if is_number && lengths.next().is_none() {
        Ok(())
    } else {
        Err(TwoLengths)
    }
}

struct TwoLengths;

/// Keep the upstream's own id for the access line: its operator asks for it.
pub(super) fn record_upstream_id(response: &ResponseHeader, ctx: &mut Ctx) {
    let id = response.headers.get(request_id::HEADER);
    ctx.upstream_request_id = id.and_then(|id| readable_id(id.as_bytes())).map(Box::from);
}

/// Except for the headers that frame the body, which Pingora reads and rewrites.
pub(super) fn strip_hop_by_hop(response: &mut ResponseHeader) {
    let headers = &response.headers;
    let named: Vec<&str> = hop_by_hop::named(headers).collect();
    let found: Vec<HeaderName> = headers
        .keys()
        .filter(|name| hop_by_hop::stays_here(name.as_str(), &named))
        .cloned()
        .collect();
    for name in &found {
        response.remove_header(name);
    }
}
