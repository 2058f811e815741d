use std::time::Duration;

use pingora_error::Result;
use pingora_proxy::Session;

use super::{Ctx, peer, refuse};
use crate::error::Refusal;
use crate::filters::forwarded;

/// An unread request body is read away before the connection is used again, but not for longer than this.
const DRAIN: Duration = Duration::from_secs(5);

/// First of all: the header is here, and whether there is room for one more.
pub(super) fn run(session: &mut Session, ctx: &mut Ctx) -> Result<()> {
    if let Some(connection) = &ctx.connection {
        connection.serving();
    }
    ctx.peer = session
        .client_addr()
        .and_then(|address| address.as_inet().copied());
    let settings = &ctx.snapshot.settings;
    let trusted = &settings.trusted_proxies;
    if !trusted.is_empty() && trusted.trusts(peer(session.client_addr())) {
        ctx.from_proxy = true;
        ctx.client = forwarded::client(&session.req_header().headers, trusted);
    }
    let limits = &settings.limits;
    session.set_total_drain_timeout(Some(DRAIN));
    session.set_read_timeout(Some(limits.stall));
    session.set_write_timeout(Some(limits.stall));
    if ctx.in_flight > limits.requests_in_flight {
        return refuse(ctx, Refusal::Overloaded);
    }
    Ok(())
}
