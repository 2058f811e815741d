//! The request as the upstream gets it. Runs once per attempt, on a fresh copy of what the caller sent.

use http::HeaderName;
use http::header::{COOKIE, HOST};
use pingora_error::Result;
use pingora_http::RequestHeader;

use super::{Ctx, refuse};
use crate::error::Refusal;
use crate::filters::{Forward, forwarded};
use crate::route::Route;

pub(super) fn run(request: &mut RequestHeader, ctx: &mut Ctx) -> Result<()> {
    let Some(forward) = ctx.forward() else {
        return refuse(ctx, Refusal::Internal);
    };
    prepare(request, forward, ctx.from_proxy)?;
    ctx.request_bytes = 0;
    ctx.connecting = None;
    Ok(())
}

/// Strip what a caller may not send, then rewrite, then attach the credential: last, so that nothing of the caller's is left under
/// its name.
pub(super) fn prepare(
    request: &mut RequestHeader,
    forward: &Forward,
    from_proxy: bool,
) -> Result<()> {
    let route = &forward.route;
    strip(request, route, forward.forwards_authorization, from_proxy);
    join_cookies(request)?;
    let with_auth = !forward.forwards_authorization;
    let target = route.target(&forward.path, request.uri.query(), with_auth);
    request.set_raw_path(&target)?;
    request.insert_header(HOST, route.host_header.clone())?;
    route
        .attachment
        .attach(with_auth, |name, value| request.insert_header(name, value))
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

/// Hop-by-hop headers are Pingora's to strip, those that Connection names among them; these are ours.
fn strip(request: &mut RequestHeader, route: &Route, keep_authorization: bool, from_proxy: bool) {
    let is_ours = |name: &str| match name {
        "authorization" => !keep_authorization,
        "traceparent" | "tracestate" | "proxy-authorization" | "proxy-authenticate" => true,
        // What our own front says of a sandbox stays with us; what a sandbox says itself goes on, as it always did.
        other => other.starts_with("x-sandbox-") || (from_proxy && forwarded::is_forwarding(other)),
    };
    // CGI and its children read X_Api_Key as X-Api-Key: a twin of a name that matters must not stand beside it.
    let is_twin = |name: &str| {
        let plain = name.replace('_', "-");
        is_ours(&plain)
            || matches!(
                plain.as_str(),
                "content-length" | "transfer-encoding" | "host"
            )
            || route.attachment.names().any(|ours| ours.as_str() == plain)
    };
    let found: Vec<HeaderName> = request
        .headers
        .keys()
        .filter(|name| {
            is_ours(name.as_str()) || (name.as_str().contains('_') && is_twin(name.as_str()))
        })
        .cloned()
        .collect();
    for name in &found {
        request.remove_header(name);
    }
}
