//! Things that take long to open and are used by many at a time: sessions. One for each key, opened by whoever needs it first, closed when nobody
//! has needed it for a while.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::fresh::Key;

/// Unused for so long, one is closed.
const IDLE: Duration = Duration::from_secs(300);
/// However much it is used, one is replaced after this.
const LIFETIME: Duration = Duration::from_secs(3600);
/// More are not kept open at a time.
const MOST: usize = 256;
/// How long nobody tries again after a first failure, and after many.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// One that ends this soon has failed, too.
const SOON: Duration = Duration::from_secs(5);

pub trait Pooled: Any + Send + Sync {
    fn is_open(&self) -> bool;
}

pub struct Pool<E> {
    slots: Mutex<HashMap<Key, Arc<Slot<E>>>>,
}

struct Slot<E> {
    /// Held by whoever opens one; the others wait.
    opening: tokio::sync::Mutex<()>,
    state: Mutex<State<E>>,
    /// What was learned about the other side, for the next time.
    note: AtomicU8,
}

struct State<E> {
    current: Option<Entry>,
    failures: u32,
    failed: Option<(Instant, E)>,
}

struct Entry {
    session: Arc<dyn Pooled>,
    opened: Instant,
    used: Instant,
}

impl<E> Default for Pool<E> {
    fn default() -> Self {
        Pool {
            slots: Mutex::default(),
        }
    }
}

