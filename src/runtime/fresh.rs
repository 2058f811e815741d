//! Things that are made now and then and used often: tokens. However many callers need one, one of them makes it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;

use crate::derived_key::Key;

/// What has gone stale is thrown out, but not before there is this much.
const MANY: usize = 4096;
/// Old ones are replaced this long before their end, or halfway where they don't live that long.
const MARGIN: Duration = Duration::from_secs(60);

/// However long they are said to hold.
const LONGEST: Duration = Duration::from_secs(30 * 86_400);
/// One that is refused may be good, and the refusal about something else: it isn't made anew with every refusal.
const PAUSE: Duration = Duration::from_secs(10);

pub struct Fresh<V, E> {
    slots: Mutex<Slots<V, E>>,
}

struct Slots<V, E> {
    by_key: HashMap<Key, Arc<Slot<V, E>>>,
    /// How many there may be before somebody looks for those that can go.
    many: usize,
}

struct Slot<V, E> {
    current: ArcSwapOption<Entry<V>>,
    /// Held by whoever makes one; says how that last failed.
    making: tokio::sync::Mutex<Option<(Instant, E)>>,
    /// When one was last thrown away before its end.
    forgotten: Mutex<Option<Instant>>,
}

struct Entry<V> {
    value: Arc<V>,
    renew: Instant,
    end: Instant,
}

/// A new one, and how long it holds.
pub struct Made<V> {
    pub value: V,
    pub lifetime: Duration,
}

impl<V, E> Default for Fresh<V, E> {
    fn default() -> Self {
        Fresh {
            slots: Mutex::new(Slots {
                by_key: HashMap::new(),
                many: MANY,
            }),
        }
    }
}

impl<V, E: Clone> Fresh<V, E> {
    /// The one under this key. Where it has to be made, all others wait for whoever does, and share a failure; where the old one still
    /// holds, they use that.
    pub async fn get(
        &self,
        key: Key,
        make: impl AsyncFnOnce() -> Result<Made<V>, E>,
    ) -> Result<Arc<V>, E> {
        let slot = self.slot(key);
        let asked = Instant::now();
        if let Some(value) = slot.usable(|entry| entry.renew > asked) {
            return Ok(value);
        }
        let mut failed = match slot.making.try_lock() {
            Ok(guard) => guard,
            Err(_) => {
                if let Some(value) = slot.usable(|entry| entry.end > asked) {
                    return Ok(value);
                }
                slot.making.lock().await
            }
        };
        if let Some(value) = slot.usable(|entry| entry.renew > Instant::now()) {
            return Ok(value);
        }
        if let Some((at, error)) = failed.as_ref()
            && *at > asked
        {
            return Err(error.clone());
        }
        match make().await {
            Ok(Made { value, lifetime }) => {
                *failed = None;
                let (value, now) = (Arc::new(value), Instant::now());
                let lifetime = lifetime.min(LONGEST);
                if !lifetime.is_zero() {
                    slot.current.store(Some(Arc::new(Entry {
                        value: value.clone(),
                        renew: now + lifetime - MARGIN.min(lifetime / 2),
                        end: now + lifetime,
                    })));
                }
                Ok(value)
            }
            Err(error) => {
                *failed = Some((Instant::now(), error.clone()));
                // One that still holds is better than none.
                let usable = slot.usable(|entry| entry.end > Instant::now());
                usable.ok_or(error)
            }
        }
    }

    /// Whoever needs it next has it made anew, unless somebody already has. Whether that is so: another one isn't made so soon.
    pub fn forget(&self, key: Key, value: &Arc<V>) -> bool {
        let slot = self.slot(key);
        let mut forgotten = slot
            .forgotten
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let current = slot.current.load_full();
        let same = current.is_some_and(|entry| Arc::ptr_eq(&entry.value, value));
        if !same {
            return true;
        }
        let may = forgotten.is_none_or(|at| at.elapsed() > PAUSE);
        if may {
            *forgotten = Some(Instant::now());
            slot.current.store(None);
        }
        may
    }

