//! The export of spans and metrics to a collector. The library has a thread for each signal, which
//! collects batches and encodes them; a third thread sends them with the clients of tools. Nothing
//! of it is on the way of a request.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use opentelemetry::KeyValue;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{
    ExporterBuildError, MetricExporter, Protocol, SpanExporter, WithExportConfig as _,
    WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use tokio::sync::{mpsc, oneshot};
use tracing::{info, warn};

use crate::config::OtlpVariables;
use crate::error::Failure;
use crate::snapshot::Snapshot;
use crate::telemetry::Throttle;
use crate::telemetry::otel::{self, Export, Instruments, SpanQueue, Spans};

/// How long a server that ends waits until the last spans and metrics are sent.
pub const LAST_EXPORT: Duration = Duration::from_secs(10);
/// What is read of a collector's answer.
const LONGEST_ANSWER: usize = 64 << 10;
/// Batches that wait for the thread that sends them: each signal has one at a time.
const MOST_BATCHES: usize = 2;
const NOT_SENT: &str = "the collector did not take spans or metrics, which are lost";

static COMPLAINTS: Throttle = Throttle::every(Duration::from_secs(60));

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
    let collector = Collector::start(variables.timeout, current.clone());
    let resource = resource(variables);
    let spans = match &variables.traces {
        None => None,
        Some(url) => {
            let exporter = SpanExporter::builder()
                .with_http()
                .with_http_client(collector.clone())
                .with_endpoint(url.as_str())
                .with_protocol(Protocol::HttpBinary)
                .with_timeout(variables.timeout)
                .build()?;
            let queue = SpanQueue::new(exporter, &resource, variables.batching);
            Some(Spans::new(queue, variables.sampler.clone()))
        }
    };
    let instruments = match &variables.metrics {
        None => None,
        Some(url) => {
            let exporter = MetricExporter::builder()
                .with_http()
                .with_http_client(collector)
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

/// What ati says of itself wins over what the environment says of it.
fn resource(variables: &OtlpVariables) -> Resource {
    let named = variables.resource.iter();
    let named = named.map(|(name, value)| KeyValue::new(name.clone(), value.clone()));
    let mut own = vec![KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))];
    if let Some(tier) = &variables.tier {
        own.push(KeyValue::new("deployment.environment", tier.clone()));
    }
    Resource::builder_empty()
        .with_attributes(named)
        .with_service_name(variables.service_name.clone())
        .with_attributes(own)
        .build()
}

/// Sends batches. The library's threads have no runtime of Tokio's, which the clients need, so a
/// thread of its own has one.
#[derive(Debug, Clone)]
struct Collector(mpsc::Sender<Batch>);

struct Batch {
    request: Request<Bytes>,
    answer: oneshot::Sender<Result<Response<Bytes>, HttpError>>,
}

impl Collector {
    fn start(limit: Duration, current: Arc<ArcSwap<Snapshot>>) -> Self {
        let (batches, waiting) = mpsc::channel(MOST_BATCHES);
        let spawned = std::thread::Builder::new()
            .name("otlp".to_owned())
            .spawn(move || send_all(waiting, limit, &current));
        if let Err(e) = spawned {
            warn!(error = %e, "no thread for OTLP export; nothing is sent");
        }
        Collector(batches)
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (answer, answered) = oneshot::channel();
        let batch = Batch { request, answer };
        self.0
            .send(batch)
            .await
            .map_err(|_| "the sender has ended")?;
        answered.await?
    }
}

fn send_all(mut waiting: mpsc::Receiver<Batch>, limit: Duration, current: &ArcSwap<Snapshot>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(e) => {
            warn!(error = %e, "no runtime for OTLP export; nothing is sent");
            return;
        }
    };
    runtime.block_on(async {
        while let Some(Batch { request, answer }) = waiting.recv().await {
            let sent = tokio::time::timeout(limit, send(request, current)).await;
            let sent = sent.unwrap_or_else(|_| Err("no answer in time".into()));
            complain(&sent);
            let _ = answer.send(sent);
        }
    });
}

/// A collector is the operator's own choice, and may have a private address.
async fn send(
    request: Request<Bytes>,
    current: &ArcSwap<Snapshot>,
) -> Result<Response<Bytes>, HttpError> {
    let client = current.load().clients.unguarded().get(None);
    let client = client.map_err(|problem| Failure::from_problems("no client", &[problem]))?;
    let (parts, body) = request.into_parts();
    let sent = client
        .request(parts.method, parts.uri.to_string())
        .headers(parts.headers)
        .body(body)
        .send()
        .await;
    // Without the URL: it may hold a password.
    let mut answer = sent.map_err(reqwest::Error::without_url)?;
    let mut reply = Response::builder().status(answer.status());
    if let Some(headers) = reply.headers_mut() {
        *headers = std::mem::take(answer.headers_mut());
    }
    let mut body = BytesMut::new();
    while let Some(piece) = answer.chunk().await.map_err(reqwest::Error::without_url)? {
        body.extend_from_slice(&piece);
        if body.len() > LONGEST_ANSWER {
            return Err("the collector's answer is too long".into());
        }
    }
    Ok(reply.body(body.freeze())?)
}

/// One line a minute, however many batches are lost.
fn complain(sent: &Result<Response<Bytes>, HttpError>) {
    let status = match sent {
        Ok(answer) if answer.status().is_success() => return,
        Ok(answer) => Some(answer.status().as_u16()),
        Err(_) => None,
    };
    if !COMPLAINTS.is_due() {
        return;
    }
    match (status, sent) {
        (None, Err(e)) => warn!(error = causes(e.as_ref()), "{NOT_SENT}"),
        (status, _) => warn!(status, "{NOT_SENT}"),
    }
}

/// An error with what is behind it: a client's own text is no more than that it failed.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
