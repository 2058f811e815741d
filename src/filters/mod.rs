//! Admission: whether a request may go on, and where to. The order of the checks is written in
//! [`admit`], and nowhere else.

pub mod forwarded;
pub mod framing;
mod identity;
pub mod target;

use std::sync::Arc;

use http::header::{CONTENT_LENGTH, HOST};
use http::request::Parts;
use http::{HeaderMap, Method};

use crate::auth::Identity;
use crate::auth::signature::{self, Mode, Verdict};
use crate::auth::virtual_keys::VirtualKeys;
use crate::credential::Attachment;
use crate::error::{BearerFault, Refusal, StepTaken, TokenFault};
use crate::hop_by_hop;
use crate::route::{self, Builtin, Endpoint, Guard, Match, Route, SignatureRule};
use crate::snapshot::Snapshot;
use crate::telemetry::Throttle;
use crate::telemetry::metrics::{METRICS, RouteMetrics};
use identity::Proof;

/// Where an admitted request goes, and on whose behalf.
pub enum Target {
    /// An endpoint that tells every caller the same, such as `/health`.
    Public(Builtin),
    /// An endpoint whose answer depends on the caller's scopes.
    Builtin {
        endpoint: Builtin,
        /// Unrestricted where no token keys are configured.
        identity: Arc<Identity>,
    },
    /// Key administration. The admin bearer names no caller.
    Admin(Builtin),
    Upstream {
        forward: Forward,
        /// Only an identity that was proved: None where the route's guard asks for none, and where
        /// no token keys are configured.
        caller: Option<Arc<Identity>>,
    },
}

/// A request that goes on to a passthrough route's upstream.
pub struct Forward {
    pub route: Arc<Route>,
    /// The rewritten path, in the caller's own encoding.
    pub path: String,
    /// Of a customer that has a credential of its own.
    own_attachment: Option<Arc<Attachment>>,
    /// The caller's own Authorization header is sent on instead of the route's credential.
    pub forwards_authorization: bool,
}

impl Forward {
    /// The credential that is sent.
    pub fn attachment(&self) -> &Arc<Attachment> {
        self.own_attachment
            .as_ref()
            .unwrap_or(&self.route.attachment)
    }

    /// Whether bodies are searched for it. Without a secret there is nothing to look for.
    pub fn scrubs(&self) -> bool {
        self.route.scrub && self.attachment().redacts()
    }
}

/// Proof of admission. Everything behind admission asks for one, and only [`admit`] makes them.
pub struct Admitted {
    target: Target,
}

impl Admitted {
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// None for public and admin endpoints, and for a route whose caller proved none.
    pub fn identity(&self) -> Option<&Arc<Identity>> {
        match &self.target {
            Target::Builtin { identity, .. } => Some(identity),
            Target::Upstream { caller, .. } => caller.as_ref(),
            Target::Public(_) | Target::Admin(_) => None,
        }
    }

    pub fn forward(&self) -> Option<&Forward> {
        match &self.target {
            Target::Upstream { forward, .. } => Some(forward),
            Target::Builtin { .. } | Target::Public(_) | Target::Admin(_) => None,
        }
    }
}

/// What was learned during admission, for logs and metrics, also of a refused request. It holds
/// no route: a tunnel keeps its trail for as long as it lives, and must not keep credentials.
#[derive(Default)]
pub struct Trail {
    /// The counters of what the path leads to. None if the request was refused before routing.
    pub metrics: Option<Arc<RouteMetrics>>,
    /// None where the path needs no signature.
    pub verdict: Option<Verdict>,
    /// Of a wrong digest, and only where the log is at debug level: whether it was made with the
    /// text of a hex secret.
    pub matches_as_text: Option<bool>,
    /// The path leads to a route.
    pub is_route: bool,
    /// The path leads to an endpoint where tools are called.
    pub is_call: bool,
    pub subject: Option<Arc<Identity>>,
    /// Each check as it begins, for a caller that wants to know what would happen. None for
    /// requests that are served.
    pub steps: Option<Vec<StepTaken>>,
}

