//! The one route table: where a path leads.

mod builtin;

use std::sync::Arc;

pub use builtin::{Builtin, Endpoint, Guard};

use crate::telemetry::metrics::{METRICS, RouteMetrics};

/// Where an admitted request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Builtin(Builtin),
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    Endpoint(&'static Endpoint),
    Nothing,
}

pub struct Table {
    builtins: Vec<Arc<RouteMetrics>>,
    unmatched: Arc<RouteMetrics>,
}

impl Table {
    pub fn new() -> Self {
        Table {
            builtins: builtin::ENDPOINTS
                .iter()
                .map(|endpoint| METRICS.route(endpoint.label))
                .collect(),
            unmatched: METRICS.route("unmatched"),
        }
    }

    /// By the decoded path. ATI's own paths come first, whatever else is configured.
    pub fn find(&self, path: &str) -> Match {
        builtin::find(path).map_or(Match::Nothing, Match::Endpoint)
    }

    pub fn metrics(&self, found: Match) -> &Arc<RouteMetrics> {
        match found {
            Match::Endpoint(endpoint) => &self.builtins[endpoint.kind as usize],
            Match::Nothing => &self.unmatched,
        }
    }
}

impl Default for Table {
    fn default() -> Self {
        Table::new()
    }
}
