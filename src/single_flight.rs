//! Single flight: of all callers that need the same result at the same time, one makes it and the
//! others wait for it. A failure is shared, too: callers that waited get it as their own, and so do
//! callers that come within the back-off after it. The result itself is kept by the owner.

use std::future::Future;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::backoff::Backoff;

pub struct SingleFlight<E> {
    /// Held by the caller that makes the result.
    turn: tokio::sync::Mutex<()>,
    failure: Mutex<Option<SharedFailure<E>>>,
    backoff: Backoff,
}

struct SharedFailure<E> {
    at: Instant,
    in_a_row: u32,
    error: E,
}

impl<E: Clone> SingleFlight<E> {
    pub fn new(backoff: Backoff) -> Self {
        SingleFlight {
            turn: tokio::sync::Mutex::new(()),
            failure: Mutex::new(None),
            backoff,
        }
    }

    /// Returns what `fresh` finds, or else what `make` makes. `make` runs in one caller at a time
    /// and stores its result where `fresh` finds it. A caller that would have to wait takes what
    /// `stale` gives instead, if it gives anything. Where the caller that makes the result is
    /// cancelled, the next one that waits makes it.
    pub async fn run<V>(
        &self,
        fresh: impl FnOnce() -> Option<V>,
        stale: impl FnOnce() -> Option<V>,
        make: impl Future<Output = Result<V, E>>,
    ) -> Result<V, E> {
        let asked = Instant::now();
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(_) => match stale() {
                Some(value) => return Ok(value),
                None => self.turn.lock().await,
            },
        };
        if let Some(value) = fresh() {
            return Ok(value);
        }
        if let Some(error) = self.failure_for(asked) {
            return Err(error);
        }
        let made = make.await;
        match &made {
            Ok(_) => self.forgive(),
            Err(error) => {
                let before = self.failure.lock().as_ref().map_or(0, |last| last.in_a_row);
                self.fail(error.clone(), before.saturating_add(1));
            }
        }
        made
    }

    /// Whether a caller is making the result now.
    pub fn is_running(&self) -> bool {
        self.turn.try_lock().is_err()
    }

    /// Records a failure that showed after the flight: a result that soon proved useless.
    pub fn fail(&self, error: E, in_a_row: u32) {
        *self.failure.lock() = Some(SharedFailure {
            at: Instant::now(),
            in_a_row,
            error,
        });
    }

    /// Drops the recorded failure: the next caller may try at once.
    pub fn forgive(&self) {
        *self.failure.lock() = None;
    }

    pub fn has_failed_within(&self, time: Duration) -> bool {
        let failure = self.failure.lock();
        failure
            .as_ref()
            .is_some_and(|last| last.at.elapsed() < time)
    }

    /// The recorded failure, if it answers a caller that asked at this time.
    fn failure_for(&self, asked: Instant) -> Option<E> {
        let failure = self.failure.lock();
        let last = failure.as_ref()?;
        let shared = last.at > asked || last.at.elapsed() < self.backoff.delay(last.in_a_row);
        shared.then(|| last.error.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A cache of one number, made by a single flight.
    struct Cache {
        flight: SingleFlight<String>,
        value: Mutex<Option<usize>>,
        made: AtomicUsize,
    }

    fn cache(backoff: Backoff) -> Arc<Cache> {
        Arc::new(Cache {
            flight: SingleFlight::new(backoff),
            value: Mutex::new(None),
            made: AtomicUsize::new(0),
        })
    }

    impl Cache {
        async fn get(&self, succeeds: bool) -> Result<usize, String> {
            let fresh = || *self.value.lock();
            let make = async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                let number = 1 + self.made.fetch_add(1, Ordering::SeqCst);
                if !succeeds {
                    return Err(format!("failure {number}"));
                }
                *self.value.lock() = Some(number);
                Ok(number)
            };
            self.flight.run(fresh, || None, make).await
        }

        fn failure_is_shared(&self) -> bool {
            self.flight.failure_for(Instant::now()).is_some()
        }

        async fn get_by_many(self: &Arc<Self>, succeeds: bool) -> Vec<Result<usize, String>> {
            let tasks: Vec<_> = (0..50)
                .map(|_| {
                    let cache = self.clone();
                    tokio::spawn(async move { cache.get(succeeds).await })
                })
                .collect();
            let mut results = Vec::new();
            for task in tasks {
                results.push(task.await.unwrap());
            }
            results
        }
    }

    #[tokio::test]
    async fn concurrent_callers_share_one_result() {
        let cache = cache(Backoff::NONE);
        let results = cache.get_by_many(true).await;
        assert!(results.iter().all(|got| *got == Ok(1)), "{results:?}");
        assert!(!cache.flight.is_running());
    }

    #[tokio::test]
    async fn failure_is_shared_by_waiting_callers_only() {
        let cache = cache(Backoff::NONE);
        let shared = Err("failure 1".to_owned());
        let results = cache.get_by_many(false).await;
        assert!(results.iter().all(|got| *got == shared), "{results:?}");
        assert_eq!(cache.get(false).await, Err("failure 2".to_owned()));
        assert_eq!(cache.get(true).await, Ok(3));
    }

    #[tokio::test]
    async fn failure_answers_later_callers_within_the_back_off() {
        let hour = Duration::from_secs(3600);
        let cache = cache(Backoff::new(hour, hour));
        assert_eq!(cache.get(false).await, Err("failure 1".to_owned()));
        assert_eq!(cache.get(true).await, Err("failure 1".to_owned()));
        assert!(cache.flight.has_failed_within(hour));
        cache.flight.forgive();
        assert!(!cache.flight.has_failed_within(hour));
        assert_eq!(cache.get(true).await, Ok(2));
    }

    #[tokio::test]
    async fn failures_in_a_row_make_the_back_off_longer() {
        let first = Duration::from_millis(50);
        let cache = cache(Backoff::new(first, 10 * first));
        for failures in 1..3 {
            let begun = Instant::now();
            let failure = cache.get(false).await;
            assert_eq!(failure, Err(format!("failure {failures}")));
            // The back-off answers until it is over.
            while cache.failure_is_shared() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert!(begun.elapsed() >= failures * first);
        }
    }

    #[tokio::test]
    async fn caller_that_would_wait_takes_a_stale_value() {
        let cache = cache(Backoff::NONE);
        let other = cache.clone();
        let making = tokio::spawn(async move { other.get(true).await });
        while !cache.flight.is_running() {
            tokio::task::yield_now().await;
        }
        let never = std::future::pending::<Result<usize, String>>();
        let got = cache.flight.run(|| None, || Some(99), never).await;
        assert_eq!(got, Ok(99));
        assert_eq!(making.await.unwrap(), Ok(1));
    }

    #[tokio::test]
    async fn cancelled_maker_is_replaced_by_the_next_waiting_caller() {
        let cache = cache(Backoff::NONE);
        let impatient = tokio::time::timeout(Duration::from_millis(1), cache.get(true));
        let (cancelled, waited) = tokio::join!(impatient, cache.get(true));
        assert!(cancelled.is_err());
        assert_eq!(waited, Ok(1));
    }
}
