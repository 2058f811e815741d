//! The time of day. A clock set before 1970 reads as zero.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Unix time in seconds.
pub fn unix_now() -> u64 {
    since_epoch().as_secs()
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
