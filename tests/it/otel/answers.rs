//! What becomes of batches that a collector refuses, takes in part, or takes at a later attempt.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use prost::Message as _;
use serde_json::json;

use super::collector::{Collector, setup};
use super::faults::{LOST, serve};
use crate::support::eventually;
use crate::support::upstream::{Received, Upstream};

const FAILED: &str = "ati_otlp_spans_total{outcome=\"failed\"}";
const SENT: &str = "ati_otlp_spans_total{outcome=\"sent\"}";

fn write(stream: &mut TcpStream, status: u16, body: &[u8]) -> bool {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).is_ok() && stream.write_all(body).is_ok()
}

fn has_spans(received: &Received) -> bool {
    received.target.ends_with("/v1/traces")
}

#[test]
fn spans_that_the_collector_takes_and_rejects_are_lost_with_a_warning() {
    let rejection = ExportTraceServiceResponse {
        partial_success: Some(ExportTracePartialSuccess {
            rejected_spans: 2,
            error_message: "planted-quota".to_owned(),
        }),
    };
    let collector =
        Collector::answering(move |stream| write(stream, 200, &rejection.encode_to_vec()));
    let upstream = Upstream::echo();
    let proxy = collector
        .setup()
        .env("OTEL_METRICS_EXPORTER", "none")
        .route("up", &upstream.url(), "path_prefix = '/up'")
        .start();
    serve(&proxy, 1);
    proxy.settles(FAILED, 2.0);
    assert_eq!(proxy.metric(SENT), None);
    let warning = proxy.log.wait_for(LOST);
    assert_eq!(
        (&warning["signal"], &warning["rejected"]),
        (&json!("spans"), &json!(2))
    );
    assert!(!proxy.log.text().contains("planted-quota"));
}

#[test]
fn collector_that_restarts_gets_the_spans_of_that_time_and_no_loss_is_told() {
    let refusals = AtomicUsize::new(0);
    let collector = Collector::answering_each(move |received, stream| {
        // Five attempts take longer than a second.
        let is_away = has_spans(received) && refusals.fetch_add(1, Ordering::SeqCst) < 5;
        write(stream, if is_away { 503 } else { 200 }, b"")
    });
    let upstream = Upstream::echo();
    let proxy = collector
        .setup()
        .route("up", &upstream.url(), "path_prefix = '/up'")
        .start();
    serve(&proxy, 10);
    proxy.settles(SENT, 20.0);
    assert_eq!(proxy.metric(FAILED), None);
    assert_eq!(proxy.log.find_all(LOST).len(), 0);
    let attempts = collector.received().into_iter().filter(has_spans);
    assert!(attempts.count() > 5);
}

#[test]
fn metrics_arrive_while_the_endpoint_of_spans_hangs() {
    let spans = Collector::answering(|stream| {
        let _ = std::io::copy(stream, &mut std::io::sink());
        false
    });
    let metrics = Collector::start();
    let upstream = Upstream::echo();
    let proxy = setup(&metrics.url())
        .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", spans.url())
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000")
        .route("up", &upstream.url(), "path_prefix = '/up'")
        .start();
    serve(&proxy, 1);
    eventually("spans", || (!spans.received().is_empty()).then_some(()));
    serve(&proxy, 1);
    metrics.point("the second request", |point| {
        point.metric == "ati.proxy.requests" && point.count == 2
    });
}
