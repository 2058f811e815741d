//! The environment of OpenTelemetry: where spans and metrics go, and under which name. Headers for
//! the collector and compression are read by the exporter's library itself, by the same names; what
//! it would leave out without a word is a warning here.

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use url::Url;

use crate::error::Problem;
use crate::telemetry::otel::Batching;
use crate::telemetry::otel::sampler::Sampler;

const BASE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const PROTOCOL: &str = "http/protobuf";
const PROTOCOLS: [&str; 3] = [
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
];
const HEADERS: [&str; 3] = [
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
];
const COMPRESSIONS: [&str; 3] = [
    "OTEL_EXPORTER_OTLP_COMPRESSION",
    "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION",
    "OTEL_EXPORTER_OTLP_METRICS_COMPRESSION",
];
const DISABLED: &str = "OTEL_SDK_DISABLED";
const QUEUE: &str = "OTEL_BSP_MAX_QUEUE_SIZE";
/// The largest queue, in spans. One has about a kilobyte.
const LARGEST_QUEUE: usize = 1 << 20;
/// How long an export may take.
const TIMEOUT: Duration = Duration::from_secs(10);
const SPAN_DELAY: Duration = Duration::from_secs(2);
/// Spans that wait. The library's own default of 2,048 is less than what a busy edge makes in the
/// time of one export.
const MOST_SPANS: usize = 16 << 10;
/// How often metrics are sent.
const METRIC_INTERVAL: Duration = Duration::from_secs(10);

/// What is exported, and how.
#[derive(Debug, Clone)]
pub struct OtlpVariables {
    /// Where spans are sent. None: nowhere.
    pub traces: Option<Url>,
    /// Where metrics are sent. None: nowhere.
    pub metrics: Option<Url>,
    pub service_name: String,
    /// `deployment.environment`.
    pub tier: Option<String>,
    /// Of `OTEL_RESOURCE_ATTRIBUTES`, without `service.name`.
    pub resource: Vec<(String, String)>,
    pub sampler: Sampler,
    pub timeout: Duration,
    pub batching: Batching,
    pub metric_interval: Duration,
}

impl OtlpVariables {
    /// None where nothing is exported. What can't be used is a warning: a server without telemetry
    /// is better than none.
    pub fn read(
        mut filled: impl FnMut(&str) -> Option<String>,
        warnings: &mut Vec<Problem>,
    ) -> Option<Self> {
        let disabled = filled(DISABLED).map(|value| value.trim().to_ascii_lowercase());
        if disabled.as_deref() == Some("true") {
            return None;
        }
        let traces = endpoint(&mut filled, "TRACES", "v1/traces", warnings);
        let metrics = endpoint(&mut filled, "METRICS", "v1/metrics", warnings);
        if traces.is_none() && metrics.is_none() {
            return None;
        }
        if disabled.is_some_and(|value| value != "false") {
            let message = "expected true or false; spans and metrics are exported";
            warnings.push(Problem::new(message).key(DISABLED));
        }
        check_transport(&mut filled, warnings);
        let mut resource = attributes(filled("OTEL_RESOURCE_ATTRIBUTES").as_deref(), warnings);
        let named = resource
            .iter()
            .rposition(|(name, _)| name == "service.name");
        let named = named.map(|at| resource.remove(at).1);
        resource.retain(|(name, _)| name != "service.name");
        let service_name = filled("OTEL_SERVICE_NAME").or_else(|| filled("SERVICE_NAME"));
        let name = filled("OTEL_TRACES_SAMPLER");
        let argument = filled("OTEL_TRACES_SAMPLER_ARG");
        let (sampler, unknown) = Sampler::read(name.as_deref(), argument.as_deref());
        warnings.extend(unknown.map(|it| Problem::new(it.message).key(it.variable)));
        let most_waiting = most_waiting(filled(QUEUE).as_deref(), warnings);
        let mut millis = |name: &str, default| milliseconds(&mut filled, name, default, warnings);
        Some(OtlpVariables {
            timeout: millis("OTEL_EXPORTER_OTLP_TIMEOUT", TIMEOUT),
            batching: Batching {
                delay: millis("OTEL_BSP_SCHEDULE_DELAY", SPAN_DELAY),
                most_waiting,
            },
            metric_interval: millis("OTEL_METRIC_EXPORT_INTERVAL", METRIC_INTERVAL),
            traces,
            metrics,
            service_name: service_name
                .or(named)
                .unwrap_or_else(|| "ati-proxy".to_owned()),
            tier: filled("ENVIRONMENT_TIER")
                .map(|tier| tier.trim().to_owned())
                .filter(|tier| !tier.is_empty()),
            resource,
            sampler,
        })
    }
}

