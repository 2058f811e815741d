//! Whether the database answers. A lost connection or a statement without an answer is a doubt; one
//! task then tries the database until it answers. While it is known to be away, requests are
//! refused at once instead of waiting for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use super::db::Db;
use super::error::StoreError;

/// How often a database that is away is tried.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);
/// An attempt that takes longer has failed.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// A database that doesn't answer.
#[derive(Debug, Clone)]
pub struct Away {
    pub since: Instant,
    pub error: StoreError,
}

#[derive(Default)]
pub struct Presence {
    away: watch::Sender<Option<Away>>,
    doubted: Notify,
}

impl Presence {
    /// None while the database answers, as far as is known.
    pub fn away(&self) -> Option<Away> {
        self.away.borrow().clone()
    }

    /// Tells each change.
    pub fn subscribe(&self) -> watch::Receiver<Option<Away>> {
        self.away.subscribe()
    }

    /// Whether the database is away has to be found out.
    pub fn doubt(&self) {
        self.doubted.notify_one();
    }

    fn note_away(&self, since: Instant, error: StoreError) {
        self.away.send_if_modified(|away| {
            let is_first = away.is_none();
            if is_first {
                *away = Some(Away { since, error });
            }
            is_first
        });
    }

    fn note_back(&self) {
        self.away.send_if_modified(|away| away.take().is_some());
    }
}

/// Runs for as long as the store lives.
pub async fn probe(db: Db, presence: Arc<Presence>) {
    loop {
        presence.doubted.notified().await;
        loop {
            let begun = Instant::now();
            let tried = tokio::time::timeout(PROBE_TIMEOUT, db.probe()).await;
            match tried.unwrap_or(Err(StoreError::Slow(PROBE_TIMEOUT))) {
                Err(e) if e.is_unreachable() => presence.note_away(begun, e),
                // One that refuses a statement is there.
                Ok(()) | Err(_) => break,
            }
            tokio::time::sleep(PROBE_INTERVAL).await;
        }
        presence.note_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_is_away_since_the_first_attempt_that_failed() {
        let presence = Presence::default();
        assert!(presence.away().is_none());
        let first = Instant::now();
        presence.note_away(first, StoreError::Unreachable("first".into()));
        presence.note_away(Instant::now(), StoreError::Unreachable("second".into()));
        let away = presence.away().unwrap();
        assert_eq!(away.since, first);
        assert_eq!(away.error, StoreError::Unreachable("first".into()));
        presence.note_back();
        assert!(presence.away().is_none());
    }
}
