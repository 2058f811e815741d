//! Which traces are recorded: the standard variables `OTEL_TRACES_SAMPLER` and
//! `OTEL_TRACES_SAMPLER_ARG`.

use opentelemetry::trace::{SpanKind, TraceId};
use opentelemetry_sdk::trace::{Sampler as Root, SamplingDecision, ShouldSample as _};

/// Decides when a request begins, because what ati sends on has to say it.
#[derive(Debug, Clone)]
pub struct Sampler {
    /// A caller that says whether its trace is recorded is followed.
    follows_parent: bool,
    root: Root,
}

/// A value of the variables that means nothing.
#[derive(Debug, PartialEq, Eq)]
pub struct Unknown {
    pub variable: &'static str,
    pub message: &'static str,
}

impl Default for Sampler {
    fn default() -> Self {
        Sampler {
            follows_parent: true,
            root: Root::AlwaysOn,
        }
    }
}

impl Sampler {
    /// What can't be read is a warning, and records all traces: an operator who set it wants to see
    /// some.
    pub fn read(name: Option<&str>, argument: Option<&str>) -> (Self, Option<Unknown>) {
        let Some(name) = name else {
            return (Sampler::default(), None);
        };
        let name = name.trim().to_ascii_lowercase();
        let (follows_parent, kind) = match name.strip_prefix("parentbased_") {
            Some(kind) => (true, kind),
            None => (false, name.as_str()),
        };
        let (root, unknown) = match kind {
            "always_on" => (Root::AlwaysOn, None),
            "always_off" => (Root::AlwaysOff, None),
            "traceidratio" => ratio(argument),
            _ => {
                let unknown = Unknown {
                    variable: "OTEL_TRACES_SAMPLER",
                    message: "no known sampler: always_on, always_off, traceidratio, or one of \
                              them with parentbased_ before it; all traces are recorded",
                };
                return (Sampler::default(), Some(unknown));
            }
        };
        let sampler = Sampler {
            follows_parent,
            root,
        };
        (sampler, unknown)
    }

    /// `parent` is what the caller says of its own span.
    pub fn samples(&self, trace: TraceId, parent: Option<bool>) -> bool {
        if let (true, Some(sampled)) = (self.follows_parent, parent) {
            return sampled;
        }
        let kind = SpanKind::Server;
        let result = self.root.should_sample(None, trace, "", &kind, &[], &[]);
        result.decision == SamplingDecision::RecordAndSample
    }
}

fn ratio(argument: Option<&str>) -> (Root, Option<Unknown>) {
    let Some(text) = argument else {
        return (Root::AlwaysOn, None);
    };
    match text.trim().parse::<f64>() {
        Ok(part) if (0.0..=1.0).contains(&part) => (Root::TraceIdRatioBased(part), None),
        _ => {
            let unknown = Unknown {
                variable: "OTEL_TRACES_SAMPLER_ARG",
                message: "expected a number from 0 to 1; all traces are recorded",
            };
            (Root::AlwaysOn, Some(unknown))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(number: u64) -> TraceId {
        TraceId::from_bytes((u128::from(number) | 1 << 64).to_be_bytes())
    }

    /// A fraction of all traces, from ids that are spread evenly.
    fn share(sampler: &Sampler, parent: Option<bool>) -> f64 {
        let step = u64::MAX / 1000;
        let sampled = (0..1000u64).filter(|n| sampler.samples(trace(n * step), parent));
        sampled.count() as f64 / 1000.0
    }

    #[test]
    fn sampler_of_each_name_records_its_share() {
        let cases = [
            (None, None, [1.0, 1.0, 0.0]),
            (Some("always_on"), None, [1.0, 1.0, 1.0]),
            (Some("always_off"), None, [0.0, 0.0, 0.0]),
            (Some(" Always_Off "), None, [0.0, 0.0, 0.0]),
            (Some("parentbased_always_off"), None, [0.0, 1.0, 0.0]),
            (Some("traceidratio"), Some("0.25"), [0.25, 0.25, 0.25]),
            (
                Some("parentbased_traceidratio"),
                Some("0.25"),
                [0.25, 1.0, 0.0],
            ),
        ];
        for (name, argument, wanted) in cases {
            let (sampler, unknown) = Sampler::read(name, argument);
            assert_eq!(unknown, None);
            let shares = [None, Some(true), Some(false)].map(|parent| share(&sampler, parent));
            for (share, wanted) in shares.iter().zip(wanted) {
                assert!((share - wanted).abs() < 0.01, "{name:?}: {shares:?}");
            }
        }
    }

    #[test]
    fn sampler_that_is_unknown_is_named_and_records_all() {
        let cases = [
            (("xray", None), "OTEL_TRACES_SAMPLER"),
            (("traceidratio", Some("2")), "OTEL_TRACES_SAMPLER_ARG"),
            (("traceidratio", Some("ten")), "OTEL_TRACES_SAMPLER_ARG"),
            (("traceidratio", Some("NaN")), "OTEL_TRACES_SAMPLER_ARG"),
        ];
        for ((name, argument), variable) in cases {
            let (sampler, unknown) = Sampler::read(Some(name), argument);
            assert_eq!(unknown.unwrap().variable, variable);
            assert_eq!(share(&sampler, None), 1.0);
        }
    }
}
