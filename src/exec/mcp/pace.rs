//! How soon something that ends again and again is begun anew.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What lasts this long has not failed.
const STEADY: Duration = Duration::from_secs(10);
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Pace(Mutex<State>);

#[derive(Default)]
struct State {
    begun: Option<Instant>,
    pause: Duration,
}

impl Pace {
    /// How long to wait before it is begun now.
    pub fn pause(&self) -> Duration {
        self.pause_at(Instant::now())
    }

    fn pause_at(&self, now: Instant) -> Duration {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lasted = state
            .begun
            .map(|begun| now.saturating_duration_since(begun));
        state.pause = match lasted {
            Some(lasted) if lasted < STEADY => (2 * state.pause).clamp(FIRST, LONGEST),
            _ => Duration::ZERO,
        };
        state.begun = Some(now + state.pause);
        state.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_at_once_is_begun_ever_more_rarely() {
        let pace = Pace::default();
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let pause = pace.pause_at(now);
            pauses.push(pause.as_secs());
            now += pause;
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 60]);
        assert_eq!(pace.pause_at(now + STEADY), Duration::ZERO);
    }
}
