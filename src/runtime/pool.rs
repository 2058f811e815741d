//! Things that take long to open and are used by many at a time: sessions. One for each key, opened by whoever needs it first, closed when nobody
//! has needed it for a while.

use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::derived_key::Key;

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

pub trait Pooled<E>: Any + Send + Sync {
    fn is_open(&self) -> bool;
    /// Why it isn't any more.
    fn end(&self) -> E;
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
    current: Option<Entry<E>>,
    failures: u32,
    /// How often in a row one has ended soon after it was opened.
    deaths: u32,
    failed: Option<(Instant, E)>,
    /// Whether nobody will need it again.
    discarded: bool,
}

struct Entry<E> {
    session: Arc<dyn Pooled<E>>,
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

impl<E: Clone + Send + 'static> Pool<E> {
    /// The open one under this key, or a new one. `open` is given what was noted about this key before, and notes anew. It goes on where
    /// whoever asked has left: others may wait for it, and the next one will. `full` says that all there may be are in use.
    pub async fn get<S, F>(
        &self,
        key: Key,
        full: impl FnOnce() -> E,
        open: impl FnOnce(u8) -> F + Send + 'static,
    ) -> Result<Arc<S>, E>
    where
        S: Pooled<E>,
        F: Future<Output = Result<(S, u8), E>> + Send + 'static,
    {
        let slot = self.slot(key).ok_or_else(full)?;
        if let Some(session) = slot.open_one() {
            return Ok(session);
        }
        let opening = tokio::spawn(slot.open(open));
        match opening.await {
            Ok(opened) => opened,
            Err(gone) if gone.is_panic() => std::panic::resume_unwind(gone.into_panic()),
            // The runtime ends, and this with it.
            Err(_) => std::future::pending().await,
        }
    }

