//! What the database said about keys, for a while. Bounded: a caller can send any number of keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quick_cache::sync::Cache;

use super::LookupError;
use super::raw::KeyHash;
use crate::auth::Identity;
use crate::error::KeyFault;
use crate::store::Timestamp;

/// How long an answer holds while changes are noticed.
const HOLDS: Duration = Duration::from_secs(30);
/// How long "there is no such key" holds: the key may be issued next.
const ABSENCE_HOLDS: Duration = Duration::from_secs(5);
/// How long an answer holds while changes are not noticed: a revoked key must not last a second.
const HOLDS_BLINDLY: Duration = Duration::from_millis(500);
const KNOWN_KEYS: usize = 16 << 10;
/// Apart from the others: unknown keys must not push known ones out.
const REFUSED_KEYS: usize = 4 << 10;

/// What the database says about a key.
#[derive(Clone)]
pub enum Found {
    Known(Arc<Known>),
    Refused(KeyFault),
}

pub struct Known {
    pub identity: Arc<Identity>,
    pub expires: Option<Timestamp>,
}

impl Found {
    pub fn unknown() -> Self {
        Found::Refused(KeyFault::Unknown)
    }

    pub fn refused(fault: KeyFault) -> Self {
        Found::Refused(fault)
    }

    pub fn usable(&self) -> Result<Arc<Identity>, LookupError> {
        match self {
            Found::Refused(fault) => Err(LookupError::Refused(*fault)),
            Found::Known(known) if known.expires.is_some_and(|end| end <= Timestamp::now()) => {
                Err(LookupError::Refused(KeyFault::Expired))
            }
            Found::Known(known) => Ok(known.identity.clone()),
        }
    }
}

#[derive(Clone)]
struct Entry {
    found: Found,
    at: Instant,
    generation: u64,
}

pub struct KeyCache {
    known: Cache<KeyHash, Entry>,
    refused: Cache<KeyHash, Entry>,
    /// Entries of an older one have to be asked for again.
    generation: AtomicU64,
    /// How many keys were forgotten: a lookup that began before must not bring one back.
    forgotten: AtomicU64,
    is_watched: AtomicBool,
    stale: Duration,
}

/// The state of the cache when a lookup began.
#[derive(Clone, Copy)]
pub struct Begun {
    generation: u64,
    forgotten: u64,
    at: Instant,
}

impl KeyCache {
    pub fn new(stale: Duration) -> Self {
        KeyCache {
            known: Cache::new(KNOWN_KEYS),
            refused: Cache::new(REFUSED_KEYS),
            generation: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            stale,
        }
    }

    /// An answer that still holds.
    pub fn fresh(&self, hash: &KeyHash) -> Option<Found> {
        let (entry, longest) = match self.known.get(hash) {
            Some(entry) => (entry, HOLDS),
            None => (self.refused.get(hash)?, ABSENCE_HOLDS),
        };
        let holds = match self.is_watched.load(Ordering::Acquire) {
            true => longest,
            false => HOLDS_BLINDLY,
        };
        let is_fresh = entry.at.elapsed() < holds
            && entry.generation == self.generation.load(Ordering::Acquire);
        is_fresh.then_some(entry.found)
    }

    /// An answer for the time while the database is away, which began at `since`. A key in use is
    /// asked for every `HOLDS`: that is how long ago one was asked for that was seen just before.
    pub fn stale(&self, hash: &KeyHash, since: Instant) -> Option<Found> {
        let entry = self.known.get(hash)?;
        let was_seen = since.saturating_duration_since(entry.at) < self.stale.max(HOLDS);
        (was_seen && since.elapsed() < self.stale).then_some(entry.found)
    }

    pub fn begin(&self) -> Begun {
        Begun {
            generation: self.generation.load(Ordering::Acquire),
            forgotten: self.forgotten.load(Ordering::Acquire),
            at: Instant::now(),
        }
    }

