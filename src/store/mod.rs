//! The store: virtual keys, customers' credentials, the call log and what several edges share, in
//! SQLite or in PostgreSQL.
//!
//! | File | What is in it |
//! |---|---|
//! | `url` | which engine `ATI_DB_URL` names |
//! | `db`, `statement`, `row` | statements and rows that are the same for both engines |
//! | `credentials` | the encrypted credentials of customers |
//! | `audit_log` | what was changed, and by which user |
//! | `schema` | the tables, and how they are made and checked |
//! | `keys` | virtual keys |
//! | `watch` | what other processes change |
//! | `presence` | whether the database answers |
//! | `call_log` | a row for each call, and how they are found |
//! | `error` | what can go wrong |
//!
//! Every statement runs on a runtime of the store's own. Workers' runtimes would do, but a request
//! that ends in the middle of a statement would take its connection along.

pub mod audit_log;
pub mod call_log;
pub mod credentials;
mod db;
mod error;
pub mod keys;
mod presence;
mod row;
mod schema;
mod statement;
mod time;
mod url;
mod watch;

use std::future::Future;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

pub use db::{Db, Engine, Transaction};
pub use error::StoreError;
pub use presence::{Away, Presence};
pub use row::Row;
pub use schema::VERSION as SCHEMA_VERSION;
pub use statement::{Statement, sql};
pub use time::Timestamp;
pub use watch::Change;

use crate::keyring::Secret;

/// A request waits this long for the store, and is refused then.
const PATIENCE: Duration = Duration::from_secs(2);
/// Of that, for a connection: so that the cause is told instead.
const REQUESTS_WAIT: Duration = Duration::from_millis(1500);
const COMMANDS_WAIT: Duration = Duration::from_secs(15);
/// Making the first connection, checking the tables, or making them.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// A connected store.
pub struct Store {
    db: Db,
    handle: Handle,
    presence: Arc<Presence>,
    /// None once it is dropped.
    runtime: Option<Runtime>,
}

/// What is done about the tables when a store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tables {
    /// They have to be those of this version. They are read, and never written to.
    Read,
    /// They have to be those of this version, and the user has to be allowed to write to them.
    Check,
    /// They are made, or brought to this version.
    Migrate,
}

/// Whether `ATI_DB_URL` names a database at all.
pub fn check_url(database: &Secret) -> Result<(), StoreError> {
    url::parse(database).map(|_| ())
}

impl Store {
    /// Connects, and checks or makes the tables. Blocks until that is done.
    pub fn open(database: &Secret, tables: Tables) -> Result<Self, StoreError> {
        Store::open_with(database, tables, REQUESTS_WAIT)
    }

    /// The same for a command, which has more time than a request: a busy database isn't away.
    pub fn open_for_command(database: &Secret, tables: Tables) -> Result<Self, StoreError> {
        Store::open_with(database, tables, COMMANDS_WAIT)
    }

    /// `wait`: for a connection, or for another one's lock.
    fn open_with(database: &Secret, tables: Tables, wait: Duration) -> Result<Self, StoreError> {
        let url = url::parse(database)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("store")
            .enable_all()
            .build()
            .map_err(|e| StoreError::Failed(format!("no runtime for the store: {e}")))?;
        let (sender, opened) = mpsc::channel();
        runtime.spawn(async move {
            let work = async {
                let db = Db::connect(url, tables, wait).await?;
                match tables {
                    Tables::Read | Tables::Check => {}
                    Tables::Migrate => schema::migrate(&db).await?,
                }
                schema::check(&db, tables != Tables::Read).await?;
                Ok(db)
            };
            let _ = sender.send(within(START_PATIENCE, work).await);
        });
        let db = opened.recv().unwrap_or(Err(StoreError::Ended));
        match db {
            Ok(db) => {
                let presence = Arc::<Presence>::default();
                runtime.spawn(presence::probe(db.clone(), presence.clone()));
                Ok(Store {
                    db,
                    handle: runtime.handle().clone(),
                    presence,
                    runtime: Some(runtime),
                })
            }
            Err(e) => {
                runtime.shutdown_background();
                Err(e)
            }
        }
    }

    pub fn engine(&self) -> Engine {
        self.db.engine()
    }

    /// Whether the database answers.
    pub fn presence(&self) -> &Arc<Presence> {
        &self.presence
    }

    /// Runs statements for a request. They end, even if the request doesn't wait for them. A
    /// database that is known to be away isn't asked.
    pub async fn run<T, F>(&self, work: impl FnOnce(Db) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        self.run_for(PATIENCE, work).await
    }

    /// Runs statements that may take longer than a request waits.
    pub async fn run_for<T, F>(
        &self,
        patience: Duration,
        work: impl FnOnce(Db) -> F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        if let Some(away) = self.presence.away() {
            return Err(away.error);
        }
        let running = self.handle.spawn(within(patience, work(self.db.clone())));
        let done = running.await.unwrap_or(Err(StoreError::Ended));
        if done.as_ref().is_err_and(StoreError::is_unreachable) {
            self.presence.doubt();
        }
        done
    }

    /// Runs statements for a command, or at a start, and blocks until they end. Not for a thread
    /// that serves requests.
    pub fn wait<T, F>(&self, work: impl FnOnce(Db) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let (sender, done) = mpsc::channel();
        let work = within(START_PATIENCE, work(self.db.clone()));
        self.handle.spawn(async move {
            let _ = sender.send(work.await);
        });
        done.recv().unwrap_or(Err(StoreError::Ended))
    }

    /// Runs a task for as long as the store lives.
    pub fn spawn<F>(&self, task: impl FnOnce(Db) -> F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.handle.spawn(task(self.db.clone()))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Not by waiting for it: a store may be dropped inside of another runtime.
            runtime.shutdown_background();
        }
    }
}

async fn within<T>(
    patience: Duration,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::time::timeout(patience, work)
        .await
        .unwrap_or(Err(StoreError::Slow(patience)))
}
