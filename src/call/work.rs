//! The part of a call that may take long, on the threads for that and within the call's time.

use std::time::{Duration, Instant};

use crate::error::{CallError, Shortage};
use crate::runtime::{ComputeError, ComputePool};

/// Texts up to this size are worked on where they are: that takes about a millisecond.
pub const SMALL_TEXT: usize = 64 << 10;

/// Where the work of one call is done, and until when.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    pool: &'a ComputePool,
    /// Those who wait for the pool take turns by this name.
    owner: &'a str,
    deadline: Instant,
}

impl<'a> Work<'a> {
    pub fn new(pool: &'a ComputePool, owner: &'a str, time: Duration) -> Self {
        Work {
            pool,
            owner,
            deadline: Instant::now() + time,
        }
    }

    /// The same with more time.
    pub fn extended(self, by: Duration) -> Self {
        Work {
            deadline: self.deadline + by,
            ..self
        }
    }

    /// What is left of the call's time.
    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// The same in whole seconds, as messages tell it.
    pub fn seconds_left(&self) -> Duration {
        let left = self.time_left().as_millis().div_ceil(1000);
        Duration::from_secs(u64::try_from(left).unwrap_or(u64::MAX))
    }

    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let done = self.pool.run(self.owner, self.time_left(), work).await;
        done.map_err(|error| match error {
            ComputeError::Full => CallError::Busy(Shortage::Queue),
            ComputeError::TimedOut => CallError::Busy(Shortage::Time),
            ComputeError::Failed => CallError::Internal("the work on the call was broken off"),
        })
    }
}