impl<E: Clone> Pool<E> {
    /// The open one under this key, or a new one. `open` is given what was noted about this key before, and notes anew.
    pub async fn get<S: Pooled>(
        &self,
        key: Key,
        open: impl AsyncFnOnce(u8) -> Result<(S, u8), E>,
    ) -> Result<Arc<S>, E> {
        let slot = self.slot(key);
        if let Some(session) = slot.open_one() {
            return Ok(session);
        }
        let _turn = slot.opening.lock().await;
        if let Some(session) = slot.open_one() {
            return Ok(session);
        }
        slot.may_try()?;
        let opened = open(slot.note.load(Ordering::Relaxed)).await;
        let mut state = slot.lock();
        match opened {
            Ok((session, note)) => {
                slot.note.store(note, Ordering::Relaxed);
                let session = Arc::new(session);
                let now = Instant::now();
                state.failed = None;
                state.current = Some(Entry {
                    session: session.clone(),
                    opened: now,
                    used: now,
                });
                Ok(session)
            }
            Err(error) => {
                slot.note.store(0, Ordering::Relaxed);
                state.failures = state.failures.saturating_add(1);
                state.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Those that are open, each with its key.
    pub fn open<S: Pooled>(&self) -> Vec<(Key, Arc<S>)> {
        let slots = self.lock();
        let open = slots.iter().filter_map(|(key, slot)| {
            let state = slot.lock();
            let session = state.current.as_ref()?.session.clone();
            let session: Arc<dyn Any + Send + Sync> = session;
            Some((*key, session.downcast::<S>().ok()?))
        });
        open.collect()
    }

    /// Close what nobody needs, and forget what has been closed for long.
    pub fn sweep(&self) {
        let now = Instant::now();
        self.lock().retain(|_, slot| {
            let mut state = slot.lock();
            let stale = |entry: &Entry| {
                let in_use = Arc::strong_count(&entry.session) > 1;
                let old = now.duration_since(entry.used) > IDLE
                    || now.duration_since(entry.opened) > LIFETIME;
                (old && !in_use) || !entry.session.is_open()
            };
            if state.current.as_ref().is_some_and(stale) {
                state.current = None;
            }
            let waits = state
                .failed
                .as_ref()
                .is_some_and(|(at, _)| at.elapsed() < LONGEST_PAUSE);
            state.current.is_some() || waits || Arc::strong_count(slot) > 1
        });
    }

    /// Whoever needs this one next opens another.
    pub fn forget(&self, key: Key) {
        if let Some(slot) = self.lock().get(&key) {
            slot.lock().current = None;
        }
    }

    /// Close everything.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn slot(&self, key: Key) -> Arc<Slot<E>> {
        let mut slots = self.lock();
        if !slots.contains_key(&key) && slots.len() >= MOST {
            // The one that was needed least recently makes room, unless somebody uses it.
            let free = |slot: &Arc<Slot<E>>| {
                let state = slot.lock();
                let entry = state.current.as_ref();
                let in_use = entry.is_some_and(|entry| Arc::strong_count(&entry.session) > 1);
                (!in_use && Arc::strong_count(slot) == 1).then(|| entry.map(|entry| entry.used))
            };
            let oldest = slots
                .iter()
                .filter_map(|(key, slot)| Some((free(slot)?, *key)))
                .min();
            if let Some((_, key)) = oldest {
                slots.remove(&key);
            }
        }
        let slot = slots.entry(key).or_insert_with(|| {
            Arc::new(Slot {
                opening: tokio::sync::Mutex::new(()),
                state: Mutex::new(State {
                    current: None,
                    failures: 0,
                    failed: None,
                }),
                note: AtomicU8::new(0),
            })
        });
        slot.clone()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Slot<E>>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Clone> Slot<E> {
    fn open_one<S: Pooled>(&self) -> Option<Arc<S>> {
        let mut state = self.lock();
        let now = Instant::now();
        let entry = state.current.as_mut()?;
        if !entry.session.is_open() {
            let soon = now.duration_since(entry.opened) < SOON;
            state.failures = if soon {
                state.failures.saturating_add(1)
            } else {
                0
            };
            state.current = None;
            return None;
        }
        if now.duration_since(entry.opened) > LIFETIME {
            state.current = None;
            return None;
        }
        entry.used = now;
        let session: Arc<dyn Any + Send + Sync> = entry.session.clone();
        session.downcast().ok()
    }

    /// Not again so soon, where it has failed.
    fn may_try(&self) -> Result<(), E> {
        let state = self.lock();
        let Some((at, error)) = &state.failed else {
            return Ok(());
        };
        let doubled = FIRST_PAUSE.saturating_mul(1 << state.failures.saturating_sub(1).min(10));
        if at.elapsed() < doubled.min(LONGEST_PAUSE) {
            return Err(error.clone());
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    struct Door {
        open: AtomicBool,
        number: usize,
    }

    impl Pooled for Door {
        fn is_open(&self) -> bool {
            self.open.load(Ordering::SeqCst)
        }
    }

    const KEY: Key = [1; 32];

    #[tokio::test]
    async fn one_is_opened_for_all_and_another_when_it_has_closed() {
        let pool = Arc::new(Pool::<String>::default());
        let made = Arc::new(AtomicUsize::new(0));
        let get = async |key: Key| {
            let opened = pool.get(key, async |note| {
                tokio::time::sleep(Duration::from_millis(5)).await;
                let number = made.fetch_add(1, Ordering::SeqCst);
                let open = AtomicBool::new(true);
                Ok((Door { open, number }, note + 1))
            });
            opened.await.unwrap()
        };
        let (one, two, other) = tokio::join!(get(KEY), get(KEY), get([2; 32]));
        assert_eq!(one.number, two.number);
        assert_ne!(one.number, other.number);
        one.open.store(false, Ordering::SeqCst);
        assert_ne!(get(KEY).await.number, one.number);
        assert_eq!(made.load(Ordering::SeqCst), 3);
        assert_eq!(pool.open::<Door>().len(), 2);
        pool.clear();
        assert!(pool.open::<Door>().is_empty());
    }

    #[tokio::test]
    async fn after_a_failure_nobody_tries_for_a_moment() {
        let pool = Pool::<String>::default();
        let tried = AtomicUsize::new(0);
        let get = async || {
            let opened = pool.get::<Door>(KEY, async |_| {
                Err(format!("no {}", tried.fetch_add(1, Ordering::SeqCst)))
            });
            opened.await.err().unwrap()
        };
        assert_eq!(get().await, "no 0");
        assert_eq!(get().await, "no 0");
        tokio::time::sleep(FIRST_PAUSE + Duration::from_millis(50)).await;
        assert_eq!(get().await, "no 1");
        // Twice as long now.
        tokio::time::sleep(FIRST_PAUSE + Duration::from_millis(50)).await;
        assert_eq!(get().await, "no 1");
    }

    #[tokio::test]
    async fn there_are_never_too_many() {
        let pool = Pool::<String>::default();
        for number in 0..MOST + 10 {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_be_bytes());
            let door = Door {
                open: AtomicBool::new(true),
                number,
            };
            pool.get(key, async |_| Ok((door, 0))).await.unwrap();
        }
        assert_eq!(pool.open::<Door>().len(), MOST);
    }
}
