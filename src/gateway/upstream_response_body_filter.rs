use std::time::Instant;

use bytes::Bytes;
use pingora_error::Result;

use super::{Ctx, refuse, scrub};

/// A body over the cap: the caller gets 502 if nothing was sent yet, otherwise a cut connection.
pub(super) fn run(body: &mut Option<Bytes>, end: bool, ctx: &mut Ctx) -> Result<()> {
    if end {
        ctx.dial.answered = Some(Instant::now());
    }
    let length = body.as_ref().map_or(0, |body| body.len());
    if let Err(refusal) = ctx.take_answer_bytes(length) {
        return refuse(ctx, refusal);
    }
    scrub::body(body, end, ctx);
    Ok(())
}
