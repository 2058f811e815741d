//! Virtual keys: `Authorization: Ati-Key …`. A key is looked up by its hash, and what the database
//! says is kept for a while.
//!
//! A key that is revoked is forgotten at once: in this process by what revokes it, in others by the
//! store's watch. While changes can't be noticed, a key is asked for again twice a second. While
//! the database is away, keys that were seen before go on for `[store] stale_seconds`.

mod cache;
mod identity;
mod raw;
pub mod request;
mod usage;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, watch};
use tracing::{error, info, warn};

pub use raw::{RawKey, hash_of, is_one};
pub use usage::KeyUse;

use self::cache::{Found, KeyCache};
use self::raw::KeyHash;
use self::usage::UsedKeys;
use super::Identity;
use crate::error::KeyFault;
use crate::store::{Away, Change, Db, Presence, Store, StoreError, Timestamp, keys};
use crate::telemetry::Throttle;
use crate::telemetry::metrics::METRICS;

/// How often what was counted is written.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// Lookups of one key at a time. A stripe may have several keys; more of them would gain nothing.
const STRIPES: usize = 64;

/// Why a key doesn't prove who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupError {
    Refused(KeyFault),
    /// The database is away, and the key wasn't seen lately.
    Unavailable,
}

pub struct VirtualKeys {
    store: Arc<Store>,
    state: Arc<State>,
    /// One lookup of a key at a time; the others find its result in the cache.
    turns: [Mutex<()>; STRIPES],
}

/// What the store's tasks share with requests.
struct State {
    cache: KeyCache,
    used: Arc<UsedKeys>,
    /// When the first of the lookups began that have failed since one succeeded.
    failing_since: parking_lot::Mutex<Option<Instant>>,
}

impl VirtualKeys {
    /// Starts what watches for revocations and writes counters. It ends with the store.
    pub fn start(store: Arc<Store>, stale: Duration) -> Self {
        let state = Arc::new(State {
            cache: KeyCache::new(stale),
            used: Arc::default(),
            failing_since: parking_lot::Mutex::default(),
        });
        let presence = store.presence().clone();
        store.spawn(|_| follow(presence.subscribe(), state.clone()));
        store.spawn(|db| watch(db, state.clone(), presence.clone()));
        store.spawn(|db| count(db, state.clone()));
        let of_metrics = Arc::downgrade(&presence);
        METRICS.add_source(move |metrics| match of_metrics.upgrade() {
            None => false,
            Some(presence) => {
                metrics.set_store_connected(presence.away().is_none());
                true
            }
        });
        VirtualKeys {
            store,
            state,
            turns: std::array::from_fn(|_| Mutex::new(())),
        }
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The caller that a key belongs to. Most keys are in the cache, so the rest is boxed: every
    /// request would have to carry room for it.
    pub async fn identify(&self, raw: &str) -> Result<Arc<Identity>, LookupError> {
        let Some(hash) = raw::hash_of_sent(raw) else {
            return Err(LookupError::Refused(KeyFault::Unknown));
        };
        match self.state.cache.fresh(&hash) {
            Some(found) => found.usable(),
            None => Box::pin(self.ask(hash)).await,
        }
    }

    async fn ask(&self, hash: KeyHash) -> Result<Arc<Identity>, LookupError> {
        let cache = &self.state.cache;
        let _turn = self.turns[usize::from(hash.bytes()[0]) % STRIPES]
            .lock()
            .await;
        if let Some(found) = cache.fresh(&hash) {
            return found.usable();
        }
        let begun = Instant::now();
        let since = match self.look_up(&hash).await {
            Ok(found) => {
                *self.state.failing_since.lock() = None;
                return found.usable();
            }
            Err(e) => self.state.failed(&e, begun),
        };
        let since = match self.store.presence().away() {
            Some(away) => away.since.min(since),
            None => since,
        };
        match cache.stale(&hash, since) {
            Some(found) => found.usable(),
            None => Err(LookupError::Unavailable),
        }
    }

    async fn look_up(&self, hash: &KeyHash) -> Result<Found, StoreError> {
        let begun = self.state.cache.begin();
        let text = hash.text();
        let row = self
            .store
            .run(|db| async move { keys::find(&db, &text).await })
            .await?;
        let found = match row {
            Some(row) => identity::found(&row, &self.state.used),
            None => Found::unknown(),
        };
        self.state.cache.keep(hash, &found, begun);
        Ok(found)
    }

    /// A key was issued or revoked in this process.
    pub fn forget(&self, hash: &str) {
        self.state.forget(hash);
    }

    /// Writes what was counted. For the end of the process.
    pub async fn flush(&self) {
        let used = self.state.used.clone();
        let written = self
            .store
            .run(|db| async move { usage::write(&db, &used).await });
        if let Err(e) = written.await {
            warn!(error = %e, "the last uses of virtual keys are not counted");
        }
    }
}

impl State {
    fn forget(&self, hash: &str) {
        match KeyHash::parse(hash) {
            Some(hash) => self.cache.forget(&hash),
            None => self.cache.doubt_all(),
        }
    }

    /// A lookup that began then has failed. Since when they do.
    fn failed(&self, error: &StoreError, begun: Instant) -> Instant {
        static THROTTLE: Throttle = Throttle::new();
        // Of a database that is away, `follow` tells once.
        if !error.is_unreachable() && THROTTLE.is_due() {
            error!(error = %error, "virtual keys can't be looked up");
        }
        *self.failing_since.lock().get_or_insert(begun)
    }
}

/// Forgets keys that other processes revoke.
async fn watch(db: Db, state: Arc<State>, presence: Arc<Presence>) {
    let tell = |change| match change {
        Change::Notified(hash) => state.forget(&hash),
        Change::Unknown => state.cache.watched(true),
        Change::Blind => {
            state.cache.watched(false);
            presence.doubt();
        }
    };
    db.watch(keys::CHANNEL, tell).await;
}

/// Tells when the database goes away and comes back.
async fn follow(mut presence: watch::Receiver<Option<Away>>, state: Arc<State>) {
    while presence.changed().await.is_ok() {
        let away = presence.borrow_and_update().clone();
        match away {
            Some(away) => {
                warn!(error = %away.error, "the database is away: keys that were seen before go on");
            }
            None => {
                state.cache.doubt_all();
                *state.failing_since.lock() = None;
                info!("the database is back");
            }
        }
    }
}

/// Writes how often keys were used. What can't be written is counted on.
async fn count(db: Db, state: Arc<State>) {
    let mut is_failing = false;
    loop {
        tokio::time::sleep(COUNT_INTERVAL).await;
        let written = usage::write(&db, &state.used).await;
        if let Err(e) = &written
            && !is_failing
        {
            warn!(error = %e, "uses of virtual keys can't be counted in the database yet");
        }
        is_failing = written.is_err();
    }
}

/// When a key issued now ends. None: it never does, or never would.
pub fn end_after(seconds: u64) -> Option<Timestamp> {
    let millis = i64::try_from(seconds).ok()?.checked_mul(1000)?;
    Timestamp::now().plus_millis(millis)
}