impl Trail {
    /// A check begins. Those before it have passed.
    fn reach(&mut self, step: &'static str) {
        if let Some(steps) = &mut self.steps {
            steps.push(StepTaken::new(step));
        }
    }

    /// What the check that was reached last has found.
    fn tell(&mut self, detail: impl FnOnce() -> String) {
        if let Some(step) = self.steps.as_mut().and_then(|steps| steps.last_mut()) {
            step.detail = Some(detail());
        }
    }

    /// The pattern by which the check that was reached last refuses.
    fn name_pattern(&mut self, pattern: impl FnOnce() -> String) {
        if let Some(step) = self.steps.as_mut().and_then(|steps| steps.last_mut()) {
            step.pattern = Some(pattern());
        }
    }
}

/// Who a token names, as [`admit`] finds it.
pub async fn identify(
    headers: &HeaderMap,
    rules: Rules<'_>,
    now: u64,
) -> Result<Arc<Identity>, Refusal> {
    let verifier = rules.snapshot.verifier.as_deref();
    let proof = identity::identify(headers, verifier, rules.keys, now).await?;
    proof.identity().ok_or(Refusal::Internal)
}

/// What a request is checked against: rules of the snapshot, and virtual keys, which outlive it.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    pub snapshot: &'a Snapshot,
    /// None: there is no store.
    pub keys: Option<&'a VirtualKeys>,
}

/// Waits only for a virtual key that the cache doesn't have; the trail has its caller then. Without
/// one, what follows may take a request's first reading of the clock for its own.
pub async fn admit(
    request: &Parts,
    raw_header: impl FnOnce() -> Option<bytes::Bytes>,
    rules: Rules<'_>,
    now: u64,
    trail: &mut Trail,
) -> Result<Admitted, Refusal> {
    let Rules { snapshot, keys } = rules;
    trail.reach("framing");
    // First: where a body's end is ambiguous, what follows may be a part of another request.
    framing::check(&request.headers, raw_header)?;
    framing::check_host(request)?;
    // A proxy removes what `Connection` names, and no request can go on without its host.
    if hop_by_hop::named(&request.headers).any(|name| name.eq_ignore_ascii_case("host")) {
        return Err(Refusal::HostIsHopByHop);
    }

    // Before routing: routes, exemptions and denials all match the one path that was checked.
    trail.reach("path");
    let received = request.uri.path();
    let path = route::normalise(received)?;

    trail.reach("route");
    let found = match snapshot.routes.find(host(request), &path) {
        // Only where there is something to tell: any other caller asks for a path that isn't there.
        Match::Endpoint(endpoint) if !is_offered(endpoint, snapshot) => Match::Nothing,
        found => found,
    };
    trail.metrics = Some(snapshot.routes.metrics(found).clone());
    trail.is_route = matches!(found, Match::Route(_));
    trail.is_call = matches!(found, Match::Endpoint(endpoint) if endpoint.calls_tools());
    trail.tell(|| described(found));

    // The signature comes before the token: an unsigned request learns nothing about tokens. It
    // covers the path as received.
    let signature = |trail: &mut Trail| {
        trail.reach("signature");
        if is_exempt(found, &path, &snapshot.settings.signature) {
            trail.tell(|| "the path is exempt".to_owned());
            return Ok(());
        }
        check_signature(request, received, snapshot, now, trail)
    };
    let headers = &request.headers;
    let proof = match found.guard() {
        Guard::Signature => {
            signature(trail)?;
            Proof::NotAsked
        }
        Guard::Token => {
            signature(trail)?;
            trail.reach("token");
            let proof =
                identity::identify(headers, snapshot.verifier.as_deref(), keys, now).await?;
            // A route that asks for a token isn't open where none can be verified.
            if trail.is_route && matches!(proof, Proof::NoTokenKeys) {
                let fault = BearerFault::Token(TokenFault::Missing);
                return Err(Refusal::Unauthenticated(fault));
            }
            trail.subject = proof.identity();
            trail.tell(|| match &proof {
                Proof::Token(identity) => format!("of '{}'", identity.subject),
                _ => "no token keys are configured: none is asked for".to_owned(),
            });
            proof
        }
        Guard::Open => Proof::NotAsked,
        // No signature: an orchestrator has the admin bearer, and not a sandbox's secret.
        Guard::Admin => {
            trail.reach("token");
            identity::administer(headers, snapshot.settings.admin_token.as_ref())?;
            Proof::AdminBearer
        }
    };

    let target = match found {
        Match::Endpoint(endpoint) => {
            trail.reach("method");
            to_endpoint(endpoint, request, proof)?
        }
        Match::Route(route) => {
            let caller = proof.proved();
            Target::Upstream {
                forward: to_route(route, request, &path, caller.as_deref(), snapshot, trail)?,
                caller,
            }
        }
        Match::Nothing => {
            trail.reach("target");
            return Err(Refusal::NotFound {
                passthrough: snapshot.settings.passthrough,
            });
        }
    };
    Ok(Admitted { target })
}

