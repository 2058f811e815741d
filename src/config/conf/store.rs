use std::time::Duration;

use super::value::{Plain, Seconds, raw_section};
use crate::store::call_log::Retention;

raw_section! {
    /// `[store]`.
    RawStore {
        call_log: Plain<bool>,
        call_log_days: Plain<u32>,
        call_log_rows: Plain<u64>,
        stale_seconds: Seconds,
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// How long virtual keys that were seen before go on while the database is away.
    pub stale: Duration,
    /// Calls and requests to routes are logged in the database.
    pub call_log: bool,
    pub retention: Retention,
}

impl RawStore {
    pub(in crate::config) fn resolve(self) -> StoreSettings {
        StoreSettings {
            stale: self.stale_seconds.unwrap_or(Duration::from_secs(300)),
            call_log: self.call_log.unwrap_or(true),
            retention: Retention {
                days: self.call_log_days.unwrap_or(30),
                rows: self.call_log_rows.unwrap_or(0),
            },
        }
    }
}
