use http::{HeaderName, Method};
use pingora_error::Result;
use pingora_http::ResponseHeader;
use pingora_proxy::Session;

use super::early_request_filter::readable_id;
use super::{Ctx, refuse, respond, scrub};
use crate::error::{Refusal, UpstreamFault};
use crate::{hop_by_hop, request_id};

pub(super) fn run(session: &Session, response: &mut ResponseHeader, ctx: &mut Ctx) -> Result<()> {
    // ati asks for no upgrade here: WebSockets are relayed in proxy_upstream_filter.
    if response.status.as_u16() == 101 {
        return refuse(ctx, Refusal::Upstream(UpstreamFault::Protocol));
    }
    if let Some(forward) = ctx.forward() {
        if !forward.forwards_authorization {
            forward.route.attachment.observe(response.status.as_u16());
        }
        scrub::headers(response, &forward.route.attachment)?;
    }
    strip_hop_by_hop(response);
    let is_head = session.req_header().method == Method::HEAD;
    if let Err(fault) = scrub::begin(response, ctx, is_head) {
        return refuse(ctx, Refusal::Upstream(fault));
    }
    record_upstream_id(response, ctx);
    respond::add_common_headers(response, ctx)
}

/// Keep the upstream's own id for the access line: its operator asks for it.
pub(super) fn record_upstream_id(response: &ResponseHeader, ctx: &mut Ctx) {
    let id = response.headers.get(request_id::HEADER);
    ctx.upstream_request_id = id.and_then(readable_id).map(Box::from);
}

/// Except for the headers that frame the body, which Pingora reads and rewrites.
pub(super) fn strip_hop_by_hop(response: &mut ResponseHeader) {
    let headers = &response.headers;
    let named: Vec<&str> = hop_by_hop::named(headers).collect();
    let stays_here = |name: &str| {
        let frames_body = matches!(name, "content-length" | "transfer-encoding" | "trailer");
        let is_named = || named.iter().any(|other| other.eq_ignore_ascii_case(name));
        !frames_body && (hop_by_hop::contains(name) || is_named())
    };
    let found: Vec<HeaderName> = headers
        .keys()
        .filter(|name| stays_here(name.as_str()))
        .cloned()
        .collect();
    for name in &found {
        response.remove_header(name);
    }
}
