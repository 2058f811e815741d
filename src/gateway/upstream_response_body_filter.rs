use bytes::Bytes;
use pingora_error::Result;

use super::{Ctx, refuse};
use crate::error::{Refusal, UpstreamFault};

/// Over the cap the caller gets 502 where nothing was sent yet, and a cut connection where the answer had begun.
pub(super) fn run(body: Option<&Bytes>, ctx: &mut Ctx) -> Result<()> {
    ctx.response_bytes += body.map_or(0, |body| body.len() as u64);
    let cap = ctx
        .forward()
        .and_then(|forward| forward.route.caps.response);
    if cap.is_some_and(|cap| ctx.response_bytes > cap) {
        return refuse(ctx, Refusal::Upstream(UpstreamFault::TooLarge));
    }
    Ok(())
}
