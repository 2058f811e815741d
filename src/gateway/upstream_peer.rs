use std::time::Instant;

use http::Version;
use pingora_core::upstreams::peer::{ALPN, HttpPeer};
use pingora_error::Result;
use pingora_proxy::Session;

use super::{Ctx, refuse};
use crate::egress::{Attempt, Unresolved, peer};
use crate::error::{Refusal, UpstreamFault};
use crate::filters::Forward;

/// Runs once per attempt. Each attempt takes the next address; together they have connect_timeout.
pub(super) async fn run(session: &Session, ctx: &mut Ctx) -> Result<Box<HttpPeer>> {
    let since = *ctx.dial.since.get_or_insert_with(Instant::now);
    ctx.dial.began.get_or_insert(since);
    let (Some(Forward { route, .. }), Some(snapshot)) = (ctx.forward(), &ctx.snapshot) else {
        return refuse(ctx, Refusal::Internal);
    };
    let addresses = match &ctx.dial.addresses {
        Some(addresses) => addresses.clone(),
        None => match route.upstream.addresses(&snapshot.resolver, since).await {
            Ok(addresses) => addresses,
            Err(Unresolved) => {
                ctx.dial.attempt();
                return refuse(ctx, Refusal::Upstream(UpstreamFault::Unresolved));
            }
        },
    };
    let address = addresses[ctx.dial.attempt % addresses.len()];
    let mut peer = peer(&route.upstream, address, Attempt::Request);
    if session.req_header().version == Version::HTTP_10 {
        // Pingora would write an HTTP/2 upstream's answer in chunks, which HTTP/1.0 doesn't have.
        peer.options.alpn = ALPN::H1;
    }
    if ctx.dial.attempt > 0 {
        let left = route
            .upstream
            .timeouts
            .connect
            .saturating_sub(since.elapsed());
        if left.is_zero() {
            return refuse(ctx, Refusal::Upstream(UpstreamFault::ConnectTimeout));
        }
        peer.options.connection_timeout = Some(left);
        peer.options.total_connection_timeout = Some(left);
    }
    if let Some(left) = ctx.time_left() {
        for timeout in [
            &mut peer.options.connection_timeout,
            &mut peer.options.total_connection_timeout,
            &mut peer.options.read_timeout,
            &mut peer.options.write_timeout,
        ] {
            *timeout = timeout.map(|limit| limit.min(left));
        }
    }
    ctx.dial.addresses = Some(addresses);
    ctx.dial.attempt();
    Ok(Box::new(peer))
}
