//! The credentials of the database, for commands that check what a proxy would load.

use std::sync::Arc;

use crate::config::Settings;
use crate::error::Problem;
use crate::keyring::stored::StoredCredentials;
use crate::store::{Store, StoreError, Tables, credentials};

/// None where there is no database. Changes nothing in it.
pub fn load(settings: &Settings) -> Result<Option<Arc<StoredCredentials>>, Problem> {
    let Some(database) = &settings.database_url else {
        return Ok(None);
    };
    let rows = Store::open_for_command(database, Tables::Check)
        .and_then(|store| store.wait(|db| async move { credentials::load(&db).await }));
    let rows = match rows {
        Ok((_, rows)) => rows,
        // The start would make them.
        Err(StoreError::Schema(_)) if settings.migrate => Vec::new(),
        Err(e) => return Err(Problem::new(e.to_string()).about("ATI_DB_URL")),
    };
    let keys = settings.master_keys.clone();
    Ok(Some(Arc::new(StoredCredentials::new(keys, rows))))
}

/// Rows that lack their master key.
pub fn faults(stored: &StoredCredentials) -> impl Iterator<Item = String> {
    stored.without_key().into_iter().map(|(key_id, rows)| {
        format!(
            "{rows} credentials of the database are encrypted with master key {key_id}, which isn't \
             among ATI_MASTER_KEY and ATI_MASTER_KEY_<ID>; requests that need them are refused"
        )
    })
}
