//! The row of the call log: made when a request is over, and handed to a queue.

use std::time::{Duration, SystemTime};

use http::HeaderName;
use http::header::USER_AGENT;
use http::request::Parts;
use serde_json::value::{RawValue, to_raw_value};

use super::Ctx;
use super::early_request_filter::readable_id;
use super::logging::{Outcome, Who};
use crate::auth::Identity;
use crate::error::{CallError, Refusal, UpstreamFailure};
use crate::request_id;
use crate::store::Timestamp;
use crate::store::call_log::{CallRecord, ROUTE};
use crate::telemetry::audit;
use crate::telemetry::record::LONGEST_PATH;
use crate::telemetry::trail::CallFacts;
use crate::text;

/// Characters of a name or an id that are kept. Longer ones are a caller's.
const LONGEST_NAME: usize = 256;
const LONGEST_USER_AGENT: usize = 256;
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// None where the request is none of those that are logged: requests to routes, calls of tools, and
/// requests to the endpoints of calls that ati refused to a caller that it knows.
pub(super) fn of(
    outcome: &Outcome<'_>,
    ctx: &Ctx,
    route: &str,
    took: Duration,
    failure: Option<UpstreamFailure>,
    refused: Option<&'static str>,
) -> Option<CallRecord> {
    let trail = &ctx.trail;
    let call = ctx.call.as_deref();
    let tool = call.and_then(|call| call.tool());
    let facts = call.and_then(|call| call.facts());
    let is_call = trail.is_call
        && (tool.is_some() || facts.is_some() || (refused.is_some() && trail.subject.is_some()));
    if !trail.is_route && !is_call {
        return None;
    }
    let request = outcome.request;
    let who = Who::of(request, ctx);
    let identity = trail.subject.as_deref();
    let status = Some(outcome.status).filter(|status| *status > 0);
    let error_class = failure
        .map(|failure| failure.kind)
        .or(refused)
        .or(facts.and_then(|facts| facts.error.as_ref().map(|_| "failed")))
        .or(outcome.failed.as_ref().map(|_| "interrupted"))
        .or((outcome.status >= 400).then_some("status"));
    Some(CallRecord {
        request_id: ctx.request_id,
        started_at: started(took),
        latency: took,
        token_hash: kept(identity.and_then(Identity::key_hash)),
        user_id: kept(who.subject),
        session_id: header(request, &SESSION, LONGEST_NAME),
        endpoint: text::clip(request.uri.path(), LONGEST_PATH).into(),
        tool_name: kept(tool.or(facts.map(|facts| &*facts.name)).or(unknown(ctx))),
        provider: match trail.is_route {
            true => Some(route.into()),
            false => facts.and_then(|facts| facts.provider.clone()),
        },
        handler: match trail.is_route {
            true => Some(ROUTE.into()),
            false => facts.and_then(|facts| facts.handler.clone()),
        },
        status,
        upstream_status: match trail.is_route {
            true => status.filter(|_| ctx.refusal.is_none()),
            false => call.and_then(|call| call.status()),
        }
        .or(failure.and_then(|failure| failure.status)),
        error_class: error_class.map(Into::into),
        error_message: message(ctx, facts),
        request_args: match trail.is_route {
            true => method(request),
            false => facts.map(|facts| facts.args.clone()),
        },
        response_size: outcome.bytes_out,
        requester_ip: ctx.caller.address.or(ctx.caller.peer.map(|peer| peer.ip())),
        user_agent: header(request, &USER_AGENT, LONGEST_USER_AGENT),
        job_id: kept(who.job),
        sandbox_id: kept(who.sandbox),
        customer_id: kept(identity.and_then(Identity::customer)),
        client_request_id: client_id(request, ctx),
    })
}

fn started(took: Duration) -> Timestamp {
    let began = SystemTime::now().checked_sub(took);
    let since = began.and_then(|began| began.duration_since(SystemTime::UNIX_EPOCH).ok());
    let millis = since.map(|since| since.as_millis() as i64);
    millis
        .and_then(Timestamp::from_millis)
        .unwrap_or_else(Timestamp::now)
}

fn kept(text: Option<&str>) -> Option<Box<str>> {
    text.map(|text| text::clip(text, LONGEST_NAME).into())
}

fn header(request: &Parts, name: &HeaderName, longest: usize) -> Option<Box<str>> {
    let value = request.headers.get(name)?;
    let value = String::from_utf8_lossy(value.as_bytes());
    Some(text::clip(&value, longest).into())
}

/// The id under which the caller knows the request, unless that is ati's own.
fn client_id(request: &Parts, ctx: &Ctx) -> Option<Box<str>> {
    let id = request.headers.get(request_id::HEADER)?;
    let id = readable_id(id.as_bytes())?;
    (!id.eq_ignore_ascii_case(ctx.request_id.text().as_str())).then(|| id.into())
}

/// The tool that a caller named, and that isn't there.
fn unknown(ctx: &Ctx) -> Option<&str> {
    match ctx.refusal.as_ref()? {
        Refusal::Call(error) => match error.as_ref() {
            CallError::UnknownTool(name) => Some(name),
            _ => None,
        },
        _ => None,
    }
}

fn message(ctx: &Ctx, facts: Option<&CallFacts>) -> Option<Box<str>> {
    if let Some(error) = facts.and_then(|facts| facts.error.as_deref()) {
        return Some(error.into());
    }
    let error = match ctx.refusal.as_ref()? {
        Refusal::Upstream(fault) => format!("upstream: {}", fault.kind()),
        Refusal::Call(error) | Refusal::File(error) => error.audit_text(),
        _ => return None,
    };
    Some(text::clip_chars(&error, audit::LONGEST_ERROR).into())
}

/// What is known of a request to a route that has no column: what passes isn't read.
fn method(request: &Parts) -> Option<Box<RawValue>> {
    to_raw_value(&serde_json::json!({"method": request.method.as_str()})).ok()
}
