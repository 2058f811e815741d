//! What other processes change: PostgreSQL tells it, SQLite is asked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::{PgListener, PgPool};
use sqlx::sqlite::SqlitePool;

use super::db::{Db, Pools};

/// Other processes' writes to a SQLite file are noticed after this time.
const POLL: Duration = Duration::from_millis(200);
/// Pause before a lost connection is made anew.
const RETRY: Duration = Duration::from_millis(250);
/// A connection without notifications is tested this often: it may be gone without a word.
const HEARTBEAT: Duration = Duration::from_millis(400);
const HEARTBEAT_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A notification, with its payload.
    Notified(String),
    /// Something may have changed. From now on, changes are noticed.
    Unknown,
    /// Changes aren't noticed any more, until the next `Unknown`.
    Blind,
}

impl Db {
    /// Tells what other processes change, for as long as it runs. The first that it tells is
    /// `Unknown`, as soon as it listens.
    pub async fn watch(&self, channel: &'static str, mut tell: impl FnMut(Change) + Send) {
        match self.pools() {
            Pools::Sqlite { writer, opened, .. } => poll(writer, opened, &mut tell).await,
            Pools::Postgres(pool) => listen(pool, channel, &mut tell).await,
        }
    }
}

/// On the writer's connection: for that, the version changes when another one has written. A new
/// connection counts from its own beginning, so what was written before that isn't known.
async fn poll(writer: &SqlitePool, opened: &AtomicU64, tell: &mut (impl FnMut(Change) + Send)) {
    let mut last = None;
    let mut is_blind = false;
    loop {
        match version(writer, opened).await {
            Ok(version) => {
                if last != Some(version) || is_blind {
                    tell(Change::Unknown);
                }
                last = Some(version);
                is_blind = false;
            }
            Err(_) => {
                if !is_blind {
                    tell(Change::Blind);
                }
                is_blind = true;
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Which connection it is, and the version that it sees.
async fn version(writer: &SqlitePool, opened: &AtomicU64) -> Result<(u64, i64), sqlx::Error> {
    let mut connection = writer.acquire().await?;
    let which = opened.load(Ordering::Relaxed);
    let row = sqlx::query("pragma data_version").fetch_one(&mut *connection);
    Ok((which, row.await?.try_get(0)?))
}

async fn listen(pool: &PgPool, channel: &'static str, tell: &mut (impl FnMut(Change) + Send)) {
    loop {
        if let Ok(mut listener) = PgListener::connect_with(pool).await
            && listener.listen(channel).await.is_ok()
        {
            // Whatever was told while there was no listener is lost.
            tell(Change::Unknown);
            receive(&mut listener, tell).await;
            tell(Change::Blind);
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Returns when the connection is lost.
async fn receive(listener: &mut PgListener, tell: &mut (impl FnMut(Change) + Send)) {
    loop {
        match tokio::time::timeout(HEARTBEAT, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => tell(Change::Notified(notification.payload().to_owned())),
            Ok(Ok(None) | Err(_)) => return,
            Err(_) => {
                let test = sqlx::query("select 1").execute(&mut *listener);
                match tokio::time::timeout(HEARTBEAT_TIMEOUT, test).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(_)) | Err(_) => return,
                }
            }
        }
    }
}
