//! The export of spans and metrics to a collector. The library has a thread for each signal, which
//! collects batches and encodes them; a third thread sends them with the clients of tools. Nothing
//! of it is on the way of a request.

mod answer;
mod collector;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use opentelemetry::KeyValue;
use opentelemetry_otlp::{
    ExporterBuildError, MetricExporter, Protocol, RetryPolicy, SpanExporter, WithExportConfig as _,
    WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::resource::TelemetryResourceDetector;
use tracing::{info, warn};
use uuid::Uuid;

use crate::config::OtlpVariables;
use crate::snapshot::Snapshot;
use crate::telemetry::otel::{self, Export, Instruments, SpanQueue, Spans};
use collector::{Collector, Signal};

/// How long a server that ends waits until the last spans and metrics are sent.
pub const LAST_EXPORT: Duration = Duration::from_secs(10);
/// Tells this process from others of the same name, whose sums it must not be mixed up with.
const INSTANCE: &str = "service.instance.id";

/// Begins to export. A failure is logged: the server serves without telemetry.
pub fn start(variables: &OtlpVariables, current: &Arc<ArcSwap<Snapshot>>) {
    match export(variables, current) {
        Ok(export) => {
            let shown = |url: &Option<url::Url>| {
                url.as_ref()
                    .and_then(|url| Some(url.host_str()?.to_owned()))
            };
            info!(
                traces = shown(&variables.traces),
                metrics = shown(&variables.metrics),
                service = variables.service_name,
                "spans and metrics are exported by OTLP"
            );
            otel::install(export);
        }
        Err(error) => warn!(error = %error, "OTLP export can't start; nothing is sent"),
    }
}

fn export(
    variables: &OtlpVariables,
    current: &Arc<ArcSwap<Snapshot>>,
) -> Result<Export, ExporterBuildError> {
    // It tries again itself: the library gives up within a second.
    let collector = Collector::start(variables.timeout, current.clone());
    let resource = resource(variables);
    let spans = match &variables.traces {
        None => None,
        Some(url) => {
            let exporter = SpanExporter::builder()
                .with_http()
                .with_http_client(collector.sender(Signal::Spans))
                .with_retry_policy(RetryPolicy::disabled())
                .with_endpoint(url.as_str())
                .with_protocol(Protocol::HttpBinary)
                .with_timeout(variables.timeout)
                .build()?;
            let rejected = collector.rejected_spans();
            let queue = SpanQueue::new(exporter, &resource, variables.batching, rejected);
            Some(Spans::new(queue, variables.sampler.clone()))
        }
    };
    let instruments = match &variables.metrics {
        None => None,
        Some(url) => {
            let exporter = MetricExporter::builder()
                .with_http()
                .with_http_client(collector.sender(Signal::Metrics))
                .with_retry_policy(RetryPolicy::disabled())
                .with_endpoint(url.as_str())
                .with_protocol(Protocol::HttpBinary)
                .with_timeout(variables.timeout)
                .build()?;
            let reader = PeriodicReader::builder(exporter)
                .with_interval(variables.metric_interval)
                .build();
            let provider = SdkMeterProvider::builder()
                .with_resource(resource)
                .with_reader(reader)
                .build();
            Some(Instruments::new(provider))
        }
    };
    Ok(Export { spans, instruments })
}

/// What ati says of itself wins over what the environment says of it, but for the instance.
fn resource(variables: &OtlpVariables) -> Resource {
    let named = variables.resource.iter();
    let named = named.map(|(name, value)| KeyValue::new(name.clone(), value.clone()));
    let mut own = vec![KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))];
    if !variables.resource.iter().any(|(name, _)| name == INSTANCE) {
        own.push(KeyValue::new(INSTANCE, Uuid::new_v4().to_string()));
    }
    if let Some(tier) = &variables.tier {
        own.push(KeyValue::new("deployment.environment", tier.clone()));
    }
    Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_attributes(named)
        .with_service_name(variables.service_name.clone())
        .with_attributes(own)
        .build()
}
