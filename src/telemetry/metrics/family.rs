//! Metrics of a fixed number of labels, and the macro that makes all of them from one table.

use prometheus::core::Collector;
use prometheus::{
    CounterVec, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry,
};

const BUCKETS: [f64; 16] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];

/// A kind of metric, as the `prometheus` crate has it.
pub(super) trait Family: Collector + Clone + 'static {
    /// One time series: the metric with a value for each label.
    type Series;
    /// As the reference page names it.
    const KIND: &'static str;

    fn create(options: Opts, labels: &[&str]) -> prometheus::Result<Self>;
    fn series(&self, values: &[&str]) -> Self::Series;
}

macro_rules! family {
    ($family:ty, $series:ty, $kind:literal, $create:expr) => {
        impl Family for $family {
            type Series = $series;
            const KIND: &'static str = $kind;

            fn create(options: Opts, labels: &[&str]) -> prometheus::Result<Self> {
                $create(options, labels)
            }

            fn series(&self, values: &[&str]) -> $series {
                self.with_label_values(values)
            }
        }
    };
}

pub(super) type Counter = IntCounterVec;
pub(super) type FloatCounter = CounterVec;
pub(super) type Gauge = IntGaugeVec;
pub(super) type FloatGauge = GaugeVec;
pub(super) type Durations = HistogramVec;

family!(Counter, IntCounter, "counter", IntCounterVec::new);
family!(
    FloatCounter,
    prometheus::Counter,
    "counter",
    CounterVec::new
);
family!(Gauge, IntGauge, "gauge", IntGaugeVec::new);
family!(FloatGauge, prometheus::Gauge, "gauge", GaugeVec::new);
family!(Durations, Histogram, "histogram", |common_opts, labels| {
    let buckets = BUCKETS.to_vec();
    HistogramVec::new(
        HistogramOpts {
            common_opts,
            buckets,
        },
        labels,
    )
});

/// A metric with `LABELS` labels.
pub(super) struct Metric<F, const LABELS: usize>(F);

impl<F: Family, const LABELS: usize> Metric<F, LABELS> {
    pub(super) fn register(
        registry: &Registry,
        name: &str,
        labels: [&str; LABELS],
        help: &str,
    ) -> Self {
        let family = F::create(Opts::new(name, help), &labels)
            .expect("the names and labels of the table are valid");
        registry
            .register(Box::new(family.clone()))
            .expect("each name is in the table once");
        if LABELS == 0 {
            // Without labels there is one series, and it is there from the start.
            family.series(&[]);
        }
        Metric(family)
    }

    /// The series with these values of the labels, in the table's order.
    pub(super) fn with(&self, values: [&str; LABELS]) -> F::Series {
        self.0.series(&values)
    }
}

impl<const LABELS: usize> Metric<Gauge, LABELS> {
    /// Removes every series.
    pub(super) fn reset(&self) {
        self.0.reset();
    }

    /// Removes one series, if it is there.
    pub(super) fn remove(&self, values: [&str; LABELS]) {
        let _ = self.0.remove_label_values(&values);
    }
}

/// One metric, as the reference page shows it.
#[derive(Debug)]
pub struct MetricRow {
    pub name: &'static str,
    pub kind: &'static str,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

/// Makes [`MetricRow`]s, and a struct with a [`Metric`] for each, out of one table. A metric that
/// has a row and isn't used doesn't compile, nor does one that is used with the wrong number of
/// labels.
macro_rules! metrics {
    ($(#[$meta:meta])* $table:ident, $catalogue:ident:
     $($field:ident: $family:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(#[$meta])*
        #[deny(dead_code)]
        struct $table {
            $($field: Metric<$family, { const LABELS: &[&str] = &[$($label),*]; LABELS.len() }>,)*
        }

        /// Every metric, for the reference page.
        pub const $catalogue: &[MetricRow] = &[
            $(MetricRow {
                name: $name,
                kind: <$family as Family>::KIND,
                labels: &[$($label),*],
                help: $help,
            },)*
        ];

        impl $table {
            fn register(registry: &Registry) -> Self {
                $table {
                    $($field: Metric::register(registry, $name, [$($label),*], $help),)*
                }
            }
        }
    };
}
pub(super) use metrics;
