//! Spans and metrics for an OpenTelemetry collector. The server installs an [`Export`] where the
//! environment names a collector; without one, a request pays one load of a pointer.
//!
//! Spans are made when a request is over, out of what its access line has. Only ids and the
//! decision to record are made at its beginning, because upstreams are told of them. So nothing is
//! kept for a request that isn't recorded, and there is no span that a dropped future could leave
//! open.
//!
//! No query, no argument and no header gets into a span or a metric.

mod instruments;
mod queue;
pub mod sampler;
mod spans;
pub mod traceparent;

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use opentelemetry::InstrumentationScope;
use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator};

pub use instruments::Instruments;
pub use queue::{Batching, SpanQueue};
use sampler::Sampler;
pub use spans::{Inner, RequestFacts, UNMATCHED};
pub use traceparent::Traceparent;

static EXPORT: OnceLock<Export> = OnceLock::new();

/// Where spans and metrics go.
#[derive(Debug)]
pub struct Export {
    /// None: only metrics are exported.
    pub spans: Option<Spans>,
    /// None: only spans are exported.
    pub instruments: Option<Instruments>,
}

#[derive(Debug)]
pub struct Spans {
    pub queue: SpanQueue,
    pub sampler: Sampler,
    scope: InstrumentationScope,
    ids: RandomIdGenerator,
}

impl Spans {
    pub fn new(queue: SpanQueue, sampler: Sampler) -> Self {
        Spans {
            queue,
            sampler,
            scope: scope(),
            ids: RandomIdGenerator::default(),
        }
    }
}

/// Whose spans and metrics these are.
fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("ati")
        .with_version(env!("CARGO_PKG_VERSION"))
        .build()
}

/// Begins to export. A second call keeps the first's.
pub fn install(export: Export) {
    let _ = EXPORT.set(export);
}

/// None where nothing is exported.
pub fn export() -> Option<&'static Export> {
    EXPORT.get()
}

/// Something came that never became a request: its header can't be read. `failure` is the label of
/// its refusal.
pub fn unparsed(status: u16, failure: &str) {
    let Some(export) = export() else {
        return;
    };
    let facts = RequestFacts {
        route: UNMATCHED,
        passthrough: None,
        method: "",
        path: "",
        status,
        took: Duration::ZERO,
        request_id: None,
        failure: Some(failure),
        upstream_failed: false,
        inner: None,
    };
    export.request(&facts, RequestTrace::begin(&HeaderMap::new()).as_deref());
}

/// Work of ati's own that belongs to no request, such as a reload, is done.
pub fn work(name: &'static str, took: Duration, ok: bool) {
    if let Some(spans) = export().and_then(|export| export.spans.as_ref()) {
        spans.work(name, took, ok);
    }
}

/// Sends what is waiting, for so long at most. Blocks.
pub fn close(limit: Duration) {
    let Some(export) = export() else {
        return;
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if let Some(spans) = &export.spans {
                spans.queue.close(limit);
            }
        });
        if let Some(instruments) = &export.instruments {
            instruments.close(limit);
        }
    });
}

/// The place of one request in its trace.
#[derive(Debug)]
pub struct RequestTrace {
    trace: TraceId,
    /// The caller's span. Invalid where the trace begins here.
    parent: SpanId,
    /// `http.server.request`.
    server: SpanId,
    /// The span inside of it, which upstreams see as their parent.
    inner: SpanId,
    sampled: bool,
    started: SystemTime,
}

impl RequestTrace {
    /// None where spans aren't exported.
    pub fn begin(headers: &HeaderMap) -> Option<Box<Self>> {
        let spans = export()?.spans.as_ref()?;
        let parent = Traceparent::of_caller(headers);
        let trace = parent.map_or_else(|| spans.ids.new_trace_id(), |parent| parent.trace);
        let sampled = spans
            .sampler
            .samples(trace, parent.map(|parent| parent.sampled));
        Some(Box::new(RequestTrace {
            trace,
            parent: parent.map_or(SpanId::INVALID, |parent| parent.span),
            server: spans.ids.new_span_id(),
            inner: spans.ids.new_span_id(),
            sampled,
            started: SystemTime::now(),
        }))
    }

    /// What upstreams are told. `has_inner`: the request gets a span of its own inside of
    /// `http.server.request`. Upstreams must not be told of a span that is never exported.
    pub fn outbound(&self, has_inner: bool) -> Traceparent {
        Traceparent {
            trace: self.trace,
            span: if has_inner { self.inner } else { self.server },
            sampled: self.sampled,
        }
    }
}
