use pingora_core::upstreams::peer::HttpPeer;
use pingora_error::Result;

use super::{Ctx, refuse};
use crate::egress::{Attempt, peer};
use crate::error::{Refusal, UpstreamFault};

/// Runs once per attempt; the next attempt takes the next address.
pub(super) async fn run(ctx: &mut Ctx) -> Result<Box<HttpPeer>> {
    let Some((route, _)) = ctx.forward() else {
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
    let peer = peer(&route.upstream, address, Attempt::Request);
    ctx.addresses = Some(addresses);
    Ok(Box::new(peer))
}
