use std::sync::Arc;

use http::HeaderValue;
use pingora_core::connectors::TransportConnector;
use pingora_error::Result;
use pingora_proxy::Session;

use super::body::Upload;
use super::{Ctx, refuse, respond, tunnel};
use crate::api::{self, Services};
use crate::error::Refusal;
use crate::filters::{self, Target};
use crate::route::Builtin;

/// Answers built-ins and relays WebSockets. `Ok(false)` means that the answer is written,
/// `Ok(true)` that the request goes to its upstream.
pub(super) async fn run(
    session: &mut Session,
    ctx: &mut Ctx,
    dialer: &TransportConnector,
    services: &Arc<Services>,
) -> Result<bool> {
    let Some(pass) = &ctx.admitted else {
        return refuse(ctx, Refusal::Internal);
    };
    // Both boxed: their futures are large, and this one is moved for every request to an upstream.
    match pass.target() {
        Target::Public(builtin)
        | Target::Admin(builtin)
        | Target::Builtin {
            endpoint: builtin, ..
        } => {
            Box::pin(answer(*builtin, session, ctx, services)).await?;
            Ok(false)
        }
        Target::Upstream { forward, .. } => {
            if forward.route.websockets && tunnel::is_asked_for(session.req_header()) {
                Box::pin(tunnel::run(session, ctx, dialer)).await
            } else {
                Ok(true)
            }
        }
    }
}

async fn answer(
    builtin: Builtin,
    session: &mut Session,
    ctx: &mut Ctx,
    services: &Arc<Services>,
) -> Result<()> {
    let trail = ctx.call_trail(services);
    let (Some(pass), Some(snapshot)) = (&ctx.admitted, &ctx.snapshot) else {
        return refuse(ctx, Refusal::Internal);
    };
    let stall = snapshot.settings.limits.stall;
    let (mut upload, body) = Upload::new(session, stall);
    let request = api::Request {
        id: ctx.request_id,
        parts: (**session.req_header()).clone(),
        body,
        trail,
    };
    let answered = tokio::select! {
        biased;
        answered = api::answer(builtin, pass, request, snapshot, services) => answered,
        // The call of a caller that left is dropped, so that it no longer counts against a limit.
        left = upload.pump(session) => return Err(left),
    };
    match answered {
        Ok(mut reply) => {
            if snapshot
                .routes
                .serves_files(filters::host(session.req_header()))
            {
                let one = HeaderValue::from_static("1");
                reply.headers.push((api::FILES_HEADER, one));
            }
            let abandoned = services.abandon.subscribe();
            respond::reply(session, ctx, reply, &mut upload, abandoned).await
        }
        Err(refusal) => {
            ctx.body_broken = upload.broken;
            refuse(ctx, refusal)
        }
    }
}
