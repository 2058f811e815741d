//! A pool of sessions that are slow to open and shared by many callers at a time: one session for
//! each key. The first caller that needs it has it opened (single flight, with a back-off after
//! failures), and it is closed once it has been idle for a while.
//!
//! A session lives on one runtime: its tasks run there, and its pipes are registered there. That
//! is the runtime of the worker that asked for it first, because a call that crosses no thread
//! costs half as much. A caller that is no worker (discovery, on the main thread) has it opened on
//! a worker, in turn.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::Key;
use crate::backoff::Backoff;
use crate::single_flight::SingleFlight;

/// A session that is unused for so long is closed.
const IDLE: Duration = Duration::from_secs(300);
/// A session is replaced after this, however much it is used.
const LIFETIME: Duration = Duration::from_secs(3600);
/// How many sessions are open at a time.
const MOST_SESSIONS: usize = 256;
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// A session that ends this soon after it was opened counts as a failure.
const EARLY_END: Duration = Duration::from_secs(5);

pub trait PooledSession: Send + Sync + 'static {
    type Error: Clone + Send + 'static;

    fn is_open(&self) -> bool;
    /// Why it isn't open any more.
    fn end_reason(&self) -> Self::Error;
    /// The pool doesn't hold it any more. For the log.
    fn removed(&self, _: Removal) {}
}

/// Why the pool gave up a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    Ended,
    Idle,
    Expired,
    /// Another session needed its place.
    Evicted,
    /// A caller asked for another one in its place.
    Replaced,
    /// It was for one call.
    Discarded,
    Shutdown,
}

/// Sessions `S`, each with a note `N`: what was learned about the other side when the last session
/// under this key was opened, for the next time.
pub struct Pool<S: PooledSession, N> {
    slots: Mutex<HashMap<Key, Arc<Slot<S, N>>>>,
    homes: Homes,
}

/// The runtimes that sessions live on. Any, where there are none: a command has one runtime.
#[derive(Default)]
struct Homes {
    workers: OnceLock<Vec<Handle>>,
    next: AtomicUsize,
}

impl Homes {
    /// The caller's runtime, if it is a worker's, or the next worker's.
    fn pick(&self) -> Handle {
        let own = Handle::current();
        let workers = self.workers.get().map(Vec::as_slice).unwrap_or_default();
        if workers.is_empty() || workers.iter().any(|worker| worker.id() == own.id()) {
            return own;
        }
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        workers[turn % workers.len()].clone()
    }
}

struct Slot<S: PooledSession, N> {
    opening: SingleFlight<S::Error>,
    state: Mutex<SlotState<S, N>>,
}

struct SlotState<S, N> {
    current: Option<OpenSession<S>>,
    /// How many sessions in a row have ended soon after they were opened.
    early_ends: u32,
    note: N,
    /// The session was for one call, which is over.
    discarded: bool,
}

struct OpenSession<S> {
    session: Arc<S>,
    opened: Instant,
    used: Instant,
}

impl<S> OpenSession<S> {
    /// Whether a caller holds it.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.session) > 1
    }
}

impl<S: PooledSession, N> Default for Pool<S, N> {
    fn default() -> Self {
        Pool {
            slots: Mutex::default(),
            homes: Homes::default(),
        }
    }
}

