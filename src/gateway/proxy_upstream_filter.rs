use pingora_core::connectors::TransportConnector;
use pingora_error::{Error, ErrorType, Result};
use pingora_proxy::Session;

use super::{Ctx, body, refuse, respond, tunnel};
use crate::api::{self, Asked, Services};
use crate::error::{CallError, Refusal};
use crate::filters::Target;
use crate::route::Builtin;

/// Built-ins are answered and WebSockets relayed here. `Ok(false)` is Pingora's word for "done", `Ok(true)` for "to the upstream".
pub(super) async fn run(
    session: &mut Session,
    ctx: &mut Ctx,
    dialer: &TransportConnector,
    services: &Services,
) -> Result<bool> {
    let Some(pass) = &ctx.admitted else {
        return refuse(ctx, Refusal::Internal);
    };
    match pass.target() {
        // Boxed, as below.
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
                // Boxed: its future is large, and would be moved with this one by every request that is no WebSocket.
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
    services: &Services,
) -> Result<()> {
    let mut body = bytes::Bytes::new();
    if let Some(limit) = api::body_limit(builtin, &ctx.snapshot) {
        let settings = &ctx.snapshot.settings;
        let (patience, stall) = (settings.tools.timeout, settings.limits.stall);
        match body::read(session, limit, patience, stall).await {
            Ok(read) => body = read,
            Err(why) => return refuse(ctx, unreadable(why)),
        }
    }
    let Some(pass) = &ctx.admitted else {
        return refuse(ctx, Refusal::Internal);
    };
    let uri = session.req_header().uri.clone();
    let upstream_url = session.req_header().headers.get("x-ati-upstream-url");
    let upstream_url = upstream_url.map(|url| String::from_utf8_lossy(url.as_bytes()).into_owned());
    let asked = Asked {
        request_id: ctx.request_id,
        path: uri.path(),
        query: uri.query(),
        body,
        upstream_url: upstream_url.as_deref(),
    };
    let answer = tokio::select! {
        biased;
        answer = api::answer(builtin, pass, asked, &ctx.snapshot, services) => answer,
        // A call that nobody waits for is given up, and its place with it.
        _ = session.downstream_session.read_body_or_idle(true) => {
            return Err(Error::new_down(ErrorType::ConnectionClosed));
        }
    };
    match answer {
        Ok(reply) => respond::reply(session, ctx, reply).await,
        Err(refusal) => refuse(ctx, refusal),
    }
}

fn unreadable(why: String) -> Refusal {
    Refusal::Call(Box::new(CallError::UnreadableBody(why)))
}
