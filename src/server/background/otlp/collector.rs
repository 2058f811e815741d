//! The collector, as the exporters see it: takes a batch, and tries again while it can't be
//! reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::warn;

use super::answer;
use crate::backoff::Backoff;
use crate::error::Failure;
use crate::snapshot::Snapshot;
use crate::telemetry::Throttle;

/// What is read of a collector's answer.
const LONGEST_ANSWER: usize = 64 << 10;
/// Batches that wait for the thread that sends them: each signal has one at a time.
const MOST_BATCHES: usize = 2;
/// Between two attempts. A collector that restarts is away for seconds.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
const NOT_TAKEN: &str = "the collector did not take spans or metrics; ati_otlp_spans_total counts \
                         lost spans, and metrics go with the next export";

static COMPLAINTS: Throttle = Throttle::every(Duration::from_secs(60));

/// What a batch is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Spans,
    Metrics,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Signal::Spans => "spans",
            Signal::Metrics => "metrics",
        }
    }
}

/// Sends batches. The library's threads have no runtime of Tokio's, which the clients need, so a
/// thread of its own has one.
#[derive(Debug)]
pub struct Collector {
    batches: mpsc::Sender<Batch>,
    rejected_spans: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Batch {
    request: Request<Bytes>,
    answer: oneshot::Sender<Result<Taken, Fault>>,
}

/// The collector's answer to a batch that it took.
#[derive(Debug)]
struct Taken {
    body: Bytes,
    /// What of the batch it didn't take.
    rejected: u64,
}

impl Collector {
    /// `limit` is for a batch with all attempts.
    pub fn start(limit: Duration, current: Arc<ArcSwap<Snapshot>>) -> Self {
        let (batches, waiting) = mpsc::channel(MOST_BATCHES);
        let spawned = std::thread::Builder::new()
            .name("otlp".to_owned())
            .spawn(move || send_all(waiting, limit, &current));
        if let Err(e) = spawned {
            warn!(error = %e, "no thread for OTLP export; nothing is sent");
        }
        Collector {
            batches,
            rejected_spans: Arc::default(),
        }
    }

    pub fn sender(&self, signal: Signal) -> SignalSender {
        SignalSender {
            signal,
            batches: self.batches.clone(),
            rejected_spans: self.rejected_spans.clone(),
        }
    }

    /// Spans of the last batch that the collector refused although it took the batch. What counts
    /// them sets it back to 0.
    pub fn rejected_spans(&self) -> Arc<AtomicUsize> {
        self.rejected_spans.clone()
    }
}

/// The collector, for one signal's exporter.
#[derive(Debug)]
pub struct SignalSender {
    signal: Signal,
    batches: mpsc::Sender<Batch>,
    rejected_spans: Arc<AtomicUsize>,
}

#[async_trait]
impl HttpClient for SignalSender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (answer, answered) = oneshot::channel();
        let signal = self.signal;
        let sent = self.batches.send(Batch { request, answer }).await;
        sent.map_err(|_| "the sender has ended")?;
        let taken = answered.await?;
        complain(signal, &taken);
        let taken = taken?;
        if signal == Signal::Spans {
            let rejected = usize::try_from(taken.rejected).unwrap_or(usize::MAX);
            self.rejected_spans.store(rejected, Ordering::Relaxed);
        }
        Ok(Response::new(taken.body))
    }
}

/// Each batch is a task, so that one signal doesn't wait for the other's endpoint. One runtime has
/// them all: they share the connections of the clients.
fn send_all(mut waiting: mpsc::Receiver<Batch>, limit: Duration, current: &Arc<ArcSwap<Snapshot>>) {
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
        while let Some(batch) = waiting.recv().await {
            let current = current.clone();
            tokio::spawn(async move {
                let attempt = || send(batch.request.clone(), &current);
                let taken = persist(attempt, limit).await;
                let _ = batch.answer.send(taken);
            });
        }
    });
}

/// Why a batch wasn't taken.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("status {status}")]
    Status {
        status: u16,
        /// How long the collector wants to be left alone.
        pause: Option<Duration>,
    },
    #[error("{0}")]
    Unreachable(String),
    #[error("no answer in time")]
    Late,
    #[error("the collector's answer is too long")]
    TooLong,
    #[error("the collector's answer is none of OTLP")]
    Unreadable,
}

impl Fault {
    /// How long to wait before the next attempt, after so many. None: it would end the same.
    fn pause(&self, attempts: u32) -> Option<Duration> {
        let own = PAUSES.delay(attempts);
        match *self {
            Fault::Status {
                status: 429 | 502 | 503 | 504,
                pause,
            } => Some(own.max(pause.unwrap_or_default())),
            Fault::Unreachable(_) => Some(own),
            Fault::Status { .. } | Fault::Late | Fault::TooLong | Fault::Unreadable => None,
        }
    }
}

