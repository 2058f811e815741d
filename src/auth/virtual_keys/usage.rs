//! How often keys are used: counted in memory, written in batches.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::clock;
use crate::store::{Db, StoreError, Timestamp, keys};

/// Keys that were used since the last batch.
#[derive(Default)]
pub struct UsedKeys(Mutex<Vec<Arc<KeyUse>>>);

/// The counters of one key. A caller's identity has them at hand, so that counting needs no lookup.
pub struct KeyUse {
    pub hash: String,
    requests: AtomicU64,
    errors: AtomicU64,
    last_millis: AtomicU64,
    is_queued: AtomicBool,
    queue: Arc<UsedKeys>,
}

impl fmt::Debug for KeyUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyUse").field(&self.hash).finish()
    }
}

impl KeyUse {
    pub(super) fn new(hash: &str, queue: &Arc<UsedKeys>) -> Arc<Self> {
        Arc::new(KeyUse {
            hash: hash.to_owned(),
            requests: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            last_millis: AtomicU64::new(0),
            is_queued: AtomicBool::new(false),
            queue: queue.clone(),
        })
    }

    /// One request was answered.
    pub fn note(self: &Arc<Self>, is_error: bool) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if is_error {
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
        let now = clock::unix_millis();
        self.last_millis.fetch_max(now, Ordering::Relaxed);
        // The lock is taken once for each key and batch.
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.queue.0.lock().push(self.clone());
        }
    }

    fn take(&self) -> keys::Usage {
        // First: a request that comes now queues the key again.
        self.is_queued.store(false, Ordering::Release);
        let millis = self.last_millis.load(Ordering::Relaxed) as i64;
        keys::Usage {
            hash: self.hash.clone(),
            requests: self.requests.swap(0, Ordering::Relaxed),
            errors: self.errors.swap(0, Ordering::Relaxed),
            last: Timestamp::from_millis(millis).unwrap_or_else(Timestamp::now),
        }
    }

    fn give_back(self: &Arc<Self>, usage: &keys::Usage) {
        self.requests.fetch_add(usage.requests, Ordering::Relaxed);
        self.errors.fetch_add(usage.errors, Ordering::Relaxed);
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.queue.0.lock().push(self.clone());
        }
    }
}

/// Writes what was counted. What can't be written is counted on.
pub async fn write(db: &Db, used: &UsedKeys) -> Result<(), StoreError> {
    let taken = std::mem::take(&mut *used.0.lock());
    if taken.is_empty() {
        return Ok(());
    }
    let batch: Vec<keys::Usage> = taken.iter().map(|key| key.take()).collect();
    let written = keys::count(db, batch.clone()).await;
    if written.is_err() {
        for (key, usage) in taken.iter().zip(&batch) {
            key.give_back(usage);
        }
    }
    written
}
