use pingora_error::Error;

use super::Ctx;

/// Nothing was sent yet, so the next address may be tried, whatever the method.
pub(super) fn run(mut e: Box<Error>, ctx: &mut Ctx) -> Box<Error> {
    ctx.dial.attempt += 1;
    let more = ctx
        .dial
        .addresses
        .as_ref()
        .is_some_and(|addresses| ctx.dial.attempt < addresses.len());
    e.set_retry(more);
    e
}
