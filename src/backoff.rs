//! Exponential back-off: how long to wait before something that failed is tried again.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The wait doubles with each failure in a row, from `first` to at most `longest`.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// For what may be tried again at once.
    pub const NONE: Backoff = Backoff::new(Duration::ZERO, Duration::ZERO);

    pub const fn new(first: Duration, longest: Duration) -> Self {
        Backoff { first, longest }
    }

    /// How long to wait after so many failures in a row.
    pub fn delay(&self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else {
            return Duration::ZERO;
        };
        let factor = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

/// Paces the restarts of something that should last, such as a stream that a server keeps ending.
/// A run shorter than `steady` counts as a failure.
pub struct RestartPace {
    backoff: Backoff,
    steady: Duration,
    restarts: Mutex<Restarts>,
}

#[derive(Default)]
struct Restarts {
    /// When the current run began, its delay included.
    started: Option<Instant>,
    failures: u32,
}

impl RestartPace {
    pub fn new(backoff: Backoff, steady: Duration) -> Self {
        RestartPace {
            backoff,
            steady,
            restarts: Mutex::default(),
        }
    }

    /// How long to wait before the next run. Called once for each run, the first included.
    pub fn next_delay(&self) -> Duration {
        self.next_delay_at(Instant::now())
    }

    fn next_delay_at(&self, now: Instant) -> Duration {
        let mut restarts = self.restarts.lock();
        let short = restarts
            .started
            .is_some_and(|started| now.saturating_duration_since(started) < self.steady);
        restarts.failures = if short {
            restarts.failures.saturating_add(1)
        } else {
            0
        };
        let delay = self.backoff.delay(restarts.failures);
        restarts.started = Some(now + delay);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(60);

    #[test]
    fn delay_doubles_with_each_failure_up_to_the_longest() {
        let backoff = Backoff::new(FIRST, LONGEST);
        let delays: Vec<u64> = (0..9).map(|n| backoff.delay(n).as_secs()).collect();
        assert_eq!(delays, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.delay(u32::MAX), LONGEST);
        assert_eq!(Backoff::NONE.delay(5), Duration::ZERO);
    }

    #[test]
    fn restarts_of_short_runs_are_delayed_and_a_steady_run_resets_the_delay() {
        let steady = Duration::from_secs(10);
        let pace = RestartPace::new(Backoff::new(FIRST, LONGEST), steady);
        let mut now = Instant::now();
        let mut delays = Vec::new();
        for _ in 0..8 {
            let delay = pace.next_delay_at(now);
            delays.push(delay.as_secs());
            now += delay;
        }
        assert_eq!(delays, [0, 1, 2, 4, 8, 16, 32, 60]);
        assert_eq!(pace.next_delay_at(now + steady), Duration::ZERO);
    }
}
