//! The metrics of OTLP. Prometheus has its own, in `telemetry/metrics`.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, MeterProvider as _};
use opentelemetry_sdk::metrics::SdkMeterProvider;

use super::scope;
use super::spans::{Inner, RequestFacts, text};

#[derive(Debug)]
pub struct Instruments {
    provider: SdkMeterProvider,
    requests: Counter<u64>,
    durations: Histogram<f64>,
    upstream_errors: Counter<u64>,
    denied: Counter<u64>,
}

impl Instruments {
    pub fn new(provider: SdkMeterProvider) -> Self {
        let meter = provider.meter_with_scope(scope());
        Instruments {
            requests: meter
                .u64_counter("ati.proxy.requests")
                .with_description("Requests that ati answered.")
                .build(),
            durations: meter
                .f64_histogram("ati.proxy.request_duration_ms")
                .with_description("From the header of a request to the last byte of its answer.")
                .with_unit("ms")
                .build(),
            upstream_errors: meter
                .u64_counter("ati.upstream.errors")
                .with_description("Requests to routes whose upstream failed.")
                .build(),
            denied: meter
                .u64_counter("ati.passthrough.denied")
                .with_description("Requests that a route's deny list refused.")
                .build(),
            provider,
        }
    }

    pub(super) fn request(&self, facts: &RequestFacts<'_>) {
        let mut labels = Vec::with_capacity(5);
        labels.push(text("http.route", facts.route));
        labels.push(KeyValue::new("http.request.method", facts.known_method()));
        labels.push(KeyValue::new(
            "http.response.status_class",
            class(facts.status),
        ));
        match facts.inner {
            Some(Inner::Call { tool, provider }) => {
                labels.extend(provider.map(|provider| text("provider", provider)));
                labels.extend(tool.map(|tool| text("tool", tool)));
            }
            Some(Inner::Passthrough { .. } | Inner::Mcp { .. } | Inner::Help) | None => {}
        }
        labels.extend(facts.passthrough.map(|route| text("route", route)));
        self.requests.add(1, &labels);
        self.durations
            .record(facts.took.as_secs_f64() * 1e3, &labels);
    }

    /// `kind` is one of `timeout`, `connect` and `send`.
    pub fn upstream_failed(&self, route: &str, kind: &'static str) {
        let labels = [text("provider", route), KeyValue::new("error_kind", kind)];
        self.upstream_errors.add(1, &labels);
    }

    pub fn denied(&self, route: &str) {
        self.denied.add(1, &[text("route", route)]);
    }

    /// Sends what was counted since the last time.
    pub(super) fn close(&self, limit: Duration) {
        let _ = self.provider.shutdown_with_timeout(limit);
    }
}

fn class(status: u16) -> &'static str {
    match status {
        100..200 => "1xx",
        200..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        500..600 => "5xx",
        _ => "none",
    }
}
