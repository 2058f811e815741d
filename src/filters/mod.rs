//! Admission: whether a request may go on, and where to. [`admit`] is the order, and the only one.

pub mod forwarded;
pub mod framing;
mod identity;

use std::sync::Arc;

use http::Method;
use http::header::{CONTENT_LENGTH, HOST};
use http::request::Parts;

use crate::auth::Identity;
use crate::auth::signature::{self, Mode, Verdict};
use crate::error::Refusal;
use crate::route::{self, Builtin, Endpoint, Guard, Match, Route};
use crate::snapshot::Snapshot;
use crate::telemetry::metrics::METRICS;

/// Where an admitted request goes.
#[derive(Debug, PartialEq, Eq)]
pub enum Target {
    Builtin(Builtin),
    Upstream(Forward),
}

/// A request that goes on to a passthrough route's upstream.
#[derive(Debug, PartialEq, Eq)]
pub struct Forward {
    /// The route's place in the snapshot's table.
    pub route: usize,
    /// The rewritten path, in the caller's own encoding.
    pub path: String,
    /// The caller's Authorization goes on, and ours stays here.
    pub forwards_authorization: bool,
}

/// The pass. Nothing behind admission can be reached without one, and only [`admit`] makes them.
pub struct Admitted {
    target: Target,
    identity: Arc<Identity>,
}

impl Admitted {
    pub fn target(&self) -> &Target {
        &self.target
    }

    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }
}

/// What was learned on the way, for the log, whether the request was admitted or not.
#[derive(Default)]
pub struct Trail {
    pub found: Option<Match>,
    /// None where the path needs no signature.
    pub verdict: Option<Verdict>,
    pub subject: Option<Arc<Identity>>,
}

pub async fn admit(
    request: &Parts,
    raw_header: impl FnOnce() -> Option<bytes::Bytes>,
    snapshot: &Snapshot,
    now: u64,
    trail: &mut Trail,
) -> Result<Admitted, Refusal> {
    // A request with two ends must not get as far as being a request.
    framing::check(&request.headers, raw_header)?;

    // Before routing, so that routes, exemptions and denials all see the one path that was checked.
    let received = request.uri.path();
    let path = route::normalise(received)?;

    let found = snapshot.routes.find(host(request), &path);
    trail.found = Some(found);

    // Key administration lies outside: an orchestrator has the admin bearer, not a sandbox's secret.
    if let Match::Endpoint(endpoint) = found
        && endpoint.guard == Guard::Admin
    {
        identity::administer(&request.headers, snapshot.settings.admin_token.as_ref())?;
        return into_endpoint(endpoint, request, identity::dev());
    }

    // Before identity: an unsigned request learns nothing about tokens. The signature covers the path as received.
    check_signature(request, received, &path, snapshot, now, trail)?;

    // The signature is a sandbox's identity on the way to an upstream: no token is asked for.
    if let Match::Route(index) = found {
        return into_route(index, snapshot.routes.route(index), request, &path);
    }

    // Also where nothing was found: what exists is told only to those who may ask.
    let identity = match found {
        Match::Endpoint(endpoint) if endpoint.guard == Guard::Public => identity::dev(),
        _ => identity::identify(&request.headers, snapshot.verifier.as_deref(), now)?,
    };
    trail.subject = Some(identity.clone());

    match found {
        Match::Endpoint(endpoint) => into_endpoint(endpoint, request, identity),
        Match::Route(_) | Match::Nothing => Err(Refusal::NotFound {
            passthrough: snapshot.settings.passthrough,
        }),
    }
}

fn check_signature(
    request: &Parts,
    received: &str,
    path: &str,
    snapshot: &Snapshot,
    now: u64,
    trail: &mut Trail,
) -> Result<(), Refusal> {
    let settings = &snapshot.settings.signature;
    if settings.is_exempt(path) {
        return Ok(());
    }
    let verdict = signature::check(
        snapshot.signing.as_deref(),
        settings.drift_seconds,
        request
            .headers
            .get(signature::HEADER)
            .map(|value| value.as_bytes()),
        request.method.as_str(),
        received,
        now,
    );
    trail.verdict = Some(verdict);
    if verdict == Verdict::ValidPrevious {
        METRICS.old_key_used("signature", signature::PREVIOUS);
    }
    if settings.mode == Mode::Enforce && !verdict.is_valid() {
        return Err(Refusal::Signature(verdict.reason()));
    }
    Ok(())
}

fn into_endpoint(
    endpoint: &'static Endpoint,
    request: &Parts,
    identity: Arc<Identity>,
) -> Result<Admitted, Refusal> {
    if !endpoint.allows(&request.method) {
        return Err(Refusal::MethodNotAllowed {
            allow: endpoint.allow,
        });
    }
    Ok(Admitted {
        target: Target::Builtin(endpoint.kind),
        identity,
    })
}

/// Denials come after the signature, so that an unsigned caller learns nothing of them.
fn into_route(
    index: usize,
    route: &Route,
    request: &Parts,
    path: &str,
) -> Result<Admitted, Refusal> {
    // It would make the upstream show the credential that we add.
    if request.method == Method::TRACE {
        return Err(Refusal::MethodNotAllowed {
            allow: "GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS",
        });
    }
    let rewritten = route.rewrite(request.uri.path(), path)?;
    let length = request
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if route.caps.request.is_some_and(|cap| length > Some(cap)) {
        return Err(Refusal::TooLarge);
    }
    Ok(Admitted {
        target: Target::Upstream(Forward {
            route: index,
            forwards_authorization: route.forwards_authorization(&rewritten),
            path: rewritten.path,
        }),
        identity: identity::dev(),
    })
}

fn host(request: &Parts) -> Option<&str> {
    let header = request
        .headers
        .get(HOST)
        .and_then(|value| value.to_str().ok());
    header.or_else(|| request.uri.authority().map(|authority| authority.as_str()))
}

#[cfg(test)]
mod tests;
