use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::HeaderWatch;
use super::load::{InFlight, Load, RouteGuard};
use super::logging::InnerSpan;
use crate::api::Services;
use crate::auth::signature::{Mode, Verdict};
use crate::config::LogSettings;
use crate::credential::Redactor;
use crate::egress::Upstream;
use crate::error::{Refusal, UpstreamFault};
use crate::filters::{Admitted, Forward, Trail};
use crate::request_id::{self, RequestId};
use crate::snapshot::Snapshot;
use crate::telemetry::otel::{RequestTrace, Traceparent};
use crate::telemetry::trail::CallTrail;

/// Informational answers (1xx) that are handed on for one request. More of them are no information.
const MOST_INFORMATIONAL: u32 = 100;
const VERDICT_HEADER: &str = "x-signature-status";

/// One request, from its header to its access line.
pub struct Ctx {
    pub started: Instant,
    pub request_id: RequestId,
    /// Pinned for the whole request. A tunnel gives it back: it may live for days, and must not
    /// keep the snapshot's keys in memory.
    pub snapshot: Option<Arc<Snapshot>>,
    pub header_watch: Option<Arc<HeaderWatch>>,
    pub caller: Caller,
    /// The snapshot's. The access line of a tunnel is written without a snapshot.
    pub log: LogSettings,
    /// Requests to routes leave an audit line. The snapshot's, too.
    pub audits_routes: bool,
    pub trail: Trail,
    /// None where no spans are exported.
    pub trace: Option<Box<RequestTrace>>,
    /// None but for built-in endpoints.
    pub call: Option<Arc<CallTrail>>,
    pub admitted: Option<Admitted>,
    pub refusal: Option<Refusal>,
    /// The short way began this request. It has an `admitted` or a `refusal`.
    pub(super) is_begun: bool,
    /// Why the short way refuses it.
    pub(super) cause: Option<Box<dyn Error + Send + Sync>>,
    pub dial: Dial,
    pub traffic: Traffic,
    /// Reading the caller's body failed. Pingora may count it as read to its end nevertheless, so
    /// what follows on the connection can't be trusted.
    pub body_broken: bool,
    /// The upstream's own `X-Request-Id`, which the caller gets ati's in place of.
    pub upstream_request_id: Option<Box<str>>,
    /// Of a body that is being searched for credentials.
    pub(super) scrubber: Option<Redactor>,
    pub(super) in_flight: InFlight,
    /// None before the request has a route.
    pub(super) route: Option<RouteGuard>,
}

/// Where a request comes from.
#[derive(Default)]
pub struct Caller {
    pub peer: Option<SocketAddr>,
    /// The peer is a trusted proxy, whose forwarding headers are believed.
    pub behind_proxy: bool,
    /// The caller's address, as the trusted proxy names it.
    pub address: Option<IpAddr>,
    /// The trusted proxy's `X-Request-Id`, if that is no UUID and so can't be this request's id.
    pub request_id: Option<Box<str>>,
}

/// The search for an upstream connection.
#[derive(Default)]
pub struct Dial {
    /// Resolved once per request.
    pub addresses: Option<Arc<[SocketAddr]>>,
    /// Which address is tried.
    pub attempt: usize,
    /// None while no connection is sought.
    pub since: Option<Instant>,
    /// How often the upstream was tried, names that can't be resolved included.
    pub attempts: u32,
    /// When the first attempt began.
    pub began: Option<Instant>,
    /// How long it took, all attempts together, until there was a connection.
    pub connected_after: Option<Duration>,
    /// When the last part of the upstream's answer was there.
    pub answered: Option<Instant>,
    /// Of a tunnel, which gives its route back.
    pub tunnel_upstream: Option<Arc<Upstream>>,
}

impl Dial {
    /// Counts an attempt.
    pub fn attempt(&mut self) {
        self.attempts += 1;
        self.began.get_or_insert_with(Instant::now);
    }

    /// A connection is there, since then.
    pub fn connected(&mut self, at: Instant) {
        self.connected_after = self.began.map(|began| at.saturating_duration_since(began));
    }

    /// The upstream's part of the request, as far as it got. `failed`: it ends now.
    pub fn upstream_time(&self, failed: bool, now: Instant) -> Option<Duration> {
        let end = self.answered.filter(|_| !failed);
        let end = end.unwrap_or(now);
        Some(end.saturating_duration_since(self.began?))
    }
}

/// Body bytes so far.
#[derive(Default)]
pub struct Traffic {
    pub request: u64,
    pub response: u64,
    /// Bytes of the caller's body that the short way read before it handed the request on.
    pub read_before: u64,
    /// Informational answers (1xx) of the upstream.
    pub informational: u32,
    /// Set at the end of a tunnel.
    pub tunnel: Option<Tunnelled>,
}

/// The bytes that passed through a tunnel.
#[derive(Default, Clone, Copy)]
pub struct Tunnelled {
    pub from_caller: u64,
    pub to_caller: u64,
}

