//! The metrics, whose names are a contract. A label value is always one of a fixed few: nothing that a caller sends.

use std::sync::{Arc, LazyLock, OnceLock};

use http::Method;
use prometheus::{
    Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

/// The methods of the `method` label, in the order of [`method_index`]. The last one stands for all others.
const METHODS: [&str; 10] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "other",
];
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];

pub static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    durations: HistogramVec,
    in_flight: IntGaugeVec,
    refusals: IntCounterVec,
    upstream_errors: IntCounterVec,
    reloads: IntCounterVec,
    token_cache: IntCounterVec,
    connections: IntGaugeVec,
    tls_failures: IntCounterVec,
    certificate_expires: IntGaugeVec,
    credential_missing: IntGaugeVec,
    old_keys: IntCounterVec,
    credential_refused: IntCounterVec,
    credential_success: IntGaugeVec,
    tool_calls: IntCounterVec,
    tool_durations: HistogramVec,
    audit_lost: IntCounter,
    pub keyring_loaded: Gauge,
    log_dropped: IntCounter,
}

/// Name, kind, labels and meaning of every metric, for the reference page.
pub const CATALOGUE: &[(&str, &str, &str, &str)] = &[
    (
        "ati_audit_lost_total",
        "counter",
        "",
        "Tool calls whose audit line could not be written.",
    ),
    (
        "ati_build_info",
        "gauge",
        "version",
        "Always 1; the label says what runs.",
    ),
    (
        "ati_certificate_expires_timestamp_seconds",
        "gauge",
        "listener",
        "When the certificate in use ends.",
    ),
    (
        "ati_connections",
        "gauge",
        "listener",
        "Open client connections.",
    ),
    (
        "ati_credential_missing",
        "gauge",
        "name",
        "1 while a configured credential name is not in the keyring.",
    ),
    (
        "ati_credential_last_success_timestamp_seconds",
        "gauge",
        "name",
        "When an upstream last took a request with this credential.",
    ),
    (
        "ati_credential_refused_total",
        "counter",
        "name",
        "Answers of 401 or 403 to a request with this credential.",
    ),
    ("ati_in_flight", "gauge", "route", "Requests being served."),
    (
        "ati_keyring_loaded_timestamp_seconds",
        "gauge",
        "",
        "When the keyring in use was loaded.",
    ),
    (
        "ati_log_lines_dropped_total",
        "counter",
        "",
        "Log lines lost because stderr was not read fast enough.",
    ),
    (
        "ati_old_key_uses_total",
        "counter",
        "kind, key",
        "Requests that still come under an old key: `signature` with the previous secret, `jwt` with another than the first key.",
    ),
    (
        "ati_refusals_total",
        "counter",
        "reason",
        "Requests answered by a refusal of ours.",
    ),
    (
        "ati_reloads_total",
        "counter",
        "outcome",
        "SIGHUP reloads: ok or failed.",
    ),
    (
        "ati_request_duration_seconds",
        "histogram",
        "route",
        "From the request's header to the last byte of the answer.",
    ),
    (
        "ati_requests_total",
        "counter",
        "route, method, status",
        "Requests by route, method and status class.",
    ),
    (
        "ati_tool_calls_total",
        "counter",
        "provider, tool, outcome",
        "Tool calls: ok, or why not.",
    ),
    (
        "ati_tool_duration_seconds",
        "histogram",
        "provider",
        "From the call to its result, everything included.",
    ),
    (
        "ati_tls_handshake_failures_total",
        "counter",
        "listener",
        "Connections that ended before TLS was agreed upon.",
    ),
    (
        "ati_token_cache_total",
        "counter",
        "result",
        "JWTs found verified (hit) or verified anew (miss).",
    ),
    (
        "ati_upstream_errors_total",
        "counter",
        "route, kind",
        "Upstreams that failed: dns, connect, connect_timeout, tls, timeout, closed, protocol, too_large.",
    ),
];

