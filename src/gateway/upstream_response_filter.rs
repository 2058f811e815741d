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
    strip(response);
    respond::add_signature_status(response, ctx)
}

pub(super) fn strip(response: &mut ResponseHeader) {
    if response.headers.contains_key(CONNECTION) {
        let named: Vec<String> = response
            .headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(|name| name.trim().to_ascii_lowercase())
            .filter(|name| {
                !matches!(
                    name.as_str(),
                    "" | "close" | "transfer-encoding" | "content-length"
                )
            })
            .collect();
        for name in &named {
            response.remove_header(name.as_str());
        }
        response.remove_header(&CONNECTION);
    }
    for name in [
        "keep-alive",
        "proxy-connection",
        "proxy-authenticate",
        "upgrade",
    ] {
        response.remove_header(name);
    }
}
