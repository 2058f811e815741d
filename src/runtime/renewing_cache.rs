//! A cache of values that expire and are renewed before they do: minted credentials. However many
//! callers need a value, one of them makes it (single flight).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use super::Key;
use crate::backoff::Backoff;
use crate::single_flight::SingleFlight;

/// Expired values are removed once there are more slots than this.
const SWEEP_ABOVE: usize = 4096;
/// A value is renewed this long before its end, or halfway where it lives less than twice as long.
const RENEWAL_MARGIN: Duration = Duration::from_secs(60);
/// Cap on the lifetime that an issuer states.
const LONGEST_LIFETIME: Duration = Duration::from_secs(30 * 86_400);
/// A value that an upstream refuses is renewed, but not more often than this: the refusal may be
/// about something else, and the value good.
const INVALIDATION_PAUSE: Duration = Duration::from_secs(10);

pub struct RenewingCache<V, E> {
    slots: Mutex<Slots<V, E>>,
}

struct Slots<V, E> {
    by_key: HashMap<Key, Arc<Slot<V, E>>>,
    /// Expired values are looked for once there are more slots than this.
    sweep_above: usize,
}

struct Slot<V, E> {
    current: ArcSwapOption<Cached<V>>,
    renewal: SingleFlight<E>,
    /// When a value was last dropped before its end.
    invalidated: Mutex<Option<Instant>>,
}

struct Cached<V> {
    value: Arc<V>,
    renew: Instant,
    end: Instant,
}

/// A newly made value, and how long it is valid.
pub struct Renewed<V> {
    pub value: V,
    pub lifetime: Duration,
}

impl<V, E> Default for RenewingCache<V, E> {
    fn default() -> Self {
        RenewingCache {
            slots: Mutex::new(Slots {
                by_key: HashMap::new(),
                sweep_above: SWEEP_ABOVE,
            }),
        }
    }
}

impl<V, E: Clone> RenewingCache<V, E> {
    /// Returns the value under this key. If it has to be made or renewed, one caller does so. The
    /// others take the old value while it is valid; without one they wait, and share a failure.
    /// Failures aren't cached.
    pub async fn get(
        &self,
        key: Key,
        make: impl AsyncFnOnce() -> Result<Renewed<V>, E>,
    ) -> Result<Arc<V>, E> {
        let slot = self.slot(key);
        let fresh = || slot.cached_where(|cached| cached.renew > Instant::now());
        let valid = || slot.cached_where(|cached| cached.end > Instant::now());
        if let Some(value) = fresh() {
            return Ok(value);
        }
        let renew = async { make().await.map(|renewed| slot.store(renewed)) };
        let renewed = slot.renewal.run(fresh, valid, renew).await;
        // Where the renewal failed, an old value that is still valid is used.
        renewed.or_else(|error| valid().ok_or(error))
    }

    /// The value under this key, if it needs no renewal.
    pub fn fresh(&self, key: Key) -> Option<Arc<V>> {
        let slot = self.slots.lock().by_key.get(&key).cloned()?;
        slot.cached_where(|cached| cached.renew > Instant::now())
    }

    /// Drops `value` if it is still the cached one. True: try again, with the value that has
    /// replaced it or will. False: it was renewed less than 10 s ago, so another renewal won't
    /// help.
    pub fn invalidate(&self, key: Key, value: &Arc<V>) -> bool {
        let slot = self.slot(key);
        let mut invalidated = slot.invalidated.lock();
        let current = slot.current.load_full();
        if !current.is_some_and(|cached| Arc::ptr_eq(&cached.value, value)) {
            return true;
        }
        let may = invalidated.is_none_or(|at| at.elapsed() > INVALIDATION_PAUSE);
        if may {
            *invalidated = Some(Instant::now());
            slot.current.store(None);
        }
        may
    }

    fn slot(&self, key: Key) -> Arc<Slot<V, E>> {
        let mut slots = self.slots.lock();
        if slots.by_key.len() > slots.sweep_above {
            let now = Instant::now();
            slots.by_key.retain(|_, slot| {
                Arc::strong_count(slot) > 1
                    || slot.cached_where(|cached| cached.end > now).is_some()
            });
            slots.sweep_above = SWEEP_ABOVE.max(2 * slots.by_key.len());
        }
        let slot = slots.by_key.entry(key).or_insert_with(|| {
            Arc::new(Slot {
                current: ArcSwapOption::empty(),
                renewal: SingleFlight::new(Backoff::NONE),
                invalidated: Mutex::new(None),
            })
        });
        slot.clone()
    }
}