impl Metrics {
    fn new() -> Self {
        let registry = Registry::new();
        let metrics = Metrics {
            requests: counter_vec(
                &registry,
                "ati_requests_total",
                &["route", "method", "status"],
            ),
            durations: histogram_vec(&registry, "ati_request_duration_seconds", &["route"]),
            in_flight: gauge_vec(&registry, "ati_in_flight", &["route"]),
            refusals: counter_vec(&registry, "ati_refusals_total", &["reason"]),
            upstream_errors: counter_vec(
                &registry,
                "ati_upstream_errors_total",
                &["route", "kind"],
            ),
            reloads: counter_vec(&registry, "ati_reloads_total", &["outcome"]),
            token_cache: counter_vec(&registry, "ati_token_cache_total", &["result"]),
            connections: gauge_vec(&registry, "ati_connections", &["listener"]),
            tls_failures: counter_vec(&registry, "ati_tls_handshake_failures_total", &["listener"]),
            certificate_expires: gauge_vec(
                &registry,
                "ati_certificate_expires_timestamp_seconds",
                &["listener"],
            ),
            credential_missing: gauge_vec(&registry, "ati_credential_missing", &["name"]),
            credential_refused: counter_vec(&registry, "ati_credential_refused_total", &["name"]),
            credential_success: gauge_vec(
                &registry,
                "ati_credential_last_success_timestamp_seconds",
                &["name"],
            ),
            old_keys: counter_vec(&registry, "ati_old_key_uses_total", &["kind", "key"]),
            tool_calls: counter_vec(
                &registry,
                "ati_tool_calls_total",
                &["provider", "tool", "outcome"],
            ),
            tool_durations: histogram_vec(&registry, "ati_tool_duration_seconds", &["provider"]),
            audit_lost: register(
                &registry,
                IntCounter::with_opts(opts("ati_audit_lost_total")),
            ),
            keyring_loaded: register(
                &registry,
                Gauge::with_opts(opts("ati_keyring_loaded_timestamp_seconds")),
            ),
            log_dropped: register(
                &registry,
                IntCounter::with_opts(opts("ati_log_lines_dropped_total")),
            ),
            registry,
        };
        let build: GaugeVec = register(
            &metrics.registry,
            GaugeVec::new(opts("ati_build_info"), &["version"]),
        );
        build
            .with_label_values(&[env!("CARGO_PKG_VERSION")])
            .set(1.0);
        // Series that alerts are written on exist from the start, at zero.
        for outcome in ["ok", "failed"] {
            metrics.reloads.with_label_values(&[outcome]);
        }
        for result in ["hit", "miss"] {
            metrics.token_cache.with_label_values(&[result]);
        }
        metrics
    }

    /// The handles of one route, to be kept with it.
    pub fn route(&self, name: &str) -> Arc<RouteMetrics> {
        Arc::new(RouteMetrics {
            name: name.to_owned(),
            requests: Default::default(),
            duration: OnceLock::new(),
            in_flight: OnceLock::new(),
        })
    }

    /// The handles of one tool, to be kept with it.
    pub fn tool(&self, provider: &str, tool: &str) -> ToolMetrics {
        ToolMetrics {
            provider: provider.to_owned(),
            tool: tool.to_owned(),
            ok: OnceLock::new(),
            duration: OnceLock::new(),
        }
    }

    pub fn audit_lost(&self, lines: u64) {
        self.audit_lost.inc_by(lines);
    }

    pub fn refused(&self, reason: &'static str) {
        self.refusals.with_label_values(&[reason]).inc();
    }

    pub fn upstream_failed(&self, route: &str, kind: &'static str) {
        self.upstream_errors.with_label_values(&[route, kind]).inc();
    }

    pub fn reloaded(&self, ok: bool) {
        let outcome = if ok { "ok" } else { "failed" };
        self.reloads.with_label_values(&[outcome]).inc();
    }

    pub fn old_key_used(&self, kind: &'static str, key: &str) {
        self.old_keys.with_label_values(&[kind, key]).inc();
    }

    /// How many reloads went well, and how many didn't.
    pub fn reloads(&self) -> (u64, u64) {
        let count = |outcome: &str| self.reloads.with_label_values(&[outcome]).get();
        (count("ok"), count("failed"))
    }

    pub fn token_cache(&self, result: &'static str) -> IntCounter {
        self.token_cache.with_label_values(&[result])
    }

    pub fn tls_failed(&self, listener: &str) {
        self.tls_failures.with_label_values(&[listener]).inc();
    }

    pub fn certificate_expires(&self, listener: &str, at: i64) {
        self.certificate_expires
            .with_label_values(&[listener])
            .set(at);
    }

    pub fn connections(&self, listener: &str) -> IntGauge {
        self.connections.with_label_values(&[listener])
    }

    /// Replace the whole set: what is no longer missing is no longer reported.
    pub fn set_missing_credentials<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        self.credential_missing.reset();
        for name in names {
            self.credential_missing.with_label_values(&[name]).set(1);
        }
    }

    /// Prometheus's text format.
    pub fn render(&self) -> String {
        let dropped = super::dropped_lines();
        self.log_dropped
            .inc_by(dropped.saturating_sub(self.log_dropped.get()));
        for key in super::health::report() {
            let refused = self.credential_refused.with_label_values(&[&key.name]);
            refused.inc_by(key.refused.saturating_sub(refused.get()));
            if let Some(at) = key.last_success {
                let success = self.credential_success.with_label_values(&[&key.name]);
                success.set(i64::try_from(at).unwrap_or_default());
            }
        }
        let mut out = Vec::new();
        let encoded = TextEncoder::new().encode(&self.registry.gather(), &mut out);
        debug_assert!(encoded.is_ok());
        String::from_utf8(out).unwrap_or_default()
    }
}