/// Attempts until the batch is taken, for so long at most.
async fn persist<A, F>(attempt: A, limit: Duration) -> Result<Taken, Fault>
where
    A: Fn() -> F,
    F: Future<Output = Result<Taken, Fault>>,
{
    let mut attempts = Attempts {
        end: Instant::now() + limit,
        failed: 0,
    };
    loop {
        let Ok(sent) = tokio::time::timeout_at(attempts.end, attempt()).await else {
            return Err(Fault::Late);
        };
        let fault = match sent {
            Ok(taken) => return Ok(taken),
            Err(fault) => fault,
        };
        match attempts.next(&fault, Instant::now()) {
            Some(next) => tokio::time::sleep_until(next).await,
            None => return Err(fault),
        }
    }
}

/// The attempts to send one batch.
struct Attempts {
    /// Of the export's time.
    end: Instant,
    failed: u32,
}

impl Attempts {
    /// When to try again, after a fault at this time. None: the batch is given up.
    fn next(&mut self, fault: &Fault, now: Instant) -> Option<Instant> {
        self.failed += 1;
        let next = now.checked_add(fault.pause(self.failed)?)?;
        Some(next).filter(|next| *next < self.end)
    }
}

/// A collector is the operator's own choice, and may have a private address.
async fn send(request: Request<Bytes>, current: &ArcSwap<Snapshot>) -> Result<Taken, Fault> {
    let client = current.load().clients.unguarded().get(None);
    let client = client.map_err(|problem| {
        let failure = Failure::from_problems("no client", &[problem]);
        Fault::Unreachable(failure.to_string())
    })?;
    let (parts, body) = request.into_parts();
    let sent = client
        .request(parts.method, parts.uri.to_string())
        .headers(parts.headers)
        .body(body)
        .send()
        .await;
    let mut answer = sent.map_err(unreachable)?;
    if !answer.status().is_success() {
        return Err(Fault::Status {
            status: answer.status().as_u16(),
            pause: retry_after(answer.headers()),
        });
    }
    let mut body = BytesMut::new();
    while let Some(piece) = answer.chunk().await.map_err(unreachable)? {
        body.extend_from_slice(&piece);
        if body.len() > LONGEST_ANSWER {
            return Err(Fault::TooLong);
        }
    }
    let rejected = answer::rejected(&body).ok_or(Fault::Unreadable)?;
    Ok(Taken {
        body: body.freeze(),
        rejected,
    })
}

/// In seconds. The other form, a date, is rare, and the usual pauses do for it.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

/// An error with what is behind it: a client's own text is no more than that it failed. Without the
/// URL, which may hold a password.
fn unreachable(error: reqwest::Error) -> Fault {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    Fault::Unreachable(text)
}

/// One line a minute, however many batches are lost. The collector's own words aren't repeated: it
/// may quote the headers that it was sent.
fn complain(signal: Signal, taken: &Result<Taken, Fault>) {
    let is_whole = matches!(taken, Ok(Taken { rejected: 0, .. }));
    if is_whole || !COMPLAINTS.is_due() {
        return;
    }
    let signal = signal.name();
    match taken {
        Ok(Taken { rejected, .. }) => warn!(signal, rejected, "{NOT_TAKEN}"),
        Err(Fault::Status { status, .. }) => warn!(signal, status, "{NOT_TAKEN}"),
        Err(fault) => warn!(signal, error = %fault, "{NOT_TAKEN}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    /// When a batch is sent whose every attempt fails at once, in milliseconds.
    fn times(fault: &Fault) -> Vec<u128> {
        let began = Instant::now();
        let mut attempts = Attempts {
            end: began + LIMIT,
            failed: 0,
        };
        let mut times = vec![0];
        let mut now = began;
        while let Some(next) = attempts.next(fault, now) {
            now = next;
            times.push((now - began).as_millis());
        }
        times
    }

    fn status(status: u16, pause: Option<u64>) -> Fault {
        Fault::Status {
            status,
            pause: pause.map(Duration::from_secs),
        }
    }

    #[test]
    fn attempts_fill_the_time_of_an_export_a_second_apart_at_most() {
        for fault in [Fault::Unreachable(String::new()), status(503, None)] {
            let times = times(&fault);
            assert_eq!(times[..6], [0, 100, 300, 700, 1500, 2500]);
            assert_eq!(times.last(), Some(&9500));
        }
    }

    #[test]
    fn fault_that_would_come_again_is_given_up_at_once() {
        let faults = [
            status(400, None),
            status(401, Some(1)),
            status(500, None),
            Fault::Late,
            Fault::TooLong,
            Fault::Unreadable,
        ];
        for fault in faults {
            assert_eq!(times(&fault), [0], "{fault}");
        }
    }

    #[test]
    fn collector_that_names_a_pause_is_left_alone_for_it() {
        assert_eq!(times(&status(503, Some(4))), [0, 4000, 8000]);
        assert_eq!(times(&status(429, Some(60))), [0]);
        assert_eq!(times(&status(429, Some(u64::MAX))), [0]);
    }

    #[tokio::test]
    async fn attempt_that_hangs_ends_with_the_export_s_time() {
        let hangs = std::future::pending::<Result<Taken, Fault>>;
        let sent = persist(hangs, Duration::from_millis(1)).await;
        assert!(matches!(sent, Err(Fault::Late)));
    }
}