impl Ctx {
    pub fn new(snapshot: Arc<Snapshot>, load: &Arc<Load>) -> Self {
        Ctx {
            started: Instant::now(),
            request_id: RequestId::generate(),
            log: snapshot.settings.log.clone(),
            audits_routes: snapshot.settings.audit.routes,
            snapshot: Some(snapshot),
            header_watch: None,
            caller: Caller::default(),
            trail: Trail::default(),
            trace: None,
            call: None,
            admitted: None,
            refusal: None,
            is_begun: false,
            cause: None,
            dial: Dial::default(),
            traffic: Traffic::default(),
            body_broken: false,
            upstream_request_id: None,
            scrubber: None,
            in_flight: load.enter(),
            route: None,
        }
    }

    /// What a call does, of a request to a built-in endpoint.
    pub(super) fn call_trail(&mut self, services: &Services) -> Arc<CallTrail> {
        let (keeps_facts, traceparent) = (services.call_log.is_some(), self.traceparent());
        let new = || Arc::new(CallTrail::new(keeps_facts, traceparent));
        self.call.get_or_insert_with(new).clone()
    }

    /// What is left of the route's total time. None where it has none.
    pub fn time_left(&self) -> Option<Duration> {
        let total = self.forward()?.route.total?;
        Some(total.saturating_sub(self.started.elapsed()))
    }

    /// The id under which the upstream knows this request, where the settings say so.
    pub(super) fn id_for_upstream(&self) -> Option<request_id::Text> {
        let snapshot = self.snapshot.as_ref()?;
        let forwards = snapshot.settings.forward_request_id;
        forwards.then(|| self.request_id.text())
    }

    /// The request's place in its trace, for the upstream.
    pub(super) fn traceparent(&self) -> Option<Traceparent> {
        let trace = self.trace.as_ref()?;
        Some(trace.outbound(InnerSpan::of(self).is_some()))
    }

    /// In warn mode, the verdict on the request's signature.
    fn told_verdict(&self) -> Option<Verdict> {
        let mode = self.snapshot.as_ref()?.settings.signature.mode;
        self.trail.verdict.filter(|_| mode == Mode::Warn)
    }

    /// Whether ati sets this header of an answer itself. The name is in lower case.
    pub(super) fn is_common_header(&self, name: &[u8]) -> bool {
        name == request_id::HEADER.as_bytes()
            || (name == VERDICT_HEADER.as_bytes() && self.told_verdict().is_some())
    }

    /// What every answer says, an upstream's too: the request's id, and in warn mode the verdict on
    /// its signature.
    pub(super) fn common_headers<E>(
        &self,
        mut insert: impl FnMut(&'static str, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        insert(request_id::HEADER, self.request_id.text().as_bytes())?;
        if let Some(verdict) = self.told_verdict() {
            insert(VERDICT_HEADER, verdict.reason().as_bytes())?;
        }
        Ok(())
    }

    /// The route's total time is looked at whenever something moves; between that, the upstream's
    /// timeouts bound the silence.
    pub(super) fn check_total_time(&self) -> Result<(), Refusal> {
        if self.time_left().is_some_and(|left| left.is_zero()) {
            return Err(Refusal::Upstream(UpstreamFault::Timeout));
        }
        Ok(())
    }

    /// Counts bytes of the request's body against the route's cap.
    pub(super) fn take_request_bytes(&mut self, length: usize) -> Result<(), Refusal> {
        self.traffic.request += length as u64;
        let cap = self
            .forward()
            .and_then(|forward| forward.route.caps.request);
        if cap.is_some_and(|cap| self.traffic.request > cap) {
            return Err(Refusal::TooLarge);
        }
        self.check_total_time()
    }

    /// Counts bytes of the answer's body against the route's cap.
    pub(super) fn take_answer_bytes(&mut self, length: usize) -> Result<(), Refusal> {
        self.traffic.response += length as u64;
        let cap = self
            .forward()
            .and_then(|forward| forward.route.caps.response);
        if cap.is_some_and(|cap| self.traffic.response > cap) {
            return Err(Refusal::Upstream(UpstreamFault::TooLarge));
        }
        self.check_total_time()
    }

    /// Takes note of an answer's head: informational ones are few, and none switches protocols.
    pub(super) fn take_answer(&mut self, status: u16) -> Result<(), Refusal> {
        // ati asks for no upgrade here: WebSockets are relayed in proxy_upstream_filter.
        if status == 101 {
            return Err(Refusal::Upstream(UpstreamFault::Protocol));
        }
        self.check_total_time()?;
        if (100..200).contains(&status) {
            self.traffic.informational += 1;
            if self.traffic.informational > MOST_INFORMATIONAL {
                return Err(Refusal::Upstream(UpstreamFault::Protocol));
            }
        }
        Ok(())
    }

    /// Records the upstream's status for the health of the keys that it was sent.
    pub(super) fn observe(&self, status: u16) {
        if let Some(forward) = self.forward()
            && !forward.forwards_authorization
        {
            forward.attachment().observe(status);
        }
    }

    /// What to forward, of a request that goes to an upstream.
    pub fn forward(&self) -> Option<&Forward> {
        self.admitted.as_ref()?.forward()
    }
}