/// A signal's own variable is used as it is; the common one gets the signal's path.
fn endpoint(
    filled: &mut impl FnMut(&str) -> Option<String>,
    signal: &str,
    path: &str,
    warnings: &mut Vec<Problem>,
) -> Option<Url> {
    let variable = format!("OTEL_{signal}_EXPORTER");
    let exporter = filled(&variable).map(|value| value.trim().to_ascii_lowercase());
    if exporter.as_deref() == Some("none") {
        return None;
    }
    let own = format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT");
    let (name, text) = match filled(&own) {
        Some(text) => (own, text),
        None => (BASE.to_owned(), filled(BASE)?),
    };
    if exporter.is_some_and(|exporter| exporter != "otlp") {
        let message = "otlp and none are known; it is sent by OTLP";
        warnings.push(Problem::new(message).key(&variable));
    }
    let mut url = Url::parse(text.trim())
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if let (BASE, Some(url)) = (name.as_str(), &mut url) {
        let below = format!("{}/{path}", url.path().trim_end_matches('/'));
        url.set_path(&below);
    }
    if url.is_none() {
        // The value isn't repeated: a URL may hold a password.
        let message = "it is no http:// or https:// URL; nothing is sent";
        let problem = Problem::new(message).key(&name);
        if !warnings.contains(&problem) {
            warnings.push(problem);
        }
    }
    url
}

/// What the library reads itself, and ignores where it can't use it.
fn check_transport(filled: &mut impl FnMut(&str) -> Option<String>, warnings: &mut Vec<Problem>) {
    for name in PROTOCOLS {
        if filled(name).is_some_and(|value| value.trim() != PROTOCOL) {
            let message = format!("{PROTOCOL} is the only protocol, and is used all the same");
            warnings.push(Problem::new(message).key(name));
        }
    }
    for name in COMPRESSIONS {
        let value = filled(name).map(|value| value.trim().to_ascii_lowercase());
        if value.is_some_and(|value| !matches!(value.as_str(), "gzip" | "none")) {
            let message = "gzip and none are known; it is ignored";
            warnings.push(Problem::new(message).key(name));
        }
    }
    for name in HEADERS {
        let value = filled(name).unwrap_or_default();
        let parts = value.split(',').enumerate();
        let parts = parts.filter(|(_, part)| !part.trim().is_empty() && !is_header(part));
        for (at, _) in parts {
            // The value isn't repeated: headers hold credentials.
            let at = at + 1;
            let message = format!("its part {at} is no name=value of a header, and is left out");
            warnings.push(Problem::new(message).key(name));
        }
    }
}

fn is_header(part: &str) -> bool {
    let Some((name, value)) = part.split_once('=') else {
        return false;
    };
    // What can't be decoded is sent as it is.
    let decoded = percent_encoding::percent_decode_str(value.trim()).decode_utf8();
    let value = decoded.as_deref().unwrap_or(value);
    let is_value = !value.is_empty() && HeaderValue::from_str(value).is_ok();
    is_value && HeaderName::try_from(name.trim()).is_ok()
}

