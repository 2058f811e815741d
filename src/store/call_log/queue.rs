use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::retention::{self, Retention};
use super::{CallRecord, insert};
use crate::backoff::Backoff;
use crate::store::{Db, Store, StoreError};
use crate::telemetry::Throttle;
use crate::telemetry::metrics::METRICS;

/// Rows that wait to be written: a minute of a busy edge. More are dropped.
pub const MOST_ROWS: usize = 100_000;
/// The memory that rows may take which wait to be written.
pub const MOST_BYTES: usize = 64 << 20;
/// Rows of one statement.
const BATCH: usize = 500;
/// Rows that come within this time share a statement.
const GATHER: Duration = Duration::from_millis(50);
/// A statement that takes longer is tried again.
const PATIENCE: Duration = Duration::from_secs(10);
const RETRY: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));

/// Takes rows from requests, which never wait for the database. Clones share one queue.
#[derive(Clone)]
pub struct CallLog {
    rows: Sender<Box<CallRecord>>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    bytes: AtomicUsize,
    /// Rows that aren't written yet, those of the statement under way included.
    waiting: AtomicUsize,
    /// A flush waits: write without gathering.
    urgent: Notify,
    /// A batch is done.
    written: Notify,
}

impl CallLog {
    /// Starts the tasks that write rows and remove old ones. They end with the store.
    pub fn start(store: &Store, retention: Retention) -> Self {
        let (rows, receiver) = mpsc::channel(MOST_ROWS);
        let state = Arc::<State>::default();
        let of_task = state.clone();
        drop(store.spawn(|db| write(db, receiver, of_task)));
        drop(store.spawn(|db| retention::run(db, retention)));
        let of_metrics = Arc::downgrade(&state);
        METRICS.add_source(move |metrics| match of_metrics.upgrade() {
            None => false,
            Some(state) => {
                metrics.set_call_log_waiting(state.waiting.load(Ordering::Relaxed));
                true
            }
        });
        CallLog { rows, state }
    }

    /// Hands a row over. One that doesn't fit is counted and dropped.
    pub fn record(&self, record: CallRecord) {
        let state = &self.state;
        let size = record.size();
        let others = state.bytes.fetch_add(size, Ordering::Relaxed);
        state.waiting.fetch_add(1, Ordering::Relaxed);
        let taken = others + size <= MOST_BYTES && self.rows.try_send(Box::new(record)).is_ok();
        if !taken {
            state.bytes.fetch_sub(size, Ordering::Relaxed);
            state.waiting.fetch_sub(1, Ordering::Relaxed);
            lost(
                1,
                "more calls than the database takes, and no room for more of them",
            );
        }
    }

    /// Waits until every row so far is written, at most for `patience`. What is left then is
    /// counted as dropped.
    pub async fn flush(&self, patience: Duration) {
        let all_written = async {
            loop {
                let written = self.state.written.notified();
                if self.state.waiting.load(Ordering::Acquire) == 0 {
                    return;
                }
                self.state.urgent.notify_one();
                written.await;
            }
        };
        if tokio::time::timeout(patience, all_written).await.is_err() {
            let left = self.state.waiting.load(Ordering::Acquire);
            lost(left, "the process ends, and the database doesn't take them");
        }
    }
}

/// Counts rows that are in no database, and logs that, but not for each of them.
fn lost(rows: usize, why: &str) {
    static THROTTLE: Throttle = Throttle::new();
    METRICS.call_log_dropped(rows as u64);
    if THROTTLE.is_due() {
        tracing::error!(rows, why, "rows of the call log are dropped");
    }
}

async fn write(db: Db, mut rows: Receiver<Box<CallRecord>>, state: Arc<State>) {
    let mut batch = Vec::with_capacity(BATCH);
    while rows.recv_many(&mut batch, BATCH).await > 0 {
        if batch.len() < BATCH {
            tokio::select! {
                () = tokio::time::sleep(GATHER) => {}
                () = state.urgent.notified() => {}
            }
            while batch.len() < BATCH
                && let Ok(row) = rows.try_recv()
            {
                batch.push(row);
            }
        }
        let (count, bytes) = (batch.len(), batch.iter().map(|row| row.size()).sum());
        until_written(&db, &mut batch).await;
        batch.clear();
        state.bytes.fetch_sub(bytes, Ordering::Relaxed);
        state.waiting.fetch_sub(count, Ordering::Release);
        state.written.notify_waiters();
    }
}

/// Tries until the database has the rows. Meanwhile others wait in the queue, until that is full.
async fn until_written(db: &Db, batch: &mut [Box<CallRecord>]) {
    static THROTTLE: Throttle = Throttle::new();
    let mut failures = 0;
    loop {
        let done = tokio::time::timeout(PATIENCE, insert::insert(db, batch)).await;
        match done.unwrap_or(Err(StoreError::Slow(PATIENCE))) {
            Ok(()) => return METRICS.call_log_written(batch.len() as u64),
            Err(StoreError::Rejected(why)) => return Box::pin(halves(db, batch, &why)).await,
            Err(e) => {
                failures += 1;
                if THROTTLE.is_due() {
                    let error = e.to_string();
                    tracing::warn!(error, "the call log can't be written, and its rows wait");
                }
                tokio::time::sleep(RETRY.delay(failures)).await;
            }
        }
    }
}

/// A value that the database doesn't take must not keep other rows out: the half without it is
/// written.
async fn halves(db: &Db, batch: &mut [Box<CallRecord>], why: &str) {
    if batch.len() <= 1 {
        return lost(batch.len(), why);
    }
    let (one, other) = batch.split_at_mut(batch.len() / 2);
    until_written(db, one).await;
    until_written(db, other).await;
}
