//! The metrics, whose names are a contract. A label value is always one of a fixed few, never
//! something that a caller sends. A new metric is a row of the table and the method that uses it.

mod family;
mod handles;
pub mod process;

use std::sync::{Arc, LazyLock};
use std::time::UNIX_EPOCH;

use parking_lot::Mutex;
use prometheus::{Encoder, IntCounter, IntGauge, Registry, TextEncoder};

pub use family::MetricRow;
use family::{Counter, Durations, Family, FloatCounter, FloatGauge, Gauge, Metric, metrics};
pub use handles::{RouteMetrics, SignatureMetrics, ToolMetrics};

pub static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

pub struct Metrics {
    registry: Registry,
    table: Table,
    pub signatures: SignatureMetrics,
    sources: Mutex<Vec<MetricSource>>,
}

/// Sets gauges at render time; false once there is nothing left to measure.
type MetricSource = Box<dyn Fn(&Metrics) -> bool + Send>;

metrics! {
    Table, CATALOGUE:
    audit_lost: Counter "ati_audit_lost_total" []
        "Tool calls and audited requests to routes whose audit line could not be written.";
    build_info: Gauge "ati_build_info" ["version"]
        "Always 1; the label is the version that runs.";
    bytes: Counter "ati_bytes_total" ["route", "direction"]
        "Bytes of bodies: `in` from callers, `out` to callers. A WebSocket's are counted at its end.";
    call_log_dropped: Counter "ati_call_log_dropped_total" []
        "Rows of the call log that were dropped: the database didn't take them in time.";
    call_log_waiting: Gauge "ati_call_log_waiting_rows" []
        "Rows of the call log that wait to be written.";
    call_log_written: Counter "ati_call_log_written_total" []
        "Rows of the call log that the database has taken.";
    call_memory: Gauge "ati_call_memory_bytes" []
        "Memory that bodies of calls take, of `max_memory_bytes`.";
    certificate_expires: Gauge "ati_certificate_expires_timestamp_seconds" ["listener"]
        "When the certificate in use expires.";
    compute_jobs: Gauge "ati_compute_jobs" ["state"]
        "Long work on calls: parsing, validation, `extract`. `waiting` or `running`.";
    connections: Gauge "ati_connections" ["listener"]
        "Open client connections.";
    credential_missing: Gauge "ati_credential_missing" ["name"]
        "1 while a configured credential name is not in the keyring.";
    credential_success: Gauge "ati_credential_last_success_timestamp_seconds" ["name"]
        "When an upstream last accepted a request with this credential.";
    credential_refused: Counter "ati_credential_refused_total" ["name"]
        "Answers of 401 or 403 to a request with this credential.";
    in_flight: Gauge "ati_in_flight" ["route"]
        "Requests being served.";
    file_spool: Gauge "ati_file_spool_bytes" []
        "Disk space that files of `file_manager` and of programs take, of `[files] spool_bytes`.";
    keyring_loaded: FloatGauge "ati_keyring_loaded_timestamp_seconds" []
        "When the keyring in use was loaded.";
    limits_local: Counter "ati_limits_counted_locally_total" []
        "Calls that this edge counted against their limits alone, because the database was away.";
    log_dropped: Counter "ati_log_lines_dropped_total" []
        "Log lines lost because stderr was not read fast enough.";
    old_keys: Counter "ati_old_key_uses_total" ["kind", "key"]
        "Requests that used an old key: `signature` with the previous secret, `jwt` \
         with a key other than the first.";
    otlp_spans: Counter "ati_otlp_spans_total" ["outcome"]
        "Spans for the OTLP collector: `sent`, `failed` (the collector didn't take them) or \
         `dropped` (too many were waiting).";
    provider_up: Gauge "ati_provider_up" ["provider"]
        "1 where the last attempt to list an MCP provider's tools succeeded, 0 where it failed.";
    process_cpu: FloatCounter "process_cpu_seconds_total" []
        "CPU time of the process, user and system together.";
    process_max_fds: FloatGauge "process_max_fds" []
        "The limit on open file descriptors.";
    process_open_fds: Gauge "process_open_fds" []
        "Open file descriptors.";
    process_resident: Gauge "process_resident_memory_bytes" []
        "Memory of the process that is in RAM.";
    process_started: FloatGauge "process_start_time_seconds" []
        "When the process started.";
    process_threads: Gauge "process_threads" []
        "Threads of the process.";
    process_virtual: Gauge "process_virtual_memory_bytes" []
        "Address space of the process.";
    refusals: Counter "ati_refusals_total" ["reason"]
        "Requests and connections that ati refused, by reason. An upstream's failure is none.";
    reloads: Counter "ati_reloads_total" ["outcome"]
        "SIGHUP reloads: ok or failed.";
    request_durations: Durations "ati_request_duration_seconds" ["route"]
        "From the header of a request to the last byte of its answer.";
    requests: Counter "ati_requests_total" ["route", "method", "status"]
        "Requests by route, method and status class.";
    signatures: Counter "ati_signatures_total" ["mode", "reason"]
        "Checked signatures by the mode and the verdict, `valid` or what is wrong, in every mode.";
    skill_registry: Counter "ati_skill_registry_reads_total" ["result"]
        "Looks at the catalogue of the skill registry: `changed`, `unchanged` or `failed`.";
    spool: Gauge "ati_spool_bytes" []
        "Disk space that bodies and answers of calls take, of `max_spool_bytes`.";
    store_connected: Gauge "ati_store_connected" []
        "1 while the database answers, 0 while it is away. Absent without a database.";
    stored_credentials: Gauge "ati_stored_credentials" ["state"]
        "Credentials in the database: `readable`, or `unreadable` for want of their master key.";
    tool_calls: Counter "ati_tool_calls_total" ["provider", "tool", "outcome"]
        "Tool calls: `ok`, or the reason of the failure.";
    tool_durations: Durations "ati_tool_duration_seconds" ["provider"]
        "From a tool call to its result, credentials and retries included.";
    tls_failures: Counter "ati_tls_handshake_failures_total" ["listener"]
        "Connections that ended before the TLS handshake was complete.";
    token_cache: Counter "ati_token_cache_total" ["result"]
        "JWTs found in the cache of verified tokens (hit), or verified (miss).";
    upstream_errors: Counter "ati_upstream_errors_total" ["route", "kind"]
        "Failed upstreams: dns, connect, connect_timeout, tls, timeout, closed, \
         protocol, too_large, unsearchable.";
    upstream_durations: Durations "ati_upstream_duration_seconds" ["route"]
        "The upstream's part of a request: from the first attempt to connect to the last byte of \
         its answer.";
}

