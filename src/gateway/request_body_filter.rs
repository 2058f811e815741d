use bytes::Bytes;
use pingora_error::{Error, Result};

use super::{Ctx, refuse};
use crate::error::Refusal;

/// A body of unknown length can't be refused before the upstream is dialled. It is cut off at the
/// cap.
pub(super) fn run(body: Option<&Bytes>, ctx: &mut Ctx) -> Result<()> {
    ctx.traffic.request += body.map_or(0, |body| body.len() as u64);
    let cap = ctx.forward().and_then(|forward| forward.route.caps.request);
    if cap.is_some_and(|cap| ctx.traffic.request > cap) {
        // As the caller's fault: otherwise Pingora waits for the answer of an HTTP/2 upstream.
        return refuse(ctx, Refusal::TooLarge).map_err(|e: Box<Error>| e.into_down());
    }
    super::check_total_time(ctx)
}