/// One route's metrics, resolved at the first request and kept: later ones cost no label lookup, and a route that nobody uses has no
/// series.
pub struct RouteMetrics {
    name: String,
    requests: [[OnceLock<IntCounter>; CLASSES.len()]; METHODS.len()],
    duration: OnceLock<Histogram>,
    in_flight: OnceLock<IntGauge>,
}

impl RouteMetrics {
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
            .get_or_init(|| METRICS.in_flight.with_label_values(&[self.name.as_str()]))
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
                METRICS.requests.with_label_values(&[
                    self.name.as_str(),
                    METHODS[method],
                    CLASSES[class],
                ])
            })
            .inc();
        self.duration
            .get_or_init(|| METRICS.durations.with_label_values(&[self.name.as_str()]))
            .observe(seconds);
    }
}

/// One tool's metrics. Only results are resolved once and kept; failures can afford a lookup.
pub struct ToolMetrics {
    provider: String,
    tool: String,
    ok: OnceLock<IntCounter>,
    duration: OnceLock<Histogram>,
}

impl ToolMetrics {
    pub fn observe(&self, outcome: &'static str, seconds: f64) {
        let counter = || {
            METRICS.tool_calls.with_label_values(&[
                self.provider.as_str(),
                self.tool.as_str(),
                outcome,
            ])
        };
        match outcome {
            "ok" => self.ok.get_or_init(counter).inc(),
            _ => counter().inc(),
        }
        self.duration
            .get_or_init(|| {
                METRICS
                    .tool_durations
                    .with_label_values(&[self.provider.as_str()])
            })
            .observe(seconds);
    }
}

fn method_index(method: &Method) -> usize {
    METHODS
        .iter()
        .position(|known| *known == method.as_str())
        .unwrap_or(METHODS.len() - 1)
}

fn opts(name: &'static str) -> Opts {
    let help = CATALOGUE
        .iter()
        .find(|(known, ..)| *known == name)
        .map_or("", |(_, _, _, help)| *help);
    Opts::new(name, if help.is_empty() { name } else { help })
}

fn register<C: prometheus::core::Collector + Clone + 'static>(
    registry: &Registry,
    made: prometheus::Result<C>,
) -> C {
    let collector = made.expect("metric names and labels are constants of this file");
    registry
        .register(Box::new(collector.clone()))
        .expect("each metric is registered once");
    collector
}

fn counter_vec(registry: &Registry, name: &'static str, labels: &[&str]) -> IntCounterVec {
    register(registry, IntCounterVec::new(opts(name), labels))
}

fn gauge_vec(registry: &Registry, name: &'static str, labels: &[&str]) -> IntGaugeVec {
    register(registry, IntGaugeVec::new(opts(name), labels))
}

fn histogram_vec(registry: &Registry, name: &'static str, labels: &[&str]) -> HistogramVec {
    let buckets = vec![
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
        60.0,
    ];
    let opts = HistogramOpts {
        common_opts: opts(name),
        buckets,
    };
    register(registry, HistogramVec::new(opts, labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invented_method_is_other() {
        let route = METRICS.route("test-methods");
        route.observe(&Method::from_bytes(b"BREW").unwrap(), 418, 0.1);
        route.observe(&Method::GET, 0, 0.1);
        let text = METRICS.render();
        assert!(
            text.contains(
                r#"ati_requests_total{method="other",route="test-methods",status="4xx"} 1"#
            )
        );
        assert!(
            text.contains(
                r#"ati_requests_total{method="GET",route="test-methods",status="none"} 1"#
            )
        );
    }

    #[test]
    fn every_metric_is_in_the_catalogue() {
        let route = METRICS.route("test-catalogue");
        route.start();
        route.observe(&Method::GET, 200, 0.1);
        METRICS.refused("test");
        METRICS.upstream_failed("test", "test");
        METRICS.connections("test");
        METRICS.set_missing_credentials(["test"]);
        METRICS.tool("test", "test").observe("ok", 0.1);
        METRICS.old_key_used("test", "test");
        for line in METRICS.render().lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let name = rest.split(' ').next().unwrap();
                assert!(CATALOGUE.iter().any(|(known, ..)| *known == name), "{name}");
            }
        }
    }
}
