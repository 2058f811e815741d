use std::time::{Duration, Instant};

use parking_lot::Mutex;

const INTERVAL: Duration = Duration::from_secs(10);

/// Lets one log line in ten seconds through, where a lasting fault would otherwise log a line for
/// each connection or call.
pub struct Throttle {
    interval: Duration,
    last: Mutex<Option<Instant>>,
}

impl Throttle {
    #[expect(clippy::new_without_default, reason = "Default can't be const")]
    pub const fn new() -> Self {
        Throttle::every(INTERVAL)
    }

    pub const fn every(interval: Duration) -> Self {
        Throttle {
            interval,
            last: Mutex::new(None),
        }
    }

    /// Whether a line may be logged now. Counts as logged, if so.
    pub fn is_due(&self) -> bool {
        self.is_due_at(Instant::now())
    }

    fn is_due_at(&self, now: Instant) -> bool {
        let mut last = self.last.lock();
        let due = last.is_none_or(|last| now.saturating_duration_since(last) >= self.interval);
        if due {
            *last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttle_is_due_once_in_each_interval() {
        let throttle = Throttle::new();
        let start = Instant::now();
        let due = |seconds| throttle.is_due_at(start + Duration::from_secs(seconds));
        let answers = [0, 0, 9, 10, 11, 19, 20].map(due);
        assert_eq!(answers, [true, false, false, true, false, false, true]);
    }
}