    fn slot(&self, key: Key) -> Arc<Slot<V, E>> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.by_key.len() > slots.many {
            let now = Instant::now();
            slots.by_key.retain(|_, slot| {
                Arc::strong_count(slot) > 1 || slot.usable(|entry| entry.end > now).is_some()
            });
            slots.many = MANY.max(2 * slots.by_key.len());
        }
        let slot = slots.by_key.entry(key).or_insert_with(|| {
            Arc::new(Slot {
                current: ArcSwapOption::empty(),
                making: tokio::sync::Mutex::new(None),
                forgotten: Mutex::new(None),
            })
        });
        slot.clone()
    }
}

impl<V, E> Slot<V, E> {
    fn usable(&self, good: impl Fn(&Entry<V>) -> bool) -> Option<Arc<V>> {
        let entry = self.current.load();
        let entry = entry.as_ref().filter(|entry| good(entry))?;
        Some(entry.value.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const KEY: Key = [7; 32];
    const LONG: Duration = Duration::from_secs(3600);

    struct Maker {
        made: AtomicUsize,
        lifetime: Duration,
        fails: bool,
    }

    impl Maker {
        async fn make(&self) -> Result<Made<usize>, String> {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let value = 1 + self.made.fetch_add(1, Ordering::SeqCst);
            if self.fails {
                return Err(format!("no {value}"));
            }
            let lifetime = self.lifetime;
            Ok(Made { value, lifetime })
        }
    }

    fn maker(lifetime: Duration, fails: bool) -> Arc<Maker> {
        Arc::new(Maker {
            made: AtomicUsize::new(0),
            lifetime,
            fails,
        })
    }

    async fn all(
        fresh: &Arc<Fresh<usize, String>>,
        maker: &Arc<Maker>,
    ) -> Vec<Result<usize, String>> {
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let (fresh, maker) = (fresh.clone(), maker.clone());
                tokio::spawn(async move {
                    let got = fresh.get(KEY, async || maker.make().await).await;
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
    async fn one_makes_it_for_all() {
        let (fresh, maker) = (Arc::default(), maker(LONG, false));
        assert!(all(&fresh, &maker).await.iter().all(|got| *got == Ok(1)));
        assert!(all(&fresh, &maker).await.iter().all(|got| *got == Ok(1)));
    }

    #[tokio::test]
    async fn a_failure_is_the_answer_to_all_who_waited_and_to_nobody_after() {
        let (fresh, maker) = (Arc::default(), maker(LONG, true));
        let first = all(&fresh, &maker).await;
        assert!(
            first.iter().all(|got| *got == Err("no 1".into())),
            "{first:?}"
        );
        assert_eq!(all(&fresh, &maker).await[0], Err("no 2".into()));
    }

    #[tokio::test]
    async fn what_is_forgotten_is_made_again_once() {
        let (fresh, maker) = (Arc::<Fresh<usize, String>>::default(), maker(LONG, false));
        let first = fresh.get(KEY, async || maker.make().await).await.unwrap();
        assert!(fresh.forget(KEY, &first));
        let second = fresh.get(KEY, async || maker.make().await).await.unwrap();
        assert_eq!(*second, 2);
        // The first is not the current one any more, and the second isn't made anew for every refusal.
        assert!(fresh.forget(KEY, &first));
        assert!(!fresh.forget(KEY, &second));
        assert!(all(&fresh, &maker).await.iter().all(|got| *got == Ok(2)));
    }

    #[tokio::test]
    async fn no_lifetime_is_too_long_to_add() {
        let (fresh, maker) = (Arc::default(), maker(Duration::MAX, false));
        assert_eq!(all(&fresh, &maker).await[0], Ok(1));
    }

    #[tokio::test]
    async fn nothing_is_kept_that_does_not_hold() {
        let (fresh, maker) = (
            Arc::<Fresh<usize, String>>::default(),
            maker(Duration::ZERO, false),
        );
        for expected in 1..4 {
            let got = fresh.get(KEY, async || maker.make().await).await.unwrap();
            assert_eq!(*got, expected);
        }
    }
}
