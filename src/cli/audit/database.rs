use std::time::Duration;

use super::show::{Count, Shown};
use crate::cli::runtime;
use crate::error::{Code, Failure};
use crate::keyring::Secret;
use crate::store::call_log::{self, Follower};
use crate::store::{Store, StoreError, Tables};

/// How often the database is asked while the call log is followed.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// A search may have to read millions of rows.
const PATIENCE: Duration = Duration::from_secs(300);
/// Rows that a search shows: they are in memory together.
const MOST: usize = 100_000;

/// Shows entries of the call log in the database.
pub fn show(database: &Secret, shown: &Shown) -> Result<u8, Failure> {
    let store = Store::open_for_command(database, Tables::Read).map_err(failure)?;
    runtime()?.block_on(read(&store, shown))
}

fn failure(error: StoreError) -> Failure {
    Failure::from_error(Code::ExecutionFailed, error)
        .hint("--file reads the audit file of this machine instead")
}

async fn read(store: &Store, shown: &Shown) -> Result<u8, Failure> {
    let count = match shown.count {
        Count::Last(count) => count.min(MOST),
        Count::All => MOST,
    };
    let filter = shown.filter.clone();
    if shown.follows {
        return follow(store, shown, count).await;
    }
    let find = |db| async move { call_log::tail(&db, &filter, count).await };
    let entries = store.run_for(PATIENCE, find).await.map_err(failure)?;
    if entries.len() == MOST {
        tracing::warn!("only the newest {MOST} entries are shown: narrow the search, with --since");
    }
    Ok(shown.list(&entries, "the database"))
}

async fn follow(store: &Store, shown: &Shown, count: usize) -> Result<u8, Failure> {
    let filter = shown.filter.clone();
    let start = |db| async move { Follower::start(&db, filter, count).await };
    let started = store.run_for(PATIENCE, start).await;
    let (mut entries, mut follower) = started.map_err(failure)?;
    while shown.stream(&entries) {
        tokio::time::sleep(ASK_EVERY).await;
        let more = |db| async move { Ok((follower.more(&db).await?, follower)) };
        (entries, follower) = store.run_for(PATIENCE, more).await.map_err(failure)?;
    }
    Ok(0)
}
