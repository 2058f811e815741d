use pingora_core::connectors::TransportConnector;
use pingora_error::Result;
use pingora_proxy::Session;

use super::{Ctx, refuse, respond, tunnel};
use crate::api;
use crate::error::Refusal;
use crate::filters::Target;

/// Built-ins are answered and WebSockets relayed here. `Ok(false)` is Pingora's word for "done", `Ok(true)` for "to the upstream".
pub(super) async fn run(
    session: &mut Session,
    ctx: &mut Ctx,
    dialer: &TransportConnector,
) -> Result<bool> {
    let Some(pass) = &ctx.admitted else {
        return refuse(ctx, Refusal::Internal);
    };
    match pass.target() {
        Target::Builtin(builtin) => match api::answer(*builtin, pass, &ctx.snapshot) {
            Ok(reply) => {
                respond::reply(session, ctx, reply).await?;
                Ok(false)
            }
            Err(refusal) => refuse(ctx, refusal),
        },
        Target::Upstream(forward) => {
            let route = ctx.snapshot.routes.route(forward.route);
            if route.websockets && tunnel::is_asked_for(session.req_header()) {
                // Boxed: its future is large, and would be moved with this one by every request that is no WebSocket.
                Box::pin(tunnel::run(session, ctx, dialer)).await
            } else {
                Ok(true)
            }
        }
    }
}
