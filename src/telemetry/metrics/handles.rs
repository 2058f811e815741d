use std::sync::OnceLock;

use http::Method;
use prometheus::{Histogram, IntCounter, IntGauge};

use super::METRICS;
use super::family::{Counter, Metric};
use crate::error::Verdict;

/// The methods of the `method` label. The last one stands for all others.
const METHODS: [&str; 10] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "other",
];
/// The classes of the `status` label. The last one stands for requests without an answer.
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];

/// One route's metrics. Each series is looked up at the first request that needs it and kept, so
/// that later requests cost no lookup and an unused route has no series.
pub struct RouteMetrics {
    name: String,
    requests: [[OnceLock<IntCounter>; CLASSES.len()]; METHODS.len()],
    duration: OnceLock<Histogram>,
    upstream_duration: OnceLock<Histogram>,
    in_flight: OnceLock<IntGauge>,
    bytes_in: OnceLock<IntCounter>,
    bytes_out: OnceLock<IntCounter>,
}

impl RouteMetrics {
    pub(super) fn new(name: &str) -> Self {
        RouteMetrics {
            name: name.to_owned(),
            requests: Default::default(),
            duration: OnceLock::new(),
            upstream_duration: OnceLock::new(),
            in_flight: OnceLock::new(),
            bytes_in: OnceLock::new(),
            bytes_out: OnceLock::new(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn start(&self) {
        self.in_flight().inc();
    }

    pub fn end(&self) {
        self.in_flight().dec();
    }

    fn in_flight(&self) -> &IntGauge {
        self.in_flight
            .get_or_init(|| METRICS.table.in_flight.with([&self.name]))
    }

    /// `status` is 0 where the caller left before an answer.
    pub fn observe(&self, method: &Method, status: u16, seconds: f64) {
        let method = method_index(method);
        let class = match status / 100 {
            class @ 1..=5 => class as usize - 1,
            _ => CLASSES.len() - 1,
        };
        self.requests[method][class]
            .get_or_init(|| {
                let requests = &METRICS.table.requests;
                requests.with([&self.name, METHODS[method], CLASSES[class]])
            })
            .inc();
        self.duration
            .get_or_init(|| METRICS.table.request_durations.with([&self.name]))
            .observe(seconds);
    }

    /// The part of a request that its upstream took.
    pub fn observe_upstream(&self, seconds: f64) {
        self.upstream_duration
            .get_or_init(|| METRICS.table.upstream_durations.with([&self.name]))
            .observe(seconds);
    }

    /// Bytes of bodies: from the caller, and to it.
    pub fn moved(&self, bytes_in: u64, bytes_out: u64) {
        let series = |direction| METRICS.table.bytes.with([&self.name, direction]);
        self.bytes_in.get_or_init(|| series("in")).inc_by(bytes_in);
        self.bytes_out
            .get_or_init(|| series("out"))
            .inc_by(bytes_out);
    }
}

/// The values of the `mode` label.
const MODES: [&str; 3] = ["log", "warn", "enforce"];
/// One verdict for each value of the `reason` label.
const VERDICTS: [Verdict; 7] = [
    Verdict::Valid,
    Verdict::Missing,
    Verdict::Malformed,
    Verdict::InvalidTimestamp,
    Verdict::Expired { drift: 0 },
    Verdict::NoSecret,
    Verdict::Mismatch,
];

/// Verdicts on signatures. Every series is there from the start: the question of a roll-out is
/// whether some of them stand still. A request pays one increment.
pub struct SignatureMetrics([[IntCounter; VERDICTS.len()]; MODES.len()]);

impl SignatureMetrics {
    pub(super) fn new(signatures: &Metric<Counter, 2>) -> Self {
        SignatureMetrics(
            MODES.map(|mode| VERDICTS.map(|verdict| signatures.with([mode, verdict.label()]))),
        )
    }

    /// `mode` is the mode's name.
    pub fn count(&self, mode: &str, verdict: Verdict) {
        let reason = match verdict {
            Verdict::Valid | Verdict::ValidPrevious => 0,
            Verdict::Missing => 1,
            Verdict::Malformed => 2,
            Verdict::InvalidTimestamp => 3,
            Verdict::Expired { .. } => 4,
            Verdict::NoSecret => 5,
            Verdict::Mismatch => 6,
        };
        if let Some(mode) = MODES.iter().position(|known| *known == mode) {
            self.0[mode][reason].inc();
        }
    }
}

/// One tool's metrics. The series of successful calls is looked up once and kept; a failed call can
/// afford a lookup.
pub struct ToolMetrics {
    provider: String,
    tool: String,
    ok: OnceLock<IntCounter>,
    duration: OnceLock<Histogram>,
}

impl ToolMetrics {
    pub(super) fn new(provider: &str, tool: &str) -> Self {
        ToolMetrics {
            provider: provider.to_owned(),
            tool: tool.to_owned(),
            ok: OnceLock::new(),
            duration: OnceLock::new(),
        }
    }

    pub fn observe(&self, outcome: &'static str, seconds: f64) {
        let counter = || {
            let calls = &METRICS.table.tool_calls;
            calls.with([&self.provider, &self.tool, outcome])
        };
        match outcome {
            "ok" => self.ok.get_or_init(counter).inc(),
            _ => counter().inc(),
        }
        self.duration
            .get_or_init(|| METRICS.table.tool_durations.with([&self.provider]))
            .observe(seconds);
    }
}

fn method_index(method: &Method) -> usize {
    METHODS
        .iter()
        .position(|known| *known == method.as_str())
        .unwrap_or(METHODS.len() - 1)
}