    /// Those that are open, each with its key.
    pub fn open<S: Pooled<E>>(&self) -> Vec<(Key, Arc<S>)> {
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
            let stale = |entry: &Entry<E>| {
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
                .is_some_and(|(at, _)| !state.discarded && at.elapsed() < LONGEST_PAUSE);
            state.current.is_some() || waits || Arc::strong_count(slot) > 1
        });
    }

    /// Whoever needs this one next opens another, unless somebody already has.
    pub fn forget<S: Pooled<E>>(&self, key: Key, session: &Arc<S>) {
        if let Some(slot) = self.lock().get(&key) {
            let mut state = slot.lock();
            let ours = Arc::as_ptr(session).cast::<()>();
            let same = |entry: &Entry<E>| Arc::as_ptr(&entry.session).cast::<()>() == ours;
            if state.current.as_ref().is_some_and(same) {
                state.current = None;
            }
        }
    }

    /// Nobody will need this one again. One that is being opened closes as soon as it is open, and has its place until then.
    pub fn discard(&self, key: Key) {
        let mut slots = self.lock();
        if let Some(slot) = slots.get(&key) {
            if Arc::strong_count(slot) == 1 {
                slots.remove(&key);
                return;
            }
            let mut state = slot.lock();
            (state.discarded, state.current) = (true, None);
        }
    }

    /// What it failed for is over: whoever needs it next may try at once.
    pub fn pardon(&self, key: Key) {
        if let Some(slot) = self.lock().get(&key) {
            let mut state = slot.lock();
            (state.failed, state.failures) = (None, 0);
        }
    }

    /// Close everything.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn slot(&self, key: Key) -> Option<Arc<Slot<E>>> {
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
            let (_, oldest) = oldest?;
            slots.remove(&oldest);
        }
        let slot = slots.entry(key).or_insert_with(|| {
            Arc::new(Slot {
                opening: tokio::sync::Mutex::new(()),
                state: Mutex::new(State {
                    current: None,
                    failures: 0,
                    deaths: 0,
                    failed: None,
                    discarded: false,
                }),
                note: AtomicU8::new(0),
            })
        });
        Some(slot.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Slot<E>>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Clone + Send + 'static> Slot<E> {
    async fn open<S, F>(
        self: Arc<Self>,
        open: impl FnOnce(u8) -> F + Send + 'static,
    ) -> Result<Arc<S>, E>
    where
        S: Pooled<E>,
        F: Future<Output = Result<(S, u8), E>> + Send + 'static,
    {
        let _turn = self.opening.lock().await;
        if let Some(session) = self.open_one() {
            return Ok(session);
        }
        self.may_try()?;
        let opened = open(self.note.load(Ordering::Relaxed)).await;
        let mut state = self.lock();
        match opened {
            Ok((session, note)) => {
                self.note.store(note, Ordering::Relaxed);
                let session = Arc::new(session);
                let now = Instant::now();
                (state.failed, state.failures) = (None, 0);
                state.current = (!state.discarded).then(|| Entry {
                    session: session.clone(),
                    opened: now,
                    used: now,
                });
                Ok(session)
            }
            Err(error) => {
                self.note.store(0, Ordering::Relaxed);
                state.failures = state.failures.saturating_add(1);
                state.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    fn open_one<S: Pooled<E>>(&self) -> Option<Arc<S>> {
        let mut state = self.lock();
        let now = Instant::now();
        let entry = state.current.as_mut()?;
        if !entry.session.is_open() {
            // Once may happen. Again and again, it needs a pause.
            let soon = now.duration_since(entry.opened) < SOON;
            let error = entry.session.end();
            state.deaths = if soon {
                state.deaths.saturating_add(1)
            } else {
                0
            };
            if state.deaths > 1 {
                state.failures = state.deaths - 1;
                state.failed = Some((now, error));
            }
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

    impl Pooled<String> for Door {
        fn is_open(&self) -> bool {
            self.open.load(Ordering::SeqCst)
        }

        fn end(&self) -> String {
            "closed".to_owned()
        }
    }

    const KEY: Key = [1; 32];

    fn door(number: usize) -> Door {
        Door {
            open: AtomicBool::new(true),
            number,
        }
    }

    async fn get(pool: &Pool<String>, key: Key, made: &Arc<AtomicUsize>) -> Arc<Door> {
        let made = made.clone();
        let open = move |note: u8| async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok((door(made.fetch_add(1, Ordering::SeqCst)), note + 1))
        };
        pool.get(key, full, open).await.unwrap()
    }

    fn full() -> String {
        "full".to_owned()
    }

    #[tokio::test]
    async fn one_is_opened_for_all_and_another_when_it_has_closed() {
        let (pool, made) = (Pool::<String>::default(), Arc::default());
        let (one, two, other) = tokio::join!(
            get(&pool, KEY, &made),
            get(&pool, KEY, &made),
            get(&pool, [2; 32], &made)
        );
        assert_eq!(one.number, two.number);
        assert_ne!(one.number, other.number);
        one.open.store(false, Ordering::SeqCst);
        assert_ne!(get(&pool, KEY, &made).await.number, one.number);
        assert_eq!(made.load(Ordering::SeqCst), 3);
        assert_eq!(pool.open::<Door>().len(), 2);
        pool.clear();
        assert!(pool.open::<Door>().is_empty());
    }

    #[tokio::test]
    async fn an_opening_goes_on_when_whoever_asked_has_left() {
        let (pool, made) = (Pool::<String>::default(), Arc::default());
        let impatient = tokio::time::timeout(Duration::from_millis(1), get(&pool, KEY, &made));
        assert!(impatient.await.is_err());
        assert_eq!(get(&pool, KEY, &made).await.number, 0);
        assert_eq!(made.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn one_that_ends_again_and_again_needs_a_pause() {
        let (pool, made) = (Pool::<String>::default(), Arc::default());
        for _ in 0..2 {
            get(&pool, KEY, &made)
                .await
                .open
                .store(false, Ordering::SeqCst);
        }
        let third = pool
            .get(KEY, full, |note| async move { Ok((door(9), note)) })
            .await;
        assert_eq!(third.err().as_deref(), Some("closed"));
    }

    #[tokio::test]
    async fn after_a_failure_nobody_tries_for_a_moment() {
        let pool = Pool::<String>::default();
        let tried = Arc::new(AtomicUsize::new(0));
        let get = async || {
            let tried = tried.clone();
            let open = move |_| async move {
                Err::<(Door, u8), _>(format!("no {}", tried.fetch_add(1, Ordering::SeqCst)))
            };
            pool.get(KEY, full, open).await.err().unwrap()
        };
        assert_eq!(get().await, "no 0");
        assert_eq!(get().await, "no 0");
        tokio::time::sleep(FIRST_PAUSE + Duration::from_millis(50)).await;
        assert_eq!(get().await, "no 1");
        // Twice as long now.
        tokio::time::sleep(FIRST_PAUSE + Duration::from_millis(50)).await;
        assert_eq!(get().await, "no 1");
        // Unless its cause is gone.
        pool.pardon(KEY);
        assert_eq!(get().await, "no 2");
    }

    #[tokio::test]
    async fn what_is_discarded_while_it_is_opened_is_closed() {
        let (pool, made) = (Pool::<String>::default(), Arc::default());
        let impatient = tokio::time::timeout(Duration::from_millis(1), get(&pool, KEY, &made));
        assert!(impatient.await.is_err());
        pool.discard(KEY);
        // It has its place until it is open.
        assert_eq!(pool.lock().len(), 1);
        while pool.lock().values().any(|slot| Arc::strong_count(slot) > 1) {
            tokio::task::yield_now().await;
        }
        assert!(pool.open::<Door>().is_empty());
        pool.discard(KEY);
        assert_eq!(pool.lock().len(), 0);
        assert_eq!(get(&pool, KEY, &made).await.number, 1);
        let left = pool.open::<Door>();
        assert_eq!(
            left.iter().map(|(_, door)| door.number).collect::<Vec<_>>(),
            [1]
        );
    }

    #[tokio::test]
    async fn only_the_one_that_is_meant_is_forgotten() {
        let (pool, made) = (Pool::<String>::default(), Arc::default());
        let first = get(&pool, KEY, &made).await;
        pool.forget(KEY, &first);
        let second = get(&pool, KEY, &made).await;
        assert_ne!(first.number, second.number);
        pool.forget(KEY, &first);
        assert_eq!(get(&pool, KEY, &made).await.number, second.number);
    }

    #[tokio::test]
    async fn there_are_never_too_many() {
        let pool = Pool::<String>::default();
        let get = async |number: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_be_bytes());
            let open = move |_| async move { Ok((door(number), 0)) };
            pool.get(key, full, open).await
        };
        for number in 0..MOST + 10 {
            get(number).await.unwrap();
        }
        assert_eq!(pool.open::<Door>().len(), MOST);
        let mut used = Vec::new();
        for number in 0..MOST {
            used.push(get(number).await.unwrap());
        }
        assert_eq!(get(MOST).await.err(), Some(full()));
        used.pop();
        assert!(get(MOST).await.is_ok());
    }
}
