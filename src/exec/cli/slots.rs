//! How many programs run at a time: a semaphore for each provider, with a bounded queue.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls that may wait, for each that may run.
const WAITING_PER_SLOT: usize = 8;

/// Outlives reloads: programs of the old manifest still count.
#[derive(Default)]
pub struct ProgramSlots {
    providers: Mutex<HashMap<String, Arc<Provider>>>,
}

struct Provider {
    most: usize,
    running: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// Room for one program. Held until the program is gone.
pub struct Slot(#[allow(dead_code, reason = "dropping it makes room")] OwnedSemaphorePermit);

#[derive(Debug, PartialEq, Eq)]
pub enum NoSlot {
    /// As many calls wait as may.
    Full,
    /// The time was over.
    TimedOut,
}

impl ProgramSlots {
    pub async fn enter(&self, provider: &str, most: usize, time: Duration) -> Result<Slot, NoSlot> {
        let provider = self.provider(provider, most);
        if let Ok(permit) = provider.running.clone().try_acquire_owned() {
            return Ok(Slot(permit));
        }
        let _turn = Turn::take(&provider).ok_or(NoSlot::Full)?;
        let room = tokio::time::timeout(time, provider.running.clone().acquire_owned()).await;
        match room {
            Ok(Ok(permit)) => Ok(Slot(permit)),
            Ok(Err(_)) | Err(_) => Err(NoSlot::TimedOut),
        }
    }

    /// A manifest that changes the number gets a new semaphore; programs that run under the old
    /// one end under it.
    fn provider(&self, name: &str, most: usize) -> Arc<Provider> {
        let most = most.min(Semaphore::MAX_PERMITS);
        let mut providers = self.providers.lock();
        match providers.get(name) {
            Some(known) if known.most == most => known.clone(),
            _ => {
                let provider = Arc::new(Provider {
                    most,
                    running: Arc::new(Semaphore::new(most)),
                    waiting: AtomicUsize::new(0),
                });
                providers.insert(name.to_owned(), provider.clone());
                provider
            }
        }
    }
}

/// A place in the queue.
struct Turn<'a>(&'a Provider);

impl<'a> Turn<'a> {
    fn take(provider: &'a Provider) -> Option<Self> {
        let most = provider.most.saturating_mul(WAITING_PER_SLOT);
        let room = |waiting: usize| (waiting < most).then_some(waiting + 1);
        let taken = provider
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
        taken.ok().map(|_| Turn(provider))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn calls_beyond_the_limit_wait_and_beyond_the_queue_are_refused() {
        let slots = ProgramSlots::default();
        let first = slots.enter("p", 1, LONG).await.ok().unwrap();
        // Other providers have room of their own.
        assert!(slots.enter("q", 1, LONG).await.is_ok());
        let brief = Duration::from_millis(1);
        assert_eq!(
            slots.enter("p", 1, brief).await.err(),
            Some(NoSlot::TimedOut)
        );
        let mut waiting: Vec<_> = (0..WAITING_PER_SLOT)
            .map(|_| Box::pin(slots.enter("p", 1, LONG)))
            .collect();
        for one in &mut waiting {
            assert!(futures::poll!(one).is_pending());
        }
        assert_eq!(slots.enter("p", 1, LONG).await.err(), Some(NoSlot::Full));
        // A caller that leaves makes room in the queue.
        waiting.pop();
        let mut last = Box::pin(slots.enter("p", 1, LONG));
        assert!(futures::poll!(&mut last).is_pending());
        drop(first);
        assert!(waiting.remove(0).await.is_ok());
    }

    #[tokio::test]
    async fn changed_limit_counts_at_once() {
        let slots = ProgramSlots::default();
        let _first = slots.enter("p", 1, LONG).await.ok().unwrap();
        assert!(slots.enter("p", 2, LONG).await.is_ok());
    }
}
