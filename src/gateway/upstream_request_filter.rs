//! The request as the upstream gets it. Runs once per attempt, on a fresh copy of the caller's
//! header.

use std::time::Instant;

use http::HeaderName;
use http::header::{COOKIE, HOST};
use pingora_error::Result;
use pingora_http::RequestHeader;

use super::strip::{Fate, Strip};
use super::{Ctx, refuse, scrub};
use crate::error::Refusal;
use crate::filters::Forward;
use crate::request_id;
use crate::telemetry::otel::traceparent;

pub(super) fn run(request: &mut RequestHeader, ctx: &mut Ctx) -> Result<()> {
    let Some(forward) = ctx.forward() else {
        return refuse(ctx, Refusal::Internal);
    };
    prepare(request, forward, ctx)?;
    if forward.scrubs() {
        scrub::prepare(request)?;
    }
    ctx.traffic.request = 0;
    ctx.dial.since = None;
    ctx.dial.connected(Instant::now());
    Ok(())
}

/// Strip what a caller may not send, then rewrite, then attach the credential. The credential comes
/// last, so that nothing of the caller's is left under its name.
pub(super) fn prepare(request: &mut RequestHeader, forward: &Forward, ctx: &Ctx) -> Result<()> {
    let route = &forward.route;
    let attachment = forward.attachment();
    let table = Strip {
        attachment,
        keep_authorization: forward.forwards_authorization,
        behind_proxy: ctx.caller.behind_proxy,
    };
    strip(request, &table);
    join_cookies(request)?;
    let with_auth = !forward.forwards_authorization;
    let target = route.target(&forward.path, request.uri.query(), attachment, with_auth);
    request.set_raw_path(&target)?;
    request.insert_header(HOST, route.host_header.clone())?;
    if let Some(id) = ctx.id_for_upstream() {
        request.insert_header(request_id::HEADER, id.as_bytes())?;
    }
    if let Some(parent) = ctx.traceparent() {
        request.insert_header(traceparent::HEADER, parent.text().as_bytes())?;
    }
    attachment.attach(with_auth, |name, value| request.insert_header(name, value))
}

/// HTTP/2 may send a cookie a line; in HTTP/1 there is one line for all (RFC 9113, 8.2.3).
fn join_cookies(request: &mut RequestHeader) -> Result<()> {
    let mut lines = request.headers.get_all(COOKIE).iter();
    if lines.next().is_none() || lines.next().is_none() {
        return Ok(());
    }
    let lines: Vec<&[u8]> = request
        .headers
        .get_all(COOKIE)
        .iter()
        .map(|line| line.as_bytes())
        .collect();
    let joined = lines.join(&b"; "[..]);
    request.insert_header(COOKIE, joined)
}

/// Pingora strips hop-by-hop headers and those that `Connection` names. This strips the rest.
fn strip(request: &mut RequestHeader, table: &Strip<'_>) {
    let found: Vec<HeaderName> = request
        .headers
        .keys()
        .filter(|name| table.fate(name.as_str().as_bytes()) == Fate::Drop)
        .cloned()
        .collect();
    for name in &found {
        request.remove_header(name);
    }
}
