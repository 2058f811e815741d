use pingora_error::Result;
use pingora_proxy::Session;

use super::{Ctx, refuse, respond};
use crate::api;
use crate::error::Refusal;

/// Built-ins are answered here. `Ok(false)` is Pingora's word for "answered".
pub(super) async fn run(session: &mut Session, ctx: &mut Ctx) -> Result<bool> {
    let Some(pass) = &ctx.admitted else {
        return refuse(ctx, Refusal::Internal);
    };
    match api::answer(pass, &ctx.snapshot) {
        Ok(reply) => {
            respond::reply(session, ctx, reply).await?;
            Ok(false)
        }
        Err(refusal) => refuse(ctx, refusal),
    }
}
