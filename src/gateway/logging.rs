use pingora_error::Error;
use pingora_proxy::Session;

use super::Ctx;
use crate::telemetry::record;

/// Once per request, whatever became of it: the metrics and the access line. The query is never logged: it may carry a key.
pub(super) fn run(session: &Session, e: Option<&Error>, ctx: &Ctx) {
    let request = session.req_header();
    let status = session
        .response_written()
        .map_or(0, |response| response.status.as_u16());
    let took = ctx.started.elapsed();
    // Refused before it had a route: overload.
    let unrouted;
    let route = match ctx.route() {
        Some(route) => route,
        None => {
            unrouted = ctx
                .snapshot
                .routes
                .metrics(crate::route::Match::Nothing)
                .clone();
            &unrouted
        }
    };
    route.observe(&request.method, status, took.as_secs_f64());

    if !ctx.log.access || !tracing::enabled!(target: "ati::access", tracing::Level::INFO) {
        return;
    }
    let (bytes_in, bytes_out) = ctx.tunnelled.unwrap_or((
        session.body_bytes_read() as u64,
        session.body_bytes_sent() as u64,
    ));
    record::emit("request", |record| {
        record
            .str("method", request.method.as_str())
            .str(
                "path",
                crate::text::clip(request.uri.path(), record::LONGEST_PATH),
            )
            .num("status", status.into())
            .millis("ms", took)
            .str("route", route.name())
            .num("bytes_in", bytes_in)
            .num("bytes_out", bytes_out);
        if let Some(peer) = ctx.peer {
            record.str("peer", &peer.to_string());
        }
        if let Some(client) = ctx.client {
            record.str("client", &client.to_string());
        }
        if let Some(identity) = &ctx.trail.subject {
            record.str("sub", &identity.subject);
        }
        match (&ctx.refusal, e) {
            (Some(refusal), _) => {
                record.str("refused", refusal.label());
            }
            (None, Some(e)) => {
                record.str("error", e.etype().as_str());
            }
            (None, None) => {}
        }
        record.str("target", "ati::access");
    });
}
