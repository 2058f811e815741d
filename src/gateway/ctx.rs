use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::sync::watch;

use super::Connection;
use crate::config::LogSettings;
use crate::error::Refusal;
use crate::filters::{Admitted, Forward, Trail};
use crate::request_id::RequestId;
use crate::snapshot::Snapshot;
use crate::telemetry::metrics::RouteMetrics;

/// Requests under way. A drain waits for it to reach zero.
#[derive(Debug, Default)]
pub struct Load {
    in_flight: AtomicUsize,
    tunnels: AtomicUsize,
    closing: watch::Sender<bool>,
}

impl Load {
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    pub fn tunnels(&self) -> usize {
        self.tunnels.load(Ordering::Acquire)
    }

    /// Tell every tunnel to end.
    pub fn close_tunnels(&self) {
        self.closing.send_replace(true);
    }

    pub(super) fn enter_tunnel(self: &Arc<Self>) -> (TunnelGuard, watch::Receiver<bool>) {
        self.tunnels.fetch_add(1, Ordering::AcqRel);
        (TunnelGuard(self.clone()), self.closing.subscribe())
    }
}

/// A tunnel, while it lives.
pub(super) struct TunnelGuard(Arc<Load>);

impl Drop for TunnelGuard {
    fn drop(&mut self) {
        self.0.tunnels.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One request, from its header to its log line. Whatever ends it, dropping this ends it in the counts too.
pub struct Ctx {
    pub started: Instant,
    pub request_id: RequestId,
    pub snapshot: Arc<Snapshot>,
    pub connection: Option<Arc<Connection>>,
    pub peer: Option<SocketAddr>,
    /// It came through a proxy whose word we take.
    pub from_proxy: bool,
    /// Whom that proxy names as the caller.
    pub client: Option<IpAddr>,
    pub log: LogSettings,
    pub trail: Trail,
    pub admitted: Option<Admitted>,
    pub refusal: Option<Refusal>,
    /// The upstream's addresses, and which of them is tried.
    pub addresses: Option<Arc<[SocketAddr]>>,
    pub attempt: usize,
    /// Since when a connection is being sought.
    pub connecting: Option<Instant>,
    /// Body bytes so far, for the caps.
    pub request_bytes: u64,
    pub response_bytes: u64,
    /// What passed through a tunnel, in and out.
    pub tunnelled: Option<(u64, u64)>,
    load: Arc<Load>,
    /// This request included.
    pub in_flight: usize,
    route: Option<Arc<RouteMetrics>>,
}

impl Ctx {
    pub fn new(snapshot: Arc<Snapshot>, load: &Arc<Load>) -> Self {
        let in_flight = load.in_flight.fetch_add(1, Ordering::AcqRel) + 1;
        Ctx {
            started: Instant::now(),
            request_id: RequestId::generate(),
            peer: None,
            from_proxy: false,
            client: None,
            log: snapshot.settings.log.clone(),
            snapshot,
            connection: None,
            trail: Trail::default(),
            admitted: None,
            refusal: None,
            addresses: None,
            attempt: 0,
            connecting: None,
            request_bytes: 0,
            response_bytes: 0,
            tunnelled: None,
            load: load.clone(),
            in_flight,
            route: None,
        }
    }

    /// Count this request to a route from now on.
    pub fn enter(&mut self, route: Arc<RouteMetrics>) {
        route.start();
        self.route = Some(route);
    }

    /// What to forward, of a request that goes to an upstream.
    pub fn forward(&self) -> Option<&Forward> {
        self.admitted.as_ref()?.forward()
    }

    pub fn load(&self) -> &Arc<Load> {
        &self.load
    }

    pub fn route(&self) -> Option<&RouteMetrics> {
        self.route.as_deref()
    }
}

impl Drop for Ctx {
    fn drop(&mut self) {
        self.load.in_flight.fetch_sub(1, Ordering::AcqRel);
        if let Some(route) = &self.route {
            route.end();
        }
    }
}