impl<S: PooledSession, N: Clone + Default + Send + 'static> Pool<S, N> {
    /// Has sessions live on these runtimes, from the next one that is opened on.
    pub fn live_on(&self, workers: Vec<Handle>) {
        let _ = self.homes.workers.set(workers);
    }

    /// Returns the open session under this key, or a new one. `open` is given the note of this key
    /// and returns the next. It runs on where its caller leaves: other callers may wait for it, and
    /// the next caller will need it. `full` is the error where every session is in use.
    pub async fn get<F>(
        &self,
        key: Key,
        full: impl FnOnce() -> S::Error,
        open: impl FnOnce(N) -> F + Send + 'static,
    ) -> Result<Arc<S>, S::Error>
    where
        F: Future<Output = Result<(S, N), S::Error>> + Send + 'static,
    {
        let slot = self.slot(key).ok_or_else(full)?;
        if let Some(session) = slot.open_session() {
            return Ok(session);
        }
        let opening = self.homes.pick().spawn(slot.open(open));
        match opening.await {
            Ok(opened) => opened,
            Err(gone) if gone.is_panic() => std::panic::resume_unwind(gone.into_panic()),
            // The runtime ends, and this task with it.
            Err(_) => std::future::pending().await,
        }
    }

    /// The open sessions, each with its key.
    pub fn open_sessions(&self) -> Vec<(Key, Arc<S>)> {
        let slots = self.slots.lock();
        let open = slots.iter().filter_map(|(key, slot)| {
            let state = slot.state.lock();
            Some((*key, state.current.as_ref()?.session.clone()))
        });
        open.collect()
    }

    /// Whether the last attempt to open a session under this key failed.
    pub fn has_failed(&self, key: Key) -> bool {
        let slots = self.slots.lock();
        slots
            .get(&key)
            .is_some_and(|slot| slot.opening.has_failed_within(LONGEST_RETRY))
    }

    /// Closes idle and old sessions, and drops slots without a session.
    pub fn sweep(&self) {
        let now = Instant::now();
        self.slots.lock().retain(|_, slot| {
            let mut state = slot.state.lock();
            if let Some(removal) = state.current.as_ref().and_then(|open| stale(open, now)) {
                state.remove(removal);
            }
            let backs_off = !state.discarded && slot.opening.has_failed_within(LONGEST_RETRY);
            state.current.is_some() || backs_off || Arc::strong_count(slot) > 1
        });
    }

    /// Drops this session if it is still the current one: the next caller opens another.
    pub fn replace(&self, key: Key, session: &Arc<S>) {
        if let Some(slot) = self.slots.lock().get(&key) {
            let mut state = slot.state.lock();
            let current = state.current.as_ref();
            if current.is_some_and(|open| Arc::ptr_eq(&open.session, session)) {
                state.remove(Removal::Replaced);
            }
        }
    }

    /// Drops the session of a key that won't be used again. A session that is still being opened
    /// keeps its slot until it is open, and is closed then.
    pub fn discard(&self, key: Key) {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.get(&key) {
            let mut state = slot.state.lock();
            state.discarded = true;
            state.remove(Removal::Discarded);
            drop(state);
            if Arc::strong_count(slot) == 1 {
                slots.remove(&key);
            }
        }
    }

    /// Ends the back-off of a key whose last failure has been dealt with.
    pub fn forgive(&self, key: Key) {
        if let Some(slot) = self.slots.lock().get(&key) {
            slot.opening.forgive();
        }
    }

    /// Closes everything.
    pub fn clear(&self) {
        for (_, slot) in self.slots.lock().drain() {
            slot.state.lock().remove(Removal::Shutdown);
        }
    }

    /// The slot of this key. Where there is no room for another, the session that was used least
    /// recently is closed; None if all are in use.
    fn slot(&self, key: Key) -> Option<Arc<Slot<S, N>>> {
        let mut slots = self.slots.lock();
        if !slots.contains_key(&key) && slots.len() >= MOST_SESSIONS {
            let free_since = |slot: &Arc<Slot<S, N>>| {
                let state = slot.state.lock();
                let open = state.current.as_ref();
                let in_use = open.is_some_and(OpenSession::is_in_use);
                (!in_use && Arc::strong_count(slot) == 1).then(|| open.map(|open| open.used))
            };
            let (_, oldest) = slots
                .iter()
                .filter_map(|(key, slot)| Some((free_since(slot)?, *key)))
                .min()?;
            if let Some(slot) = slots.remove(&oldest) {
                slot.state.lock().remove(Removal::Evicted);
            }
        }
        let slot = slots.entry(key).or_insert_with(|| {
            Arc::new(Slot {
                opening: SingleFlight::new(Backoff::new(FIRST_RETRY, LONGEST_RETRY)),
                state: Mutex::new(SlotState {
                    current: None,
                    early_ends: 0,
                    note: N::default(),
                    discarded: false,
                }),
            })
        });
        Some(slot.clone())
    }
}

/// Why a sweep closes this session, if it does.
fn stale<S: PooledSession>(open: &OpenSession<S>, now: Instant) -> Option<Removal> {
    let idle = now.duration_since(open.used) > IDLE;
    let expired = now.duration_since(open.opened) > LIFETIME;
    match open.session.is_open() {
        false => Some(Removal::Ended),
        true if open.is_in_use() => None,
        true if idle => Some(Removal::Idle),
        true if expired => Some(Removal::Expired),
        true => None,
    }
}

impl<S: PooledSession, N: Clone + Default + Send + 'static> Slot<S, N> {
    async fn open<F>(
        self: Arc<Self>,
        open: impl FnOnce(N) -> F + Send + 'static,
    ) -> Result<Arc<S>, S::Error>
    where
        F: Future<Output = Result<(S, N), S::Error>> + Send + 'static,
    {
        let make = async {
            let note = self.state.lock().note.clone();
            let opened = open(note).await;
            let mut state = self.state.lock();
            match opened {
                Ok((session, note)) => {
                    state.note = note;
                    Ok(state.store(session))
                }
                Err(error) => {
                    state.note = N::default();
                    Err(error)
                }
            }
        };
        let open_session = || self.open_session();
        self.opening.run(open_session, || None, make).await
    }

    /// The current session, if it is open and not too old.
    fn open_session(&self) -> Option<Arc<S>> {
        let mut state = self.state.lock();
        let now = Instant::now();
        let open = state.current.as_mut()?;
        if !open.session.is_open() {
            let early = now.duration_since(open.opened) < EARLY_END;
            let reason = open.session.end_reason();
            state.early_ends = if early {
                state.early_ends.saturating_add(1)
            } else {
                0
            };
            // The first early end is retried at once; more in a row back off.
            if state.early_ends > 1 {
                self.opening.fail(reason, state.early_ends - 1);
            }
            state.remove(Removal::Ended);
            return None;
        }
        if now.duration_since(open.opened) > LIFETIME {
            state.remove(Removal::Expired);
            return None;
        }
        open.used = now;
        Some(open.session.clone())
    }
}

impl<S: PooledSession, N> SlotState<S, N> {
    fn store(&mut self, session: S) -> Arc<S> {
        let (session, now) = (Arc::new(session), Instant::now());
        if self.discarded {
            session.removed(Removal::Discarded);
        } else {
            self.current = Some(OpenSession {
                session: session.clone(),
                opened: now,
                used: now,
            });
        }
        session
    }

    fn remove(&mut self, removal: Removal) {
        if let Some(open) = self.current.take() {
            open.session.removed(removal);
        }
    }
}

#[cfg(test)]
mod tests;
