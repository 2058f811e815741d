use std::net::SocketAddr;

use http::Method;
use pingora_error::Error;
use pingora_proxy::Session;

use super::Ctx;
use crate::error::Refusal;
use crate::route::Match;
use crate::telemetry::metrics::METRICS;
use crate::telemetry::record::{self, Record};
use crate::text;

/// A cause comes from a library or an upstream, so its length is unknown.
const LONGEST_CAUSE: usize = 200;

/// The metrics and the access line, once for each request, however it ended. The query is never
/// logged: it may carry a key.
pub(super) fn run(session: &Session, e: Option<&Error>, ctx: &Ctx) {
    let request = session.req_header();
    let status = session
        .response_written()
        .map_or(0, |response| response.status.as_u16());
    let took = ctx.started.elapsed();
    let route = match (&ctx.route, &ctx.snapshot) {
        (Some(route), _) => route.metrics(),
        // Refused before it had a route: ati has as many requests as it may.
        (None, Some(snapshot)) => snapshot.routes.metrics(Match::Nothing),
        // Only a tunnel gives its snapshot back, and it has a route.
        (None, None) => return,
    };
    route.observe(&request.method, status, took.as_secs_f64());

    if !ctx.log.access || !tracing::enabled!(target: "ati::access", tracing::Level::INFO) {
        return;
    }
    let (bytes_in, bytes_out) = match ctx.traffic.tunnel {
        Some(tunnel) => (tunnel.from_caller, tunnel.to_caller),
        None => (
            session.body_bytes_read() as u64,
            session.body_bytes_sent() as u64,
        ),
    };
    record::emit("request", |record| {
        record
            .str("request_id", ctx.request_id.text().as_str())
            .str("method", request.method.as_str())
            .str("path", text::clip(request.uri.path(), record::LONGEST_PATH))
            .num("status", status.into())
            .millis("ms", took)
            .str("route", route.name())
            .num("bytes_in", bytes_in)
            .num("bytes_out", bytes_out);
        add_ends(record, ctx);
        add_outcome(record, ctx.refusal.as_ref(), e);
        record.str("target", "ati::access");
    });
}

/// The metrics and the access line of what never became a request: Pingora couldn't parse its
/// header, or the header was too large. Its method and path aren't known.
pub fn record_unparsed(refusal: &Refusal, peer: Option<SocketAddr>) {
    METRICS.refused(refusal.label());
    let status = refusal.status().as_u16();
    // A method that no counter knows is counted as "other".
    let unknown = Method::from_bytes(b"-").unwrap_or_default();
    METRICS.route("unmatched").observe(&unknown, status, 0.0);
    record::emit("request", |record| {
        record
            .num("status", status.into())
            .str("route", "unmatched");
        if let Some(peer) = peer {
            record.str("peer", &peer.to_string());
        }
        record
            .str("refused", refusal.label())
            .str("target", "ati::access");
    });
}

/// Who asked, and under which ids the other programs on the way know the request.
fn add_ends(record: &mut Record<'_>, ctx: &Ctx) {
    let caller = &ctx.caller;
    if let Some(peer) = caller.peer {
        record.str("peer", &peer.to_string());
    }
    if let Some(address) = caller.address {
        record.str("client", &address.to_string());
    }
    if let Some(id) = &caller.request_id {
        record.str("client_request_id", id);
    }
    if let Some(id) = &ctx.upstream_request_id {
        record.str("upstream_request_id", id);
    }
    if let Some(identity) = &ctx.trail.subject {
        record.str("sub", &identity.subject);
    }
}

fn add_outcome(record: &mut Record<'_>, refusal: Option<&Refusal>, e: Option<&Error>) {
    match (refusal, e) {
        (Some(refusal), _) => {
            record.str("refused", refusal.label());
        }
        (None, Some(e)) => {
            record.str("error", e.etype().as_str());
        }
        (None, None) => {}
    }
    if let Some(Refusal::Upstream(fault)) = refusal {
        record.str("upstream_error", fault.kind());
    }
    if let Some(cause) = e.and_then(super::cause) {
        record.str("cause", text::clip(&cause, LONGEST_CAUSE));
    }
}
