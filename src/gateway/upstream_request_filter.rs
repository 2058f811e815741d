//! The request as the upstream gets it. Runs once per attempt, on a fresh copy of what the caller sent.

use http::header::{AUTHORIZATION, HOST};
use pingora_error::Result;
use pingora_http::RequestHeader;

use super::{Ctx, refuse};
use crate::error::Refusal;
use crate::filters::Forward;
use crate::route::Route;

pub(super) fn run(request: &mut RequestHeader, ctx: &mut Ctx) -> Result<()> {
    let Some((route, forward)) = ctx.forward() else {
        return refuse(ctx, Refusal::Internal);
    };
    prepare(request, route, forward)?;
    ctx.request_bytes = 0;
    Ok(())
}

/// Strip what a caller may not send, then rewrite, then attach the credential: last, so that nothing of the caller's is left under
/// its name.
pub(super) fn prepare(request: &mut RequestHeader, route: &Route, forward: &Forward) -> Result<()> {
    strip(request, forward.forwards_authorization);
    let with_auth = !forward.forwards_authorization;
    let target = route.target(&forward.path, request.uri.query(), with_auth);
    request.set_raw_path(&target)?;
    request.insert_header(HOST, route.host_header.clone())?;
    route
        .attachment
        .attach(with_auth, |name, value| request.insert_header(name, value))
}

/// Hop-by-hop headers are Pingora's to strip, those that Connection names among them; these are ours.
fn strip(request: &mut RequestHeader, keep_authorization: bool) {
    // Most requests carry a few of these names, and none more than once: two passes are cheaper than a list.
    if !keep_authorization {
        request.remove_header(&AUTHORIZATION);
    }
    for name in [
        "traceparent",
        "tracestate",
        "proxy-authorization",
        "proxy-authenticate",
    ] {
        request.remove_header(name);
    }
    let is_sandboxs = |name: &http::HeaderName| name.as_str().starts_with("x-sandbox-");
    while let Some(name) = request
        .headers
        .keys()
        .find(|name| is_sandboxs(name))
        .cloned()
    {
        request.remove_header(&name);
    }
}