/// Admission at the admin listener, which has the endpoints of key administration and no others.
pub fn admit_administration(request: &Parts, snapshot: &Snapshot) -> Result<Admitted, Refusal> {
    let path = route::normalise(request.uri.path())?;
    let endpoint = route::find_endpoint(&path).filter(|it| it.guard == Guard::Admin);
    let Some(endpoint) = endpoint else {
        let passthrough = snapshot.settings.passthrough;
        return Err(Refusal::NotFound { passthrough });
    };
    identity::administer(&request.headers, snapshot.settings.admin_token.as_ref())?;
    let target = to_endpoint(endpoint, request, Proof::AdminBearer)?;
    Ok(Admitted { target })
}

fn is_offered(endpoint: &Endpoint, snapshot: &Snapshot) -> bool {
    let settings = &snapshot.settings;
    match endpoint.guard {
        Guard::Admin => settings.keys_on_edge,
        _ if endpoint.kind == Builtin::ProtectedResource => {
            !settings.mcp.authorization_servers.is_empty()
        }
        _ => true,
    }
}

/// An exempt pattern is about paths. It must not open a route that merely has a path like it: one
/// that is found by its host, or by a shorter prefix.
fn is_exempt(found: Match<'_>, path: &str, settings: &signature::Settings) -> bool {
    match found {
        Match::Endpoint(_) | Match::Nothing => settings.is_exempt(path),
        Match::Route(route) => match route.signature {
            SignatureRule::ByPrefix => settings.is_exempt_below(&route.prefix, path),
            SignatureRule::Required => false,
            SignatureRule::Exempt => true,
        },
    }
}

fn check_signature(
    request: &Parts,
    received: &str,
    snapshot: &Snapshot,
    now: u64,
    trail: &mut Trail,
) -> Result<(), Refusal> {
    let settings = &snapshot.settings.signature;
    let mut headers = request.headers.get_all(signature::HEADER).iter();
    let header = headers.next().map(|value| value.as_bytes());
    let keys = snapshot.signing.as_deref();
    let method = request.method.as_str();
    let verdict = match headers.next() {
        // Another server on the way may have looked at the other one.
        Some(_) => Verdict::Malformed,
        None => signature::check(keys, settings.drift_seconds, header, method, received, now),
    };
    trail.verdict = Some(verdict);
    trail.tell(|| format!("{} (mode {})", verdict.reason(), settings.mode.as_str()));
    if verdict == Verdict::Mismatch
        && tracing::enabled!(target: "ati::sig_verify", tracing::Level::DEBUG)
        && let Some(keys) = keys
    {
        let header = header.unwrap_or_default();
        trail.matches_as_text = Some(keys.matches_as_text(header, method, received));
    }
    if verdict == Verdict::ValidPrevious {
        METRICS.old_key_used("signature", signature::PREVIOUS);
    }
    if settings.mode == Mode::Enforce && !verdict.is_valid() {
        return Err(Refusal::Signature(verdict));
    }
    Ok(())
}

