//! The time of day. A clock set before 1970 reads as zero.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A thread that asks for the time at one of its instants reads the time of day no more often.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Unix time in seconds.
pub fn unix_now() -> u64 {
    since_epoch().as_secs()
}

/// Unix time in seconds at an instant that was read just now: reading two clocks costs twice as
/// much. A time of day that someone sets is noticed within a second.
pub fn unix_at(now: Instant) -> u64 {
    thread_local! {
        static READ: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
    }
    if let Some((instant, unix)) = READ.get() {
        let since = now.saturating_duration_since(instant);
        if since < READ_EVERY {
            return (unix + since).as_secs();
        }
    }
    let unix = since_epoch();
    READ.set(Some((now, unix)));
    unix.as_secs()
}

/// Unix time in milliseconds.
pub fn unix_millis() -> u64 {
    since_epoch().as_millis() as u64
}

fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_at_an_instant_is_that_of_the_clock_before_and_after_it_is_read_anew() {
        let begin = Instant::now();
        for millis in [0, 400, 999, 1000, 1500, 2400, 5000] {
            // Instants to come: the clock is read at the first of them, and when they are a second
            // later.
            let at = unix_at(begin + Duration::from_millis(millis));
            let now = unix_now();
            assert!((now..=now + 1).contains(&at), "{millis}: {at}, {now}");
        }
        let before = unix_at(begin);
        assert!(before.abs_diff(unix_now()) <= 1);
    }
}