impl Metrics {
    fn new() -> Self {
        let registry = Registry::new();
        let table = Table::register(&registry);
        table.build_info.with([env!("CARGO_PKG_VERSION")]).set(1);
        // Series that alerts are written on exist from the start, at zero.
        for outcome in ["ok", "failed"] {
            table.reloads.with([outcome]);
        }
        for result in ["hit", "miss"] {
            table.token_cache.with([result]);
        }
        Metrics {
            registry,
            signatures: SignatureMetrics::new(&table.signatures),
            table,
            sources: Mutex::default(),
        }
    }

    /// The metrics of one route, to be kept with it.
    pub fn route(&self, name: &str) -> Arc<RouteMetrics> {
        Arc::new(RouteMetrics::new(name))
    }

    /// The metrics of one tool, to be kept with it.
    pub fn tool(&self, provider: &str, tool: &str) -> ToolMetrics {
        ToolMetrics::new(provider, tool)
    }

    /// `result` is one of those of the table.
    pub fn skill_registry_read(&self, result: &'static str) {
        self.table.skill_registry.with([result]).inc();
    }

    pub fn otlp_spans(&self, outcome: &'static str, spans: u64) {
        self.table.otlp_spans.with([outcome]).inc_by(spans);
    }

    pub fn audit_lost(&self, lines: u64) {
        self.table.audit_lost.with([]).inc_by(lines);
    }

