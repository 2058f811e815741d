use bytes::Bytes;
use pingora_error::{Error, Result};

use super::{Ctx, refuse};
use crate::error::Refusal;

/// A body of unknown length can't be refused before the upstream is dialled. It is cut off at the
/// cap.
pub(super) fn run(body: Option<&Bytes>, ctx: &mut Ctx) -> Result<()> {
    let length = body.map_or(0, |body| body.len());
    match ctx.take_request_bytes(length) {
        Ok(()) => Ok(()),
        // As the caller's fault: otherwise Pingora waits for the answer of an HTTP/2 upstream.
        Err(Refusal::TooLarge) => {
            refuse(ctx, Refusal::TooLarge).map_err(|e: Box<Error>| e.into_down())
        }
        Err(refusal) => refuse(ctx, refusal),
    }
}
