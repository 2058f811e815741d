use std::time::Instant;

use bytes::Bytes;
use pingora_error::Result;

use super::{Ctx, refuse, scrub};
use crate::error::{Refusal, UpstreamFault};

/// A body over the cap: the caller gets 502 if nothing was sent yet, otherwise a cut connection.
pub(super) fn run(body: &mut Option<Bytes>, end: bool, ctx: &mut Ctx) -> Result<()> {
    if end {
        ctx.dial.answered = Some(Instant::now());
    }
    ctx.traffic.response += body.as_ref().map_or(0, |body| body.len() as u64);
    let cap = ctx
        .forward()
        .and_then(|forward| forward.route.caps.response);
    if cap.is_some_and(|cap| ctx.traffic.response > cap) {
        return refuse(ctx, Refusal::Upstream(UpstreamFault::TooLarge));
    }
    super::check_total_time(ctx)?;
    scrub::body(body, end, ctx);
    Ok(())
}
