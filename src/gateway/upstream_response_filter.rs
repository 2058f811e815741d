use http::HeaderName;
use http::header::CONNECTION;
use pingora_error::Result;
use pingora_http::ResponseHeader;

use super::{Ctx, refuse, respond};
use crate::error::{Refusal, UpstreamFault};

/// What concerns only the connection to the upstream stays here. Framing is Pingora's.
pub(super) fn run(response: &mut ResponseHeader, ctx: &mut Ctx) -> Result<()> {
    // Nobody asked for it: upgrades never come this way.
    if response.status.as_u16() == 101 {
        return refuse(ctx, Refusal::Upstream(UpstreamFault::Protocol));
    }
    if let Some(forward) = ctx.forward()
        && !forward.forwards_authorization
    {
        forward.route.attachment.observe(response.status.as_u16());
    }
    strip(response);
    respond::add_signature_status(response, ctx)
}

pub(super) fn strip(response: &mut ResponseHeader) {
    let named: Vec<String> = response
        .headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        // What nearly every upstream says, and no header's name.
        .filter(|value| !matches!(*value, "keep-alive" | "close"))
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| !matches!(name.as_str(), "transfer-encoding" | "content-length"))
        .collect();
    let is_hop_by_hop = |name: &str| {
        let known = [
            "connection",
            "keep-alive",
            "proxy-connection",
            "proxy-authenticate",
            "upgrade",
        ];
        known.contains(&name) || named.iter().any(|other| other == name)
    };
    let found: Vec<HeaderName> = response
        .headers
        .keys()
        .filter(|name| is_hop_by_hop(name.as_str()))
        .cloned()
        .collect();
    for name in &found {
        response.remove_header(name);
    }
}