    pub fn keep(&self, hash: &KeyHash, found: &Found, begun: Begun) {
        let entry = Entry {
            found: found.clone(),
            at: begun.at,
            generation: begun.generation,
        };
        match found {
            Found::Known(_) => {
                self.refused.remove(hash);
                self.known.insert(*hash, entry);
            }
            Found::Refused(_) => {
                self.known.remove(hash);
                self.refused.insert(*hash, entry);
            }
        }
        // After the insertion: what is forgotten in between is removed here or there.
        if self.forgotten.load(Ordering::Acquire) != begun.forgotten {
            self.known.remove(hash);
            self.refused.remove(hash);
        }
    }

    pub fn forget(&self, hash: &KeyHash) {
        self.forgotten.fetch_add(1, Ordering::AcqRel);
        self.known.remove(hash);
        self.refused.remove(hash);
    }

    /// Every key has to be asked for again. They stay for the time that the database is away.
    pub fn doubt_all(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether changes are noticed from now on. What happened before isn't known.
    pub fn watched(&self, is_watched: bool) {
        self.doubt_all();
        self.is_watched.store(is_watched, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn found() -> Found {
        Found::Known(Arc::new(Known {
            identity: Arc::new(Identity::unrestricted()),
            expires: None,
        }))
    }

    #[test]
    fn key_that_is_revoked_during_its_lookup_isnt_kept() {
        let (cache, hash) = (
            KeyCache::new(Duration::from_secs(300)),
            KeyHash::parse(HASH).unwrap(),
        );
        cache.watched(true);
        let begun = cache.begin();
        cache.forget(&hash);
        cache.keep(&hash, &found(), begun);
        assert!(cache.fresh(&hash).is_none());
        assert!(cache.stale(&hash, Instant::now()).is_none());
        cache.keep(&hash, &found(), cache.begin());
        assert!(cache.fresh(&hash).is_some());
    }

    #[test]
    fn doubted_key_is_kept_for_the_time_without_a_database() {
        let (cache, hash) = (
            KeyCache::new(Duration::from_secs(300)),
            KeyHash::parse(HASH).unwrap(),
        );
        cache.watched(true);
        cache.keep(&hash, &found(), cache.begin());
        cache.watched(false);
        assert!(cache.fresh(&hash).is_none());
        assert!(cache.stale(&hash, Instant::now()).is_some());
        let short = KeyCache::new(Duration::ZERO);
        short.keep(&hash, &found(), short.begin());
        assert!(short.stale(&hash, Instant::now()).is_none());
    }

    #[test]
    fn stale_time_runs_from_when_the_database_went_away() {
        let hash = KeyHash::parse(HASH).unwrap();
        let now = Instant::now();
        let ago = |seconds| now.checked_sub(Duration::from_secs(seconds)).unwrap();
        // How long keys go on, when this one was asked for, and when the database went away.
        for (stale, asked, away, goes_on) in [
            (5, 29, 0, true),
            (5, 33, 4, true),
            (5, 33, 6, false),
            (5, 40, 0, false),
            (300, 280, 0, true),
            (300, 580, 290, true),
            (300, 310, 0, false),
            (0, 1, 0, false),
        ] {
            let cache = KeyCache::new(Duration::from_secs(stale));
            let begun = Begun {
                at: ago(asked),
                ..cache.begin()
            };
            cache.keep(&hash, &found(), begun);
            let found = cache.stale(&hash, ago(away));
            assert_eq!(found.is_some(), goes_on, "{stale} {asked} {away}");
        }
    }

    #[test]
    fn expired_key_is_refused_while_it_is_kept() {
        let expired = Found::Known(Arc::new(Known {
            identity: Arc::new(Identity::unrestricted()),
            expires: Timestamp::now().plus_millis(-1),
        }));
        assert_eq!(
            expired.usable().unwrap_err(),
            LookupError::Refused(KeyFault::Expired)
        );
    }
}
