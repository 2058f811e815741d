//! Follows the credentials of the database: looks at the number of their changes, and swaps in a
//! snapshot with all rows when it is another one.

use std::sync::Arc;
use std::time::Duration;

use tracing::{error, info, warn};

use crate::keyring::stored::{MasterKeys, StoredCredentials};
use crate::server::lifecycle::reload::Reloader;
use crate::store::{Db, Store, StoreError, credentials};
use crate::telemetry::metrics::METRICS;

/// A change is seen within a second. Looking is one row of one table.
const INTERVAL: Duration = Duration::from_millis(400);
/// The database counts as away after this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// The rows at the start, and the number of changes that they have.
pub struct Loaded {
    pub stored: Arc<StoredCredentials>,
    changes: i64,
}

/// Blocks until all rows are read.
pub fn load(store: &Store, keys: &Arc<MasterKeys>) -> Result<Loaded, StoreError> {
    let (changes, rows) = store.wait(|db| async move { credentials::load(&db).await })?;
    let stored = StoredCredentials::new(keys.clone(), rows);
    report(&stored);
    Ok(Loaded {
        stored: Arc::new(stored),
        changes,
    })
}

/// Runs for as long as the store lives. While the database is away, everything stays as it was.
pub fn follow(store: &Store, loaded: &Loaded, keys: Arc<MasterKeys>, reloader: Arc<Reloader>) {
    let mut seen = loaded.changes;
    store.spawn(move |db| async move {
        let mut away = false;
        loop {
            tokio::time::sleep(INTERVAL).await;
            let found = tokio::time::timeout(PATIENCE, newer(&db, seen)).await;
            match found.unwrap_or(Err(StoreError::Slow(PATIENCE))) {
                Ok(newer) => {
                    if std::mem::take(&mut away) {
                        info!("the credentials of the database can be read again");
                    }
                    if let Some((changes, rows)) = newer {
                        seen = changes;
                        let stored = StoredCredentials::new(keys.clone(), rows);
                        report(&reloader.publish_stored(stored));
                    }
                }
                Err(e) => {
                    // Once for each outage.
                    if !std::mem::replace(&mut away, true) {
                        error!(
                            error = %e,
                            "the credentials of the database can't be read, those read before stay \
                             in use"
                        );
                    }
                }
            }
        }
    });
}

type Rows = (i64, Vec<crate::keyring::stored::StoredRow>);

/// None where nothing has changed.
async fn newer(db: &Db, seen: i64) -> Result<Option<Rows>, StoreError> {
    match credentials::changes(db).await? == seen {
        true => Ok(None),
        false => credentials::load(db).await.map(Some),
    }
}

fn report(stored: &StoredCredentials) {
    let missing = stored.without_key();
    METRICS.set_stored_credentials(stored.len(), missing.values().sum());
    info!(rows = stored.len(), "credentials of the database loaded");
    for (key_id, rows) in missing {
        warn!(
            rows,
            key_id,
            "credentials are encrypted with a master key that this process doesn't have; requests \
             that need them are refused"
        );
    }
}
