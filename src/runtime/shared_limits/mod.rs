//! Rate limits that hold across edges: calls are reserved in a database that the edges share, in
//! batches of at most a twentieth of the limit, and counted here. What isn't used is given back
//! within a second. While the database is away, each edge counts for itself.

mod reservations;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{RateExceeded, RateWindows};
use crate::auth::rate::Rate;
use crate::clock::unix_millis;
use crate::store::{Db, Store, StoreError};
use crate::telemetry::metrics::METRICS;
use reservations::{Place, Reserved};

/// The part of a limit that an edge reserves at once.
const PART: u32 = 20;
/// A call waits this long for the database.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the database isn't asked after it failed.
const AWAY: Duration = Duration::from_secs(1);
/// How often it is logged that edges count for themselves.
const REPORT_EVERY: Duration = Duration::from_secs(60);
/// How often unused calls are looked for, and how old they are then: together below a second.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const UNUSED: Duration = Duration::from_millis(500);
/// After the database said that a limit is reached, so long it isn't asked again: other edges give
/// back what they don't use.
const REFUSED: Duration = Duration::from_millis(100);
/// A bucket that wasn't used for so long is forgotten. What it counted is in the database.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// How often rows are removed that count for no limit any more.
const CLEAN_EVERY: Duration = Duration::from_secs(60);

pub struct SharedLimits {
    store: Arc<Store>,
    shared: Arc<Shared>,
}

struct Shared {
    /// This process, among those that reserve.
    edge: String,
    /// By subject, pattern and limit: two keys of one user may have different limits, and what one
    /// has reserved isn't the other's.
    buckets: Mutex<HashMap<(String, String, Rate), Arc<Bucket>>>,
    away: Mutex<Away>,
}

#[derive(Default)]
struct Away {
    until: Option<Instant>,
    reported: Option<Instant>,
}

/// The calls that this edge has reserved of one limit of one subject.
struct Bucket {
    state: Mutex<State>,
    /// One call reserves for all that wait.
    reserving: tokio::sync::Mutex<()>,
}

struct State {
    /// Reserved, and not used yet.
    held: u32,
    /// Where they are counted.
    place: Option<Place>,
    reserved: Instant,
    used: Instant,
    /// The longest of the limits that count here, in milliseconds.
    length: u64,
    refused: Option<Refused>,
}

#[derive(Clone, Copy)]
struct Refused {
    at: Instant,
    count: usize,
    /// Milliseconds.
    wait: u64,
}

/// Why a call can't be counted.
enum NotTaken {
    Exceeded(RateExceeded),
    /// The database gave no answer.
    Failed(StoreError),
}

impl SharedLimits {
    /// Starts the task that gives back what isn't used. It ends with the store.
    pub fn start(store: Arc<Store>) -> Self {
        let shared = Arc::new(Shared {
            edge: uuid::Uuid::new_v4().to_string(),
            buckets: Mutex::default(),
            away: Mutex::default(),
        });
        let of_task = shared.clone();
        drop(store.spawn(|db| keep_house(db, of_task)));
        SharedLimits { store, shared }
    }

    /// Counts one call against every limit, or against none if it exceeds one. `local` counts
    /// along, and decides while the database is away.
    pub async fn admit<'a>(
        &self,
        subject: &str,
        limits: impl Iterator<Item = &'a (String, Rate)> + Clone,
        local: &RateWindows,
    ) -> Result<(), RateExceeded> {
        if limits.clone().next().is_none() {
            return Ok(());
        }
        if !self.shared.is_away() {
            match self.take_all(subject, limits.clone()).await {
                Ok(()) => {
                    // Its own verdict doesn't count: the database has counted.
                    let _ = local.admit(subject, limits, unix_millis());
                    return Ok(());
                }
                Err(NotTaken::Exceeded(exceeded)) => return Err(exceeded),
                Err(NotTaken::Failed(error)) => self.shared.failed(&error),
            }
        }
        METRICS.limit_counted_locally();
        local.admit(subject, limits, unix_millis())
    }

    /// Gives back everything that isn't used: the process ends.
    pub async fn give_back(&self) {
        let unused = self.shared.unused(Duration::ZERO);
        let give = |db| async move { reservations::give_back(&db, unused).await };
        // What isn't given back stays counted until its window is over.
        let _ = self.store.run_for(PATIENCE, give).await;
    }

    async fn take_all<'a>(
        &self,
        subject: &str,
        limits: impl Iterator<Item = &'a (String, Rate)>,
    ) -> Result<(), NotTaken> {
        let mut taken: Vec<Arc<Bucket>> = Vec::new();
        for (pattern, rate) in limits {
            let bucket = self.shared.bucket(subject, pattern, *rate);
            if let Err(why) = self.take(&bucket, subject, pattern, *rate).await {
                // A refused call counts against no limit.
                for bucket in taken {
                    bucket.state.lock().held += 1;
                }
                return Err(why);
            }
            taken.push(bucket);
        }
        Ok(())
    }

    async fn take(
        &self,
        bucket: &Bucket,
        subject: &str,
        pattern: &str,
        rate: Rate,
    ) -> Result<(), NotTaken> {
        if let Some(decided) = bucket.take(pattern, rate) {
            return decided.map_err(NotTaken::Exceeded);
        }
        let _turn = bucket.reserving.lock().await;
        if let Some(decided) = bucket.take(pattern, rate) {
            return decided.map_err(NotTaken::Exceeded);
        }
        if self.shared.is_away() {
            return Err(NotTaken::Failed(StoreError::Slow(PATIENCE)));
        }
        let batch = (rate.limit / PART).max(1);
        let wanted = reservations::Wanted {
            place: Place::new(subject, pattern, &self.shared.edge),
            rate,
            batch,
            kept: bucket.state.lock().length,
        };
        let reserve = |db| async move { reservations::reserve(&db, wanted).await };
        let reserved = self.store.run_for(PATIENCE, reserve).await;
        bucket.reserved(reserved.map_err(NotTaken::Failed)?);
        match bucket.take(pattern, rate) {
            Some(decided) => decided.map_err(NotTaken::Exceeded),
            None => Err(NotTaken::Failed(StoreError::Ended)),
        }
    }
}

