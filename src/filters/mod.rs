//! Admission: whether a request may go on, and where to. [`admit`] is the order, and the only one.

pub mod framing;
mod identity;
pub mod path;

use std::sync::Arc;

use http::request::Parts;

use crate::auth::Identity;
use crate::auth::signature::{self, Mode, Verdict};
use crate::error::Refusal;
use crate::route::{Endpoint, Guard, Match, Target};
use crate::snapshot::Snapshot;

/// The pass. Nothing behind admission can be reached without one, and only [`admit`] makes them.
pub struct Admitted {
    target: Target,
    identity: Arc<Identity>,
}

impl Admitted {
    pub fn target(&self) -> Target {
        self.target
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
    let path = path::normalise(received)?;

    let found = snapshot.routes.find(&path);
    trail.found = Some(found);

    // Key administration lies outside: an orchestrator has the admin bearer, not a sandbox's secret.
    if let Match::Endpoint(endpoint) = found
        && endpoint.guard == Guard::Admin
    {
        identity::administer(&request.headers, snapshot.settings.admin_token.as_ref())?;
        return into_endpoint(endpoint, request, Arc::new(Identity::dev()));
    }

    // Before identity: an unsigned request learns nothing about tokens. The signature covers the path as received.
    check_signature(request, received, &path, snapshot, now, trail)?;

    // Also where nothing was found: what exists is told only to those who may ask.
    let identity = match found {
        Match::Endpoint(endpoint) if endpoint.guard == Guard::Public => Arc::new(Identity::dev()),
        _ => identity::identify(&request.headers, snapshot.verifier.as_ref(), now)?,
    };
    trail.subject = Some(identity.clone());

    match found {
        Match::Endpoint(endpoint) => into_endpoint(endpoint, request, identity),
        Match::Nothing => Err(Refusal::NotFound {
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
        snapshot.signing.as_ref(),
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
    if settings.mode == Mode::Enforce && verdict != Verdict::Valid {
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

#[cfg(test)]
mod tests;
