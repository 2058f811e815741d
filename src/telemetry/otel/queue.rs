//! The bounded queue between requests and the exporter of spans, and what becomes of its content.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfig, BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter, SpanProcessor as _,
};

use tracing::warn;

use crate::telemetry::Throttle;
use crate::telemetry::metrics::METRICS;

const MOST_IN_A_BATCH: usize = 2 << 10;

/// Apart from the complaints about the collector: spans are dropped far more often than batches
/// fail, and would leave no line for the reason.
static COMPLAINTS: Throttle = Throttle::every(Duration::from_secs(60));

/// How spans are collected before they are sent.
#[derive(Debug, Clone, Copy)]
pub struct Batching {
    /// How long a span waits for others that are sent with it.
    pub delay: Duration,
    /// Further spans are dropped.
    pub most_waiting: usize,
}

/// Spans on their way to the collector. A full queue drops what comes, and counts it.
#[derive(Debug)]
pub struct SpanQueue {
    processor: BatchSpanProcessor,
    waiting: Arc<AtomicUsize>,
    most: usize,
}

impl SpanQueue {
    /// `rejected` is what the exporter notes there of a batch that the collector took in part.
    pub fn new<E: SpanExporter + 'static>(
        exporter: E,
        resource: &Resource,
        batching: Batching,
        rejected: Arc<AtomicUsize>,
    ) -> Self {
        let waiting = Arc::new(AtomicUsize::new(0));
        let exporter = Counted {
            exporter,
            waiting: waiting.clone(),
            rejected,
        };
        let mut processor = BatchSpanProcessor::new(exporter, batches(batching));
        processor.set_resource(resource);
        SpanQueue {
            processor,
            waiting,
            most: batching.most_waiting,
        }
    }

    pub fn push(&self, span: SpanData) {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            METRICS.otlp_spans("dropped", 1);
            if COMPLAINTS.is_due() {
                warn!(
                    most = self.most,
                    "spans are dropped, because as many as OTEL_BSP_MAX_QUEUE_SIZE are waiting"
                );
            }
            return;
        }
        self.processor.on_end(span);
    }

    /// Sends what is waiting, for so long at most. What comes later is dropped.
    pub fn close(&self, limit: Duration) {
        // The library waits for its thread without a limit where an export is stuck, and then says
        // that it failed: what was lost is counted by the exporter.
        let _ = self.processor.shutdown_with_timeout(limit);
    }
}

fn batches(batching: Batching) -> BatchConfig {
    // The library's thread takes whole batches out of its queue, which never has more than ours.
    BatchConfigBuilder::default()
        .with_max_queue_size(batching.most_waiting)
        .with_max_export_batch_size(MOST_IN_A_BATCH.min(batching.most_waiting))
        .with_scheduled_delay(batching.delay)
        .build()
}

/// Counts what leaves the queue.
#[derive(Debug)]
struct Counted<E> {
    exporter: E,
    waiting: Arc<AtomicUsize>,
    /// Of the batch that is being sent.
    rejected: Arc<AtomicUsize>,
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let length = batch.len();
        let result = self.exporter.export(batch).await;
        // After the export: what is being sent is in memory, too.
        self.waiting.fetch_sub(length, Ordering::Relaxed);
        let rejected = self.rejected.swap(0, Ordering::Relaxed);
        let failed = match &result {
            Ok(()) => rejected.min(length),
            Err(_) => length,
        };
        for (outcome, spans) in [("sent", length - failed), ("failed", failed)] {
            if spans > 0 {
                METRICS.otlp_spans(outcome, spans as u64);
            }
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