fn most_waiting(text: Option<&str>, warnings: &mut Vec<Problem>) -> usize {
    let Some(text) = text else {
        return MOST_SPANS;
    };
    match text.trim().parse() {
        Ok(most @ 1..=LARGEST_QUEUE) => most,
        _ => {
            let message = format!("expected 1 to {LARGEST_QUEUE} spans; it is {MOST_SPANS}");
            warnings.push(Problem::new(message).key(QUEUE));
            MOST_SPANS
        }
    }
}

/// `name=value` by commas, with percent-encoded values.
fn attributes(text: Option<&str>, warnings: &mut Vec<Problem>) -> Vec<(String, String)> {
    let parts = text.unwrap_or_default().split(',').map(str::trim);
    let parts = parts.enumerate().filter(|(_, part)| !part.is_empty());
    let mut found = Vec::new();
    for (at, part) in parts {
        let value = part.split_once('=').and_then(|(name, value)| {
            let value = percent_encoding::percent_decode_str(value.trim());
            let value = value.decode_utf8().ok()?.into_owned();
            Some((name.trim().to_owned(), value))
        });
        match value.filter(|(name, _)| !name.is_empty()) {
            Some(attribute) => found.push(attribute),
            None => {
                let message = format!("its part {} is no name=value, and is left out", at + 1);
                warnings.push(Problem::new(message).key("OTEL_RESOURCE_ATTRIBUTES"));
            }
        }
    }
    found
}