fn to_endpoint(
    endpoint: &'static Endpoint,
    request: &Parts,
    proof: Proof,
) -> Result<Target, Refusal> {
    if !endpoint.allows(&request.method) {
        return Err(Refusal::MethodNotAllowed {
            allow: endpoint.allow,
        });
    }
    let endpoint = endpoint.kind;
    Ok(match proof {
        Proof::NotAsked => Target::Public(endpoint),
        Proof::Token(identity) => Target::Builtin { endpoint, identity },
        Proof::NoTokenKeys => Target::Builtin {
            endpoint,
            identity: identity::unrestricted(),
        },
        Proof::AdminBearer => Target::Admin(endpoint),
    })
}

/// An upstream answers these with the request that it got, the route's credential included. Lax
/// servers ignore the case.
fn traces(method: &Method) -> bool {
    ["TRACE", "TRACK"]
        .iter()
        .any(|name| method.as_str().eq_ignore_ascii_case(name))
}

/// Denials come after the guard: a caller that may not use the route learns nothing of them.
fn to_route(
    route: &Arc<Route>,
    request: &Parts,
    path: &str,
    caller: Option<&Identity>,
    snapshot: &Snapshot,
    trail: &mut Trail,
) -> Result<Forward, Refusal> {
    trail.reach("method");
    if traces(&request.method) {
        return Err(Refusal::MethodNotAllowed {
            allow: "GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS",
        });
    }
    trail.reach("rewrite");
    let received = request.uri.path();
    let rewritten = route.rewrite(received, path).inspect_err(|refusal| {
        if *refusal == Refusal::PathDenied {
            let denial = || route.denial(received, path).unwrap_or_default();
            trail.tell(|| denial().0);
            trail.reach("deny");
            trail.name_pattern(|| denial().1.to_owned());
        }
    })?;
    trail.tell(|| route.with_base(&rewritten.path));
    trail.reach("deny");
    trail.reach("size");
    let length = request
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if route.caps.request.is_some_and(|cap| length > Some(cap)) {
        return Err(Refusal::TooLarge);
    }
    let forwards_authorization = route.forwards_authorization(&rewritten);
    trail.reach("credential");
    // Last: it may have to be decrypted.
    let own_attachment = own_attachment(route, caller, snapshot)?;
    let forward = Forward {
        forwards_authorization,
        own_attachment,
        route: route.clone(),
        path: rewritten.path,
    };
    trail.tell(|| match route.credential_name() {
        _ if forwards_authorization => "the caller's own Authorization header".to_owned(),
        Some(name) if forward.attachment().sends_main() => format!("'{name}'"),
        Some(name) => format!("'{name}' is missing: sent without it"),
        None => "none".to_owned(),
    });
    Ok(forward)
}

fn described(found: Match<'_>) -> String {
    match found {
        Match::Endpoint(endpoint) => format!("built-in {}", endpoint.label),
        Match::Route(route) => format!("route '{}' ({})", route.name, route.prefix),
        Match::Nothing => "nothing".to_owned(),
    }
}

/// The customer's own credential, where it has one. A caller that proved nothing has no customer.
fn own_attachment(
    route: &Route,
    caller: Option<&Identity>,
    snapshot: &Snapshot,
) -> Result<Option<Arc<Attachment>>, Refusal> {
    static LAST: Throttle = Throttle::new();
    let customer = caller.and_then(|caller| caller.customer_id.as_deref());
    let routes = &snapshot.routes;
    routes
        .own_attachment(route, customer, &snapshot.keyring)
        .map_err(|fault| {
            if LAST.is_due() {
                tracing::error!(route = route.name, error = %fault, "a request is refused");
            }
            Refusal::CredentialUnusable
        })
}

/// Which host the caller asks.
pub fn host(request: &Parts) -> Option<&str> {
    let header = request
        .headers
        .get(HOST)
        .and_then(|value| value.to_str().ok());
    header.or_else(|| request.uri.authority().map(|authority| authority.as_str()))
}

#[cfg(test)]
mod tests;
