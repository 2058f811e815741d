use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use http::Method;
use http::request::Parts;
use pingora_error::Error;
use pingora_proxy::Session;
use tracing::Level;

use super::request_filter::job_header;
use super::{Ctx, call_row};
use crate::api::Services;
use crate::error::{Refusal, UpstreamFailure};
use crate::route::{MCP_PROVIDER, Match};
use crate::telemetry::audit::{self, RouteEntry};
use crate::telemetry::metrics::METRICS;
use crate::telemetry::otel::{self, Inner, RequestFacts};
use crate::telemetry::record::{self, Record};
use crate::text;

const TARGET: &str = "ati::access";
/// A cause comes from a library or an upstream, so its length is unknown.
const LONGEST_CAUSE: usize = 200;

/// How a request ended, as far as its caller sees it.
pub(super) struct Outcome<'a> {
    pub request: &'a Parts,
    /// 0 where there was no answer.
    pub status: u16,
    /// Body bytes.
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// What ended it early.
    pub failed: Option<Failed<'a>>,
}

/// What ended a request before its time, or kept it from being answered by its upstream.
pub(super) struct Failed<'a> {
    /// One of Pingora's names of errors.
    pub kind: &'a str,
    /// In the words of the operating system or of a library.
    pub cause: Option<String>,
}

pub(super) fn run(session: &Session, e: Option<&Error>, ctx: &Ctx, services: &Services) {
    let status = session
        .response_written()
        .map_or(0, |response| response.status.as_u16());
    let (bytes_in, bytes_out) = match ctx.traffic.tunnel {
        Some(tunnel) => (tunnel.from_caller, tunnel.to_caller),
        None => (
            ctx.traffic.read_before + session.body_bytes_read() as u64,
            session.body_bytes_sent() as u64,
        ),
    };
    let outcome = Outcome {
        request: session.req_header(),
        status,
        bytes_in,
        bytes_out,
        failed: e.map(|e| Failed {
            kind: e.etype().as_str(),
            cause: super::cause(e),
        }),
    };
    record(&outcome, ctx, services);
}

/// The metrics, the access line and perhaps the audit line and the row of the call log, once for
/// each request, however it ended. The query is never logged: it may carry a key.
pub(super) fn record(outcome: &Outcome<'_>, ctx: &Ctx, services: &Services) {
    let &Outcome {
        request,
        status,
        bytes_in,
        bytes_out,
        ref failed,
    } = outcome;
    let now = Instant::now();
    let took = now.saturating_duration_since(ctx.started);
    let route = match (&ctx.route, &ctx.snapshot) {
        (Some(route), _) => route.metrics(),
        // Refused before it had a route: ati has as many requests as it may.
        (None, Some(snapshot)) => snapshot.routes.metrics(Match::Nothing),
        // Only a tunnel gives its snapshot back, and it has a route.
        (None, None) => return,
    };
    let told = ctx.call.as_ref().and_then(|call| call.failure());
    let failure = match &ctx.refusal {
        Some(refusal) => refusal.upstream_failure(),
        None => told.and_then(|told| told.upstream),
    };
    let refused = ctx.refusal.as_ref().map(Refusal::label);
    let refused = refused.or(told.map(|told| told.label));
    let upstream_time = ctx.dial.upstream_time(failed.is_some(), now);
    route.observe(&request.method, status, took.as_secs_f64());
    route.moved(bytes_in, bytes_out);
    if let Some(key) = ctx.trail.subject.as_ref().and_then(|it| it.key.as_ref()) {
        key.note(!(1..400).contains(&status));
    }
    if let Some(time) = upstream_time {
        route.observe_upstream(time.as_secs_f64());
    }
    if let Some(export) = otel::export() {
        let facts = facts(outcome, ctx, route.name(), took, failure, refused);
        export.request(&facts, ctx.trace.as_deref());
    }
    if ctx.audits_routes && ctx.trail.is_route {
        let entry = audit_entry(request, ctx, route.name(), status, took);
        services.audit.record_route(&entry);
    }
    if let Some(call_log) = &services.call_log
        && let Some(row) = call_row::of(outcome, ctx, route.name(), took, failure, refused)
    {
        call_log.record(row);
    }

    if !ctx.log.access || !is_enabled(failure) {
        return;
    }
    let level = level(failure);
    record::emit(level, TARGET, "request", |record| {
        record
            .str("request_id", ctx.request_id.text().as_str())
            .str("method", request.method.as_str())
            .str("path", text::clip(request.uri.path(), record::LONGEST_PATH))
            .num("status", status.into())
            .millis("ms", took)
            .str("route", route.name())
            .num("bytes_in", bytes_in)
            .num("bytes_out", bytes_out);
        add_ends(record, request, ctx);
        add_upstream(record, ctx, upstream_time, failure);
        add_outcome(record, refused, failure, failed.as_ref());
    });
}