    pub fn limit_counted_locally(&self) {
        self.table.limits_local.with([]).inc();
    }

    pub fn call_log_dropped(&self, rows: u64) {
        self.table.call_log_dropped.with([]).inc_by(rows);
    }

    pub fn call_log_written(&self, rows: u64) {
        self.table.call_log_written.with([]).inc_by(rows);
    }

    pub fn set_store_connected(&self, connected: bool) {
        self.table
            .store_connected
            .with([])
            .set(i64::from(connected));
    }

    pub fn set_call_log_waiting(&self, rows: usize) {
        let rows = i64::try_from(rows).unwrap_or(i64::MAX);
        self.table.call_log_waiting.with([]).set(rows);
    }

    pub fn refused(&self, reason: &'static str) {
        self.table.refusals.with([reason]).inc();
    }

    pub fn upstream_failed(&self, route: &str, kind: &'static str) {
        self.table.upstream_errors.with([route, kind]).inc();
    }

    pub fn reloaded(&self, ok: bool) {
        let outcome = if ok { "ok" } else { "failed" };
        self.table.reloads.with([outcome]).inc();
    }

    pub fn old_key_used(&self, kind: &'static str, key: &str) {
        self.table.old_keys.with([kind, key]).inc();
    }

    /// How many reloads succeeded, and how many failed.
    pub fn reloads(&self) -> (u64, u64) {
        let count = |outcome: &str| self.table.reloads.with([outcome]).get();
        (count("ok"), count("failed"))
    }

    pub fn token_cache(&self, result: &'static str) -> IntCounter {
        self.table.token_cache.with([result])
    }

    pub fn tls_failed(&self, listener: &str) {
        self.table.tls_failures.with([listener]).inc();
    }

    pub fn certificate_expires(&self, listener: &str, at: i64) {
        self.table.certificate_expires.with([listener]).set(at);
    }

    /// Unix seconds.
    pub fn keyring_loaded(&self, at: f64) {
        self.table.keyring_loaded.with([]).set(at);
    }

    pub fn connections(&self, listener: &str) -> IntGauge {
        self.table.connections.with([listener])
    }

    /// Bytes of bodies of calls in memory, and in temporary files.
    pub fn set_call_bytes(&self, memory: u64, spool: u64) {
        let set = |gauge: IntGauge, bytes: u64| gauge.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        set(self.table.call_memory.with([]), memory);
        set(self.table.spool.with([]), spool);
    }

    /// Bytes of files in temporary files.
    pub fn set_file_bytes(&self, spool: u64) {
        let bytes = i64::try_from(spool).unwrap_or(i64::MAX);
        self.table.file_spool.with([]).set(bytes);
    }

    pub fn set_compute_jobs(&self, waiting: usize, running: usize) {
        for (state, jobs) in [("waiting", waiting), ("running", running)] {
            let jobs = i64::try_from(jobs).unwrap_or(i64::MAX);
            self.table.compute_jobs.with([state]).set(jobs);
        }
    }

    /// How many credentials the database has, and how many of them can't be read.
    pub fn set_stored_credentials(&self, all: usize, unreadable: usize) {
        let readable = all.saturating_sub(unreadable);
        for (state, rows) in [("readable", readable), ("unreadable", unreadable)] {
            let rows = i64::try_from(rows).unwrap_or(i64::MAX);
            self.table.stored_credentials.with([state]).set(rows);
        }
    }

    pub fn set_provider_up(&self, provider: &str, up: bool) {
        self.table.provider_up.with([provider]).set(i64::from(up));
    }

    /// For a provider that is no longer configured.
    pub fn remove_provider(&self, provider: &str) {
        self.table.provider_up.remove([provider]);
    }

