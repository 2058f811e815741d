//! The environment of OpenTelemetry: where spans and metrics go, and under which name. Headers for
//! the collector and compression are read by the exporter's library itself, by the same names.

use std::time::Duration;

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
        if filled("OTEL_SDK_DISABLED").is_some_and(|value| value.trim() == "true") {
            return None;
        }
        let traces = endpoint(&mut filled, "TRACES", "v1/traces", warnings);
        let metrics = endpoint(&mut filled, "METRICS", "v1/metrics", warnings);
        if traces.is_none() && metrics.is_none() {
            return None;
        }
        for name in PROTOCOLS {
            let other = filled(name).is_some_and(|value| value.trim() != PROTOCOL);
            if other {
                let message = format!("{PROTOCOL} is the only protocol, and is used all the same");
                warnings.push(Problem::new(message).key(name));
            }
        }
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
        let most_waiting = filled("OTEL_BSP_MAX_QUEUE_SIZE");
        let most_waiting = most_waiting.and_then(|text| text.trim().parse().ok());
        let most_waiting = most_waiting.filter(|most| (1..=1 << 20).contains(most));
        let most_waiting = most_waiting.unwrap_or(MOST_SPANS);
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
            tier: filled("ENVIRONMENT_TIER"),
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
    let exporter = filled(&format!("OTEL_{signal}_EXPORTER"));
    if exporter.is_some_and(|exporter| exporter.trim() == "none") {
        return None;
    }
    let own = format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT");
    let (name, text) = match filled(&own) {
        Some(text) => (own, text.trim().to_owned()),
        None => {
            let base = filled(BASE)?;
            let base = base.trim().trim_end_matches('/');
            (BASE.to_owned(), format!("{base}/{path}"))
        }
    };
    let url = Url::parse(&text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
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

/// `name=value` by commas, with percent-encoded values.
fn attributes(text: Option<&str>, warnings: &mut Vec<Problem>) -> Vec<(String, String)> {
    let parts = text.unwrap_or_default().split(',');
    let parts = parts.map(str::trim).filter(|part| !part.is_empty());
    let mut found = Vec::new();
    for part in parts {
        let value = part.split_once('=').and_then(|(name, value)| {
            let value = percent_encoding::percent_decode_str(value.trim());
            let value = value.decode_utf8().ok()?.into_owned();
            Some((name.trim().to_owned(), value))
        });
        match value.filter(|(name, _)| !name.is_empty()) {
            Some(attribute) => found.push(attribute),
            None => warnings.push(
                Problem::new("expected name=value, and commas between them; a part is left out")
                    .key("OTEL_RESOURCE_ATTRIBUTES"),
            ),
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
        let none = [(BASE, "http://c:1"), ("OTEL_TRACES_EXPORTER", "none")];
        assert_eq!(urls(&none)[0], None);
    }

    #[test]
    fn nothing_is_exported_without_an_endpoint() {
        assert!(read(&[("OTEL_SERVICE_NAME", "x")]).0.is_none());
        let disabled = [(BASE, "http://c:1"), ("OTEL_SDK_DISABLED", "true")];
        assert!(read(&disabled).0.is_none());
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
}