impl<V, E> Slot<V, E> {
    fn cached_where(&self, good: impl Fn(&Cached<V>) -> bool) -> Option<Arc<V>> {
        let cached = self.current.load();
        let cached = cached.as_ref().filter(|cached| good(cached))?;
        Some(cached.value.clone())
    }

    /// A value without a lifetime is for one use, and isn't stored.
    fn store(&self, renewed: Renewed<V>) -> Arc<V> {
        let (value, now) = (Arc::new(renewed.value), Instant::now());
        let lifetime = renewed.lifetime.min(LONGEST_LIFETIME);
        if !lifetime.is_zero() {
            self.current.store(Some(Arc::new(Cached {
                value: value.clone(),
                renew: now + lifetime - RENEWAL_MARGIN.min(lifetime / 2),
                end: now + lifetime,
            })));
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const KEY: Key = [7; 32];
    const LONG: Duration = Duration::from_secs(3600);

    type Cache = RenewingCache<usize, String>;

    struct Maker {
        made: AtomicUsize,
        lifetime: Duration,
        fails: bool,
    }

    impl Maker {
        async fn make(&self) -> Result<Renewed<usize>, String> {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let value = 1 + self.made.fetch_add(1, Ordering::SeqCst);
            if self.fails {
                return Err(format!("no {value}"));
            }
            let lifetime = self.lifetime;
            Ok(Renewed { value, lifetime })
        }
    }

    fn maker(lifetime: Duration, fails: bool) -> Arc<Maker> {
        Arc::new(Maker {
            made: AtomicUsize::new(0),
            lifetime,
            fails,
        })
    }

    async fn get_by_many(cache: &Arc<Cache>, maker: &Arc<Maker>) -> Vec<Result<usize, String>> {
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let (cache, maker) = (cache.clone(), maker.clone());
                tokio::spawn(async move {
                    let got = cache.get(KEY, async || maker.make().await).await;
                    got.map(|value| *value)
                })
            })
            .collect();
        let mut results = Vec::new();
        for task in tasks {
            results.push(task.await.unwrap());
        }
        results
    }

    #[tokio::test]
    async fn concurrent_callers_share_one_value() {
        let (cache, maker) = (Arc::default(), maker(LONG, false));
        for _ in 0..2 {
            let results = get_by_many(&cache, &maker).await;
            assert!(results.iter().all(|got| *got == Ok(1)), "{results:?}");
        }
    }

    #[tokio::test]
    async fn failure_is_shared_by_waiting_callers_and_not_cached() {
        let (cache, maker) = (Arc::default(), maker(LONG, true));
        let first = get_by_many(&cache, &maker).await;
        assert!(
            first.iter().all(|got| *got == Err("no 1".into())),
            "{first:?}"
        );
        assert_eq!(get_by_many(&cache, &maker).await[0], Err("no 2".into()));
    }

    #[tokio::test]
    async fn failed_renewal_leaves_the_old_value_in_use_while_it_is_valid() {
        let (cache, failing) = (Cache::default(), maker(LONG, true));
        let now = Instant::now();
        cache.slot(KEY).current.store(Some(Arc::new(Cached {
            value: Arc::new(7),
            renew: now,
            end: now + LONG,
        })));
        let got = cache.get(KEY, async || failing.make().await).await;
        assert_eq!(got.map(|value| *value), Ok(7));
        assert_eq!(failing.made.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn invalidated_value_is_made_again_once() {
        let (cache, maker) = (Arc::<Cache>::default(), maker(LONG, false));
        let first = cache.get(KEY, async || maker.make().await).await.unwrap();
        assert!(cache.invalidate(KEY, &first));
        let second = cache.get(KEY, async || maker.make().await).await.unwrap();
        assert_eq!(*second, 2);
        // The first isn't the cached one any more; the second was made a moment ago.
        assert!(cache.invalidate(KEY, &first));
        assert!(!cache.invalidate(KEY, &second));
        let results = get_by_many(&cache, &maker).await;
        assert!(results.iter().all(|got| *got == Ok(2)), "{results:?}");
    }

    #[tokio::test]
    async fn endless_lifetime_is_capped() {
        let (cache, maker) = (Arc::default(), maker(Duration::MAX, false));
        assert_eq!(get_by_many(&cache, &maker).await[0], Ok(1));
    }

    #[tokio::test]
    async fn value_without_a_lifetime_is_not_cached() {
        let (cache, maker) = (Cache::default(), maker(Duration::ZERO, false));
        for expected in 1..4 {
            let got = cache.get(KEY, async || maker.make().await).await.unwrap();
            assert_eq!(*got, expected);
        }
    }
}
