//! A collector that decodes what it gets: OTLP over HTTP, as protobuf.

use std::io::Write as _;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

use crate::support::ati::Setup;
use crate::support::eventually;
use crate::support::upstream::{Received, Upstream};

pub struct Collector(Upstream);

/// A span, as far as tests ask.
#[derive(Debug, Clone)]
pub struct Span {
    pub name: String,
    pub trace: String,
    pub id: String,
    /// Empty for the first span of a trace.
    pub parent: String,
    pub kind: i32,
    pub failed: bool,
    pub attributes: Vec<(String, String)>,
    pub resource: Vec<(String, String)>,
}

impl Span {
    pub fn get(&self, name: &str) -> Option<&str> {
        get(&self.attributes, name)
    }
}

/// One point of a metric: the sum of a counter, or the number of values of a histogram.
#[derive(Debug, Clone)]
pub struct Point {
    pub metric: String,
    pub labels: Vec<(String, String)>,
    pub count: u64,
}

impl Point {
    pub fn get(&self, name: &str) -> Option<&str> {
        get(&self.labels, name)
    }
}

fn get<'a>(all: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = all.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

impl Collector {
    pub fn start() -> Self {
        Collector::answering(|stream| {
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer.as_bytes()).is_ok()
        })
    }

    /// `answer` writes the answer, and returns whether the connection is kept.
    pub fn answering(
        answer: impl Fn(&mut std::net::TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        Collector::answering_each(move |_, stream| answer(stream))
    }

    /// The same, where the answer depends on what came.
    pub fn answering_each(
        answer: impl Fn(&Received, &mut std::net::TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        Collector(Upstream::answering(answer))
    }

    pub fn url(&self) -> String {
        self.0.url()
    }

    /// A proxy that exports to this collector, without much waiting for others.
    pub fn setup(&self) -> Setup {
        setup(&self.url())
    }

    pub fn received(&self) -> Vec<Received> {
        self.0.received()
    }

    pub fn spans(&self) -> Vec<Span> {
        let received = self.received();
        let traces = received
            .iter()
            .filter(|it| it.target.ends_with("/v1/traces"));
        traces.flat_map(|it| spans(&it.body)).collect()
    }

    /// The points of the newest export.
    pub fn points(&self) -> Vec<Point> {
        let received = self.received();
        let mut metrics = received
            .iter()
            .filter(|it| it.target.ends_with("/v1/metrics"));
        metrics
            .next_back()
            .map_or(Vec::new(), |it| points(&it.body))
    }

    /// The spans of the trace in which one is like this, once that one is there.
    pub fn trace(&self, what: &str, like: impl Fn(&Span) -> bool) -> Vec<Span> {
        eventually(what, || {
            let all = self.spans();
            let trace = all.iter().find(|span| like(span))?.trace.clone();
            Some(all.into_iter().filter(|span| span.trace == trace).collect())
        })
    }

    pub fn span(&self, what: &str, like: impl Fn(&Span) -> bool) -> Span {
        eventually(what, || self.spans().into_iter().find(|span| like(span)))
    }

    pub fn point(&self, what: &str, like: impl Fn(&Point) -> bool) -> Point {
        eventually(what, || self.points().into_iter().find(|point| like(point)))
    }
}

pub fn setup(url: &str) -> Setup {
    Setup::new()
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
        .env("OTEL_METRIC_EXPORT_INTERVAL", "50")
}

fn spans(body: &[u8]) -> Vec<Span> {
    let request = ExportTraceServiceRequest::decode(body).expect("spans as protobuf");
    let mut found = Vec::new();
    for by_resource in request.resource_spans {
        let resource = resource(by_resource.resource);
        for span in by_resource
            .scope_spans
            .into_iter()
            .flat_map(|scope| scope.spans)
        {
            found.push(Span {
                name: span.name,
                trace: hex::encode(span.trace_id),
                id: hex::encode(span.span_id),
                parent: hex::encode(span.parent_span_id),
                kind: span.kind,
                failed: span.status.is_some_and(|status| status.code == 2),
                attributes: attributes(span.attributes),
                resource: resource.clone(),
            });
        }
    }
    found
}

fn points(body: &[u8]) -> Vec<Point> {
    let request = ExportMetricsServiceRequest::decode(body).expect("metrics as protobuf");
    let scopes = request.resource_metrics.into_iter();
    let scopes = scopes.flat_map(|by_resource| by_resource.scope_metrics);
    let mut found = Vec::new();
    for metric in scopes.flat_map(|scope| scope.metrics) {
        let name = &metric.name;
        let mut add = |labels, count| {
            found.push(Point {
                metric: name.clone(),
                labels: attributes(labels),
                count,
            });
        };
        match metric.data.unwrap() {
            Data::Sum(sum) => {
                for point in sum.data_points {
                    match point.value.unwrap() {
                        number_data_point::Value::AsInt(count) => {
                            add(point.attributes, count as u64);
                        }
                        number_data_point::Value::AsDouble(_) => panic!("{name} isn't whole"),
                    }
                }
            }
            Data::Histogram(histogram) => {
                for point in histogram.data_points {
                    add(point.attributes, point.count);
                }
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    found
}

fn resource(resource: Option<Resource>) -> Vec<(String, String)> {
    attributes(resource.unwrap_or_default().attributes)
}

fn attributes(all: Vec<KeyValue>) -> Vec<(String, String)> {
    let text = |value: AnyValue| match value.value {
        Some(any_value::Value::StringValue(text)) => text,
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        other => panic!("an attribute of another type: {other:?}"),
    };
    let all = all.into_iter();
    all.map(|it| (it.key, text(it.value.unwrap()))).collect()
}
