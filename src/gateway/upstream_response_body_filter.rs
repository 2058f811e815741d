use bytes::Bytes;
use pingora_error::{Error, ErrorType, Result};

use super::Ctx;

/// Over the cap the connection is cut: by then the status is long sent.
pub(super) fn run(body: Option<&Bytes>, ctx: &mut Ctx) -> Result<()> {
    ctx.response_bytes += body.map_or(0, |body| body.len() as u64);
    let cap = ctx.forward().and_then(|(route, _)| route.caps.response);
    if cap.is_some_and(|cap| ctx.response_bytes > cap) {
        return Err(Error::new(ErrorType::Custom(
            "response exceeds max_response_bytes",
        )));
    }
    Ok(())
}
