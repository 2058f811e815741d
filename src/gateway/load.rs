//! How much is under way: requests, tunnels, requests per route. Guards count down when they are
//! dropped, so that every end of a request is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

use crate::telemetry::metrics::RouteMetrics;

/// A drain waits until nothing is under way.
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

    pub(super) fn enter(self: &Arc<Self>) -> InFlight {
        InFlight {
            count: self.in_flight.fetch_add(1, Ordering::AcqRel) + 1,
            load: self.clone(),
        }
    }

    pub(super) fn enter_tunnel(self: &Arc<Self>) -> (TunnelGuard, watch::Receiver<bool>) {
        self.tunnels.fetch_add(1, Ordering::AcqRel);
        (TunnelGuard(self.clone()), self.closing.subscribe())
    }
}

/// Counts a request for as long as it lives.
pub(super) struct InFlight {
    pub load: Arc<Load>,
    /// How many requests were in flight when this one began, itself included.
    pub count: usize,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.load.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Counts a tunnel for as long as it lives.
pub(super) struct TunnelGuard(Arc<Load>);

impl Drop for TunnelGuard {
    fn drop(&mut self) {
        self.0.tunnels.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Counts a request to its route for as long as it lives.
pub(super) struct RouteGuard(Arc<RouteMetrics>);

impl RouteGuard {
    pub fn enter(metrics: Arc<RouteMetrics>) -> Self {
        metrics.start();
        RouteGuard(metrics)
    }

    pub fn metrics(&self) -> &RouteMetrics {
        &self.0
    }
}

impl Drop for RouteGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}