/// The same facts for OpenTelemetry.
fn facts<'a>(
    outcome: &'a Outcome<'_>,
    ctx: &'a Ctx,
    route: &'a str,
    took: Duration,
    failure: Option<UpstreamFailure>,
    refused: Option<&'a str>,
) -> RequestFacts<'a> {
    let request = outcome.request;
    // Where there was no answer, what ended the request.
    let ended = outcome.failed.as_ref().filter(|_| outcome.status == 0);
    let ended = ended.map(|failed| failed.kind);
    let call = ctx.call.as_deref();
    let tool = call.and_then(|call| call.tool());
    let inner = InnerSpan::of(ctx).map(|span| match span {
        InnerSpan::Passthrough => {
            let upstream = upstream(ctx).filter(|_| ctx.dial.attempts > 0);
            Inner::Passthrough { route, upstream }
        }
        InnerSpan::Call => Inner::Call {
            tool,
            provider: call.and_then(|call| call.provider()),
        },
        InnerSpan::Mcp => Inner::Mcp {
            method: call.and_then(|call| call.method()),
            tool,
        },
        InnerSpan::Help => Inner::Help,
    });
    // Refused before it came to that.
    let inner = inner.filter(|_| ctx.admitted.is_some() || ctx.dial.attempts > 0);
    RequestFacts {
        route: match ctx.trail.is_route || !route.starts_with('/') {
            true => otel::UNMATCHED,
            false => route,
        },
        passthrough: ctx.trail.is_route.then_some(route),
        method: request.method.as_str(),
        path: text::clip(request.uri.path(), record::LONGEST_PATH),
        status: outcome.status,
        took,
        request_id: Some(ctx.request_id),
        failure: failure.map(|failure| failure.kind).or(refused).or(ended),
        upstream_failed: failure.is_some(),
        inner,
    }
}

/// The span that a request has inside of `http.server.request`, unless it is refused.
pub(super) enum InnerSpan {
    Passthrough,
    Call,
    Mcp,
    Help,
}

impl InnerSpan {
    pub fn of(ctx: &Ctx) -> Option<Self> {
        if ctx.trail.is_route {
            return Some(InnerSpan::Passthrough);
        }
        match ctx.route.as_ref()?.metrics().name() {
            "/call" => Some(InnerSpan::Call),
            "/mcp" | MCP_PROVIDER => Some(InnerSpan::Mcp),
            "/help" => Some(InnerSpan::Help),
            _ => None,
        }
    }
}

/// The host of the route that the request went to.
fn upstream(ctx: &Ctx) -> Option<&str> {
    let upstream = match (&ctx.dial.tunnel_upstream, ctx.forward()) {
        (Some(upstream), _) => Some(upstream),
        (None, forward) => forward.map(|forward| &forward.route.upstream),
    };
    upstream.map(|upstream| &*upstream.authority)
}

/// An upstream's failure is a warning: an operator has to know of it, and a caller can't tell.
fn level(failure: Option<UpstreamFailure>) -> Level {
    match failure {
        Some(_) => Level::WARN,
        None => Level::INFO,
    }
}

fn is_enabled(failure: Option<UpstreamFailure>) -> bool {
    match failure {
        Some(_) => tracing::enabled!(target: "ati::access", Level::WARN),
        None => tracing::enabled!(target: "ati::access", Level::INFO),
    }
}

/// The metrics and the access line of what never became a request: Pingora couldn't parse its
/// header, or the header was too large. Its method and path aren't known.
pub fn record_unparsed(refusal: &Refusal, peer: Option<SocketAddr>) {
    METRICS.refused(refusal.label());
    let status = refusal.status().as_u16();
    // A method that no counter knows is counted as "other".
    let unknown = Method::from_bytes(b"-").unwrap_or_default();
    METRICS.route("unmatched").observe(&unknown, status, 0.0);
    otel::unparsed(status, refusal.label());
    record::emit(Level::INFO, "ati::access", "request", |record| {
        record
            .num("status", status.into())
            .str("route", "unmatched");
        if let Some(peer) = peer {
            record.address("peer", peer);
        }
        record.str("refused", refusal.label());
    });
}