impl Bucket {
    fn new() -> Self {
        let now = Instant::now();
        Bucket {
            state: Mutex::new(State {
                held: 0,
                place: None,
                reserved: now,
                used: now,
                length: 0,
                refused: None,
            }),
            reserving: tokio::sync::Mutex::default(),
        }
    }

    /// None where the database has to be asked.
    fn take(&self, pattern: &str, rate: Rate) -> Option<Result<(), RateExceeded>> {
        let mut state = self.state.lock();
        let length = rate.unit.seconds() * 1000;
        state.length = state.length.max(length);
        state.used = Instant::now();
        let exceeded = |count, wait| {
            Some(Err(RateExceeded {
                pattern: pattern.to_owned(),
                count,
                rate,
                wait,
            }))
        };
        if rate.limit == 0 {
            return exceeded(0, length);
        }
        if state.held > 0 {
            state.held -= 1;
            return Some(Ok(()));
        }
        let refused = state.refused.filter(|it| it.at.elapsed() < REFUSED)?;
        exceeded(refused.count, refused.wait)
    }

    fn reserved(&self, reserved: Reserved) {
        let mut state = self.state.lock();
        match reserved {
            Reserved::Calls { count, place } => {
                state.held += count;
                state.place = Some(place);
                state.reserved = Instant::now();
                state.refused = None;
            }
            Reserved::None { count, wait } => {
                let at = Instant::now();
                state.refused = Some(Refused { at, count, wait });
            }
        }
    }
}

impl Shared {
    fn bucket(&self, subject: &str, pattern: &str, rate: Rate) -> Arc<Bucket> {
        let key = (subject.to_owned(), pattern.to_owned(), rate);
        let mut buckets = self.buckets.lock();
        buckets
            .entry(key)
            .or_insert_with(|| Arc::new(Bucket::new()))
            .clone()
    }

    fn is_away(&self) -> bool {
        let until = self.away.lock().until;
        until.is_some_and(|until| Instant::now() < until)
    }

    fn failed(&self, error: &StoreError) {
        let mut away = self.away.lock();
        // A statement that is refused says nothing of the next one.
        if !matches!(error, StoreError::Rejected(_) | StoreError::Failed(_)) {
            away.until = Some(Instant::now() + AWAY);
        }
        if away.reported.is_none_or(|at| at.elapsed() >= REPORT_EVERY) {
            away.reported = Some(Instant::now());
            tracing::warn!(%error, "limits are counted by this edge alone: the database is away");
        }
    }

    /// Takes what was reserved so long ago and isn't used, and forgets idle buckets.
    fn unused(&self, age: Duration) -> Vec<(Place, u32)> {
        let mut unused = Vec::new();
        let mut buckets = self.buckets.lock();
        buckets.retain(|_, bucket| {
            let mut state = bucket.state.lock();
            let length = Duration::from_millis(state.length);
            // Of a limit per second, calls can't be held as long.
            let age = age.min(length / 4);
            if state.held > 0
                && state.reserved.elapsed() >= age
                && let Some(place) = state.place.clone()
            {
                unused.push((place, std::mem::take(&mut state.held)));
            }
            let is_used = Arc::strong_count(bucket) > 1 || state.used.elapsed() < FORGET_AFTER;
            state.held > 0 || is_used
        });
        unused
    }
}

async fn keep_house(db: Db, shared: Arc<Shared>) {
    let mut cleaned = Instant::now();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let unused = shared.unused(UNUSED);
        if !unused.is_empty()
            && let Err(e) = reservations::give_back(&db, unused).await
        {
            shared.failed(&e);
        }
        if cleaned.elapsed() >= CLEAN_EVERY {
            cleaned = Instant::now();
            // What fails is tried again a minute later.
            let _ = reservations::clean(&db).await;
        }
    }
}