fn milliseconds(
    filled: &mut impl FnMut(&str) -> Option<String>,
    name: &str,
    default: Duration,
    warnings: &mut Vec<Problem>,
) -> Duration {
    let Some(text) = filled(name) else {
        return default;
    };
    match text.trim().parse() {
        Ok(millis @ 1..=3_600_000) => Duration::from_millis(millis),
        _ => {
            let message = format!(
                "expected milliseconds, up to an hour; it is {} ms",
                default.as_millis()
            );
            warnings.push(Problem::new(message).key(name));
            default
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Option<OtlpVariables>, Vec<Problem>) {
        let mut warnings = Vec::new();
        let filled = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let read = OtlpVariables::read(filled, &mut warnings);
        (read, warnings)
    }

    fn urls(variables: &[(&str, &str)]) -> [Option<String>; 2] {
        let (read, warnings) = read(variables);
        assert_eq!(warnings, []);
        let read = read.unwrap();
        [read.traces, read.metrics].map(|url| url.map(String::from))
    }

    #[test]
    fn endpoint_is_the_base_with_a_path_or_the_signal_s_own() {
        let both = |base: &str| {
            let urls = urls(&[(BASE, base)]);
            urls.map(Option::unwrap)
        };
        let wanted = [
            "http://c:4318/otlp/v1/traces",
            "http://c:4318/otlp/v1/metrics",
        ];
        assert_eq!(both("http://c:4318/otlp"), wanted);
        assert_eq!(both(" http://c:4318/otlp/ "), wanted);
        let own = [
            (BASE, "http://c:1"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:2/in"),
        ];
        let wanted = ["http://t:2/in", "http://c:1/v1/metrics"];
        assert_eq!(urls(&own).map(Option::unwrap), wanted);
        let only = [("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m:3/in")];
        assert_eq!(urls(&only), [None, Some("http://m:3/in".to_owned())]);
        let none = [(BASE, "http://c:1"), ("OTEL_TRACES_EXPORTER", "None")];
        assert_eq!(urls(&none)[0], None);
        let query = [(BASE, "http://c:1/x/?key=value")].map(|base| urls(&[base])[0].clone());
        assert_eq!(
            query[0].as_deref(),
            Some("http://c:1/x/v1/traces?key=value")
        );
    }

    #[test]
    fn nothing_is_exported_without_an_endpoint() {
        assert!(read(&[("OTEL_SERVICE_NAME", "x")]).0.is_none());
        for value in ["true", " TRUE "] {
            assert!(read(&[(BASE, "http://c:1"), (DISABLED, value)]).0.is_none());
        }
    }

    #[test]
    fn endpoint_that_is_no_url_is_one_warning_without_its_value() {
        let (read, warnings) = read(&[(BASE, "ftp://user:planted-password@host")]);
        assert!(read.is_none());
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(
            warnings
                .iter()
                .all(|it| !it.to_string().contains("planted"))
        );
    }

    #[test]
    fn service_name_is_taken_from_the_first_that_names_it() {
        let name = |variables: &[(&str, &str)]| {
            let mut all = vec![(BASE, "http://c:1")];
            all.extend(variables);
            read(&all).0.unwrap().service_name
        };
        let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=c,x=y%20z");
        assert_eq!(name(&[]), "ati-proxy");
        assert_eq!(name(&[attributes]), "c");
        assert_eq!(name(&[attributes, ("SERVICE_NAME", "b")]), "b");
        let all = [
            attributes,
            ("SERVICE_NAME", "b"),
            ("OTEL_SERVICE_NAME", "a"),
        ];
        assert_eq!(name(&all), "a");
        let (read, _) = read(&[(BASE, "http://c:1"), attributes]);
        assert_eq!(read.unwrap().resource, [("x".to_owned(), "y z".to_owned())]);
    }

    #[test]
    fn other_protocol_is_a_warning_and_spans_are_sent_all_the_same() {
        for (value, expected) in [("grpc", 3), ("http/json", 3), (" http/protobuf ", 0)] {
            let variables = PROTOCOLS.map(|name| (name, value));
            let (exports, warnings) = read(&[&[(BASE, "http://c:1")], &variables[..]].concat());
            assert!(exports.unwrap().traces.is_some());
            assert_eq!(warnings.len(), expected, "{warnings:?}");
        }
        let (_, warnings) = read(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
        assert_eq!(warnings, [], "nothing is exported");
    }

    #[test]
    fn value_that_can_t_be_read_is_a_warning_and_its_default() {
        let (read, warnings) = read(&[
            (BASE, "http://c:1"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=1,b"),
        ]);
        let read = read.unwrap();
        assert_eq!(read.timeout, TIMEOUT);
        assert_eq!(read.resource.len(), 1);
        assert_eq!(warnings.len(), 3);
    }

    #[test]
    fn value_that_is_ignored_is_one_warning_without_it() {
        let cases = [
            (DISABLED, "planted-1"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "planted-garbage"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=b,planted name=x"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=b,planted-empty="),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "planted-zstd"),
            (QUEUE, "0"),
            (QUEUE, "planted-abc"),
            ("OTEL_TRACES_EXPORTER", "planted-console"),
            ("OTEL_METRICS_EXPORTER", "planted-prometheus"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=b,planted-part"),
        ];
        for (name, value) in cases {
            let (exports, warnings) = read(&[(BASE, "http://c:1"), (name, value)]);
            let exports = exports.unwrap();
            assert!(exports.traces.is_some() && exports.metrics.is_some());
            assert_eq!(exports.batching.most_waiting, MOST_SPANS);
            assert_eq!(warnings.len(), 1, "{name}={value}: {warnings:?}");
            let warning = warnings[0].to_string();
            assert!(
                warning.contains(name) && !warning.contains("planted"),
                "{warning}"
            );
            assert_eq!(warning.contains("part 2"), value.contains(','), "{warning}");
            assert_eq!(read(&[(name, value)]).1, [], "nothing is exported");
        }
    }

    #[test]
    fn value_that_can_be_used_is_no_warning() {
        let cases = [
            (DISABLED, "False"),
            (
                HEADERS[0],
                "authorization=Basic%20abc, x-tenant = 1,,percent=%ff",
            ),
            (COMPRESSIONS[0], "GZIP"),
            (COMPRESSIONS[1], "none"),
            (QUEUE, " 1 "),
            ("OTEL_TRACES_EXPORTER", "otlp"),
        ];
        for (name, value) in cases {
            assert_eq!(read(&[(BASE, "http://c:1"), (name, value)]).1, [], "{name}");
        }
    }
}