    /// Replaces the whole set: a credential that is no longer missing has no series.
    pub fn set_missing_credentials<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        self.table.credential_missing.reset();
        for name in names {
            self.table.credential_missing.with([name]).set(1);
        }
    }

    /// Runs `source` before each rendering, until it returns false: for gauges whose value is only
    /// worth reading when it is asked for, such as the size of a pool. It must neither block nor
    /// call `render` or `add_source`.
    pub fn add_source(&self, source: impl Fn(&Metrics) -> bool + Send + 'static) {
        self.sources.lock().push(Box::new(source));
    }

    /// Prometheus's text format.
    pub fn render(&self) -> String {
        self.sources.lock().retain(|source| source(self));
        self.read_log_writer();
        self.read_credential_health();
        self.read_process();
        let mut out = Vec::new();
        let encoded = TextEncoder::new().encode(&self.registry.gather(), &mut out);
        debug_assert!(encoded.is_ok());
        String::from_utf8(out).unwrap_or_default()
    }

    fn read_log_writer(&self) {
        catch_up(&self.table.log_dropped.with([]), super::dropped_lines());
    }

    fn read_process(&self) {
        let (table, usage) = (&self.table, process::Usage::read());
        if let Some(seconds) = usage.cpu_seconds {
            let cpu = table.process_cpu.with([]);
            cpu.inc_by((seconds - cpu.get()).max(0.0));
        }
        for (gauge, value) in [
            (&table.process_open_fds, usage.open_files),
            (&table.process_resident, usage.resident_bytes),
            (&table.process_virtual, usage.virtual_bytes),
            (&table.process_threads, usage.threads),
        ] {
            if let Some(value) = value {
                gauge.with([]).set(value);
            }
        }
        table
            .process_max_fds
            .with([])
            .set(process::most_open_files());
        let started = process::started().duration_since(UNIX_EPOCH);
        let started = started.unwrap_or_default().as_secs_f64();
        table.process_started.with([]).set(started);
    }

    fn read_credential_health(&self) {
        for key in super::health::report() {
            catch_up(
                &self.table.credential_refused.with([&key.name]),
                key.refused,
            );
            if let Some(at) = key.last_success {
                let success = self.table.credential_success.with([&key.name]);
                success.set(i64::try_from(at).unwrap_or_default());
            }
        }
    }
}

/// Raises a counter to a total that is counted in another place.
fn catch_up(counter: &IntCounter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Verdict;
    use http::Method;

    #[test]
    fn unknown_method_is_counted_as_other() {
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
    fn signature_of_every_drift_is_counted_under_one_reason() {
        let metrics = Metrics::new();
        for drift in [61, 62] {
            metrics.signatures.count("warn", Verdict::Expired { drift });
        }
        metrics.signatures.count("warn", Verdict::ValidPrevious);
        metrics.signatures.count("no such mode", Verdict::Valid);
        let text = metrics.render();
        for line in [
            r#"ati_signatures_total{mode="warn",reason="expired_timestamp"} 2"#,
            r#"ati_signatures_total{mode="warn",reason="valid"} 1"#,
            r#"ati_signatures_total{mode="log",reason="valid"} 0"#,
        ] {
            assert!(text.contains(line), "{line}");
        }
    }

    #[test]
    fn metrics_without_labels_are_rendered_from_the_start() {
        let text = METRICS.render();
        for row in CATALOGUE.iter().filter(|row| row.labels.is_empty()) {
            let line = format!("# TYPE {} {}\n{} ", row.name, row.kind, row.name);
            assert!(text.contains(&line), "{line}");
        }
    }

    #[test]
    fn source_is_asked_at_each_rendering_until_it_is_over() {
        let metrics = Metrics::new();
        let asked = Arc::new(Mutex::new(0));
        let counted = asked.clone();
        metrics.add_source(move |metrics| {
            *counted.lock() += 1;
            metrics.connections("test-source").set(*counted.lock());
            *counted.lock() < 2
        });
        let line = |n: i64| format!(r#"ati_connections{{listener="test-source"}} {n}"#);
        assert!(metrics.render().contains(&line(1)));
        for _ in 0..2 {
            assert!(metrics.render().contains(&line(2)));
        }
        assert_eq!(*asked.lock(), 2);
    }
}
