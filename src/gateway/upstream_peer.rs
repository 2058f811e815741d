use std::time::Instant;

use http::Version;
use pingora_core::upstreams::peer::{ALPN, HttpPeer};
use pingora_error::Result;
use pingora_proxy::Session;

use super::{Ctx, refuse};
use crate::egress::{Attempt, peer};
use crate::error::{Refusal, UpstreamFault};
use crate::filters::Forward;

/// Runs once per attempt. The next attempt takes the next address, and all of them together have connect_timeout.
pub(super) async fn run(session: &Session, ctx: &mut Ctx) -> Result<Box<HttpPeer>> {
    let started = *ctx.connecting.get_or_insert_with(Instant::now);
    let Some(Forward { route, .. }) = ctx.forward() else {
        return refuse(ctx, Refusal::Internal);
    };
    let addresses = match &ctx.addresses {
        Some(addresses) => addresses.clone(),
        None => match route.upstream.addresses(&ctx.snapshot.resolver).await {
            Ok(addresses) => addresses,
            Err(_) => return refuse(ctx, Refusal::Upstream(UpstreamFault::Unresolved)),
        },
    };
    let address = addresses[ctx.attempt % addresses.len()];
    let mut peer = peer(&route.upstream, address, Attempt::Request);
    if session.req_header().version == Version::HTTP_10 {
        // From HTTP/2, Pingora would make chunks of an answer, which this caller can't read.
        peer.options.alpn = ALPN::H1;
    }
    if ctx.attempt > 0 {
        let left = route
            .upstream
            .timeouts
            .connect
            .saturating_sub(started.elapsed());
        if left.is_zero() {
            return refuse(ctx, Refusal::Upstream(UpstreamFault::ConnectTimeout));
        }
        peer.options.connection_timeout = Some(left);
        peer.options.total_connection_timeout = Some(left);
    }
    ctx.addresses = Some(addresses);
    Ok(Box::new(peer))
}