/// Who asked, and under which ids the other programs on the way know the request.
fn add_ends(record: &mut Record<'_>, request: &Parts, ctx: &Ctx) {
    let caller = &ctx.caller;
    if let Some(peer) = caller.peer {
        record.address("peer", peer);
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
    let who = Who::of(request, ctx);
    if let Some(subject) = who.subject {
        record.str("sub", subject);
    }
    if let Some(id) = who.job {
        record.str("job_id", id).str("job_id_from", who.job_from);
    }
    if let Some(id) = who.sandbox {
        record.str("sandbox_id", id);
    }
}

/// On whose behalf a request came.
pub(super) struct Who<'a> {
    pub subject: Option<&'a str>,
    pub job: Option<&'a str>,
    /// `token`, which proves it, or `header`, which doesn't.
    job_from: &'static str,
    pub sandbox: Option<&'a str>,
}

impl<'a> Who<'a> {
    pub fn of(request: &'a Parts, ctx: &'a Ctx) -> Self {
        let identity = ctx.trail.subject.as_deref();
        let proved = identity.and_then(|identity| identity.job_id.as_deref());
        Who {
            subject: identity.map(|identity| identity.subject.as_str()),
            job: proved.or_else(|| job_header(request)),
            job_from: if proved.is_some() { "token" } else { "header" },
            sandbox: identity.and_then(|identity| identity.sandbox_id.as_deref()),
        }
    }
}

/// Where the request went, how often, and how long that took: of a route from the search for a
/// connection, of a tool from the executor.
fn add_upstream(
    record: &mut Record<'_>,
    ctx: &Ctx,
    time: Option<Duration>,
    failure: Option<UpstreamFailure>,
) {
    let dial = &ctx.dial;
    if dial.attempts > 0 {
        if let Some(upstream) = upstream(ctx) {
            record.str("upstream", upstream);
        }
        record.num("attempts", dial.attempts.into());
        if let Some(after) = dial.connected_after {
            record.millis("connect_ms", after);
        }
        if let Some(time) = time {
            record.millis("upstream_ms", time);
        }
    }
    let Some(call) = &ctx.call else {
        return;
    };
    if let Some(tool) = call.tool() {
        record.str("tool", tool);
    }
    if let Some(upstream) = call.upstream() {
        record.str("upstream", upstream);
    }
    if call.attempts() > 0 {
        record
            .num("attempts", call.attempts().into())
            .millis("upstream_ms", call.upstream_time());
    }
    let status = call.status();
    if let Some(status) = status.or_else(|| failure?.status) {
        record.num("upstream_status", status.into());
    }
}

fn add_outcome(
    record: &mut Record<'_>,
    refused: Option<&str>,
    failure: Option<UpstreamFailure>,
    failed: Option<&Failed<'_>>,
) {
    match (failure, refused, failed) {
        (Some(failure), _, _) => {
            record.str("upstream_error", failure.kind);
        }
        (None, Some(refused), _) => {
            record.str("refused", refused);
        }
        (None, None, Some(failed)) => {
            record.str("error", failed.kind);
        }
        (None, None, None) => {}
    }
    if let Some(cause) = failed.and_then(|failed| failed.cause.as_deref()) {
        record.str("cause", text::clip(cause, LONGEST_CAUSE));
    }
}

fn audit_entry<'a>(
    request: &'a Parts,
    ctx: &'a Ctx,
    route: &'a str,
    status: u16,
    took: Duration,
) -> RouteEntry<'a> {
    let who = Who::of(request, ctx);
    let error = match &ctx.refusal {
        Some(Refusal::Upstream(fault)) => Some(format!("upstream: {}", fault.kind())),
        Some(refusal) => Some(refusal.label().to_owned()),
        None => None,
    };
    RouteEntry {
        ts: audit::timestamp(SystemTime::now()),
        route,
        method: request.method.as_str(),
        path: text::clip(request.uri.path(), record::LONGEST_PATH),
        status: if error.is_none() && (1..400).contains(&status) {
            "ok"
        } else {
            "error"
        },
        http_status: Some(status).filter(|status| *status > 0),
        duration_ms: took.as_millis() as u64,
        agent_sub: who.subject,
        job_id: who.job,
        job_id_from: who.job.map(|_| who.job_from),
        sandbox_id: who.sandbox,
        request_id: ctx.request_id,
        error,
    }
}
