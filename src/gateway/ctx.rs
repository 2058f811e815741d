use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::Connection;
use crate::error::Refusal;
use crate::filters::{Admitted, Trail};
use crate::snapshot::Snapshot;
use crate::telemetry::metrics::RouteMetrics;

/// Requests under way. A drain waits for it to reach zero.
#[derive(Debug, Default)]
pub struct Load {
    in_flight: AtomicUsize,
}

impl Load {
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }
}

/// One request, from its header to its log line. Whatever ends it, dropping this ends it in the counts too.
pub struct Ctx {
    pub started: Instant,
    pub snapshot: Arc<Snapshot>,
    pub connection: Option<Arc<Connection>>,
    pub trail: Trail,
    pub admitted: Option<Admitted>,
    pub refusal: Option<Refusal>,
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
            snapshot,
            connection: None,
            trail: Trail::default(),
            admitted: None,
            refusal: None,
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
