//! Connections of either engine, and statements on them.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use sqlx::{ConnectOptions as _, Connection as _, Postgres, Sqlite};

use super::Tables;
use super::error::{SchemaFault, StoreError};
use super::row::Row;
use super::statement::Statement;
use super::url::Url;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const POSTGRES_CONNECTIONS: u32 = 8;
const SQLITE_READERS: u32 = 4;
/// Nothing that ati asks takes as long. It ends statements whose edge has lost the connection.
const STATEMENT_TIMEOUT: &str = "30s";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Sqlite,
    Postgres,
}

/// The connections. Clones share them. Used on the store's runtime only: [`super::Store::run`].
#[derive(Clone)]
pub struct Db(Pools);

#[derive(Clone)]
pub(super) enum Pools {
    /// SQLite has one writer at a time; a second connection that writes would only wait for it.
    Sqlite {
        writer: SqlitePool,
        readers: SqlitePool,
        /// How many connections the writer has had. It has one at a time.
        opened: Arc<AtomicU64>,
    },
    Postgres(PgPool),
}

impl Db {
    pub(super) async fn connect(
        url: Url,
        tables: Tables,
        wait: Duration,
    ) -> Result<Self, StoreError> {
        match url {
            Url::Sqlite(path) => connect_sqlite(&path, tables, wait).await,
            Url::Postgres(options) => connect_postgres(*options, wait).await,
        }
    }

    pub(super) fn pools(&self) -> &Pools {
        &self.0
    }

    pub fn engine(&self) -> Engine {
        match &self.0 {
            Pools::Sqlite { .. } => Engine::Sqlite,
            Pools::Postgres(_) => Engine::Postgres,
        }
    }

    /// Whether the database can be reached. Not through the pool of PostgreSQL's connections: that
    /// would try for a while, and wait for requests that use them.
    pub(super) async fn probe(&self) -> Result<(), StoreError> {
        match &self.0 {
            Pools::Sqlite { .. } => {
                let statement = super::sql("select token_hash from ati_keys limit 1");
                self.fetch(statement).await.map(|_| ())
            }
            Pools::Postgres(pool) => {
                let connected = PgConnection::connect_with(&pool.connect_options()).await?;
                Ok(connected.close().await?)
            }
        }
    }

    /// Rows of a statement that only reads.
    pub async fn fetch(&self, statement: Statement) -> Result<Vec<Row>, StoreError> {
        match &self.0 {
            Pools::Sqlite { readers, .. } => {
                let (sql, arguments, prepared) = statement.for_sqlite()?;
                let query = sqlx::query_with::<Sqlite, _>(sql, arguments).persistent(prepared);
                let rows = query.fetch_all(readers).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Pools::Postgres(pool) => {
                let (sql, arguments, prepared) = statement.for_postgres()?;
                let query = sqlx::query_with::<Postgres, _>(sql, arguments).persistent(prepared);
                let rows = query.fetch_all(pool).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// The first row, if there is one.
    pub async fn fetch_one(&self, statement: Statement) -> Result<Option<Row>, StoreError> {
        Ok(self.fetch(statement).await?.into_iter().next())
    }

    /// Rows of a statement that writes (`RETURNING`).
    pub async fn fetch_written(&self, statement: Statement) -> Result<Vec<Row>, StoreError> {
        match &self.0 {
            Pools::Sqlite { writer, .. } => {
                let (sql, arguments, prepared) = statement.for_sqlite()?;
                let query = sqlx::query_with::<Sqlite, _>(sql, arguments).persistent(prepared);
                let rows = query.fetch_all(writer).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Pools::Postgres { .. } => self.fetch(statement).await,
        }
    }

    /// A statement that writes: how many rows it changed.
    pub async fn execute(&self, statement: Statement) -> Result<u64, StoreError> {
        match &self.0 {
            Pools::Sqlite { writer, .. } => {
                let (sql, arguments, prepared) = statement.for_sqlite()?;
                let query = sqlx::query_with::<Sqlite, _>(sql, arguments).persistent(prepared);
                Ok(query.execute(writer).await?.rows_affected())
            }
            Pools::Postgres(pool) => {
                let (sql, arguments, prepared) = statement.for_postgres()?;
                let query = sqlx::query_with::<Postgres, _>(sql, arguments).persistent(prepared);
                Ok(query.execute(pool).await?.rows_affected())
            }
        }
    }

    /// Statements that take effect together, at the commit. Dropped without one, none has.
    pub async fn begin(&self) -> Result<Transaction, StoreError> {
        Ok(match &self.0 {
            // At once the writer: a transaction that read first could find that another one has
            // written since, and would fail.
            Pools::Sqlite { writer, .. } => Transaction::Sqlite(OwnedWriter::begin(writer).await?),
            Pools::Postgres(pool) => Transaction::Postgres(pool.begin().await?),
        })
    }
}

pub enum Transaction {
    Sqlite(OwnedWriter),
    Postgres(sqlx::Transaction<'static, Postgres>),
}

impl Transaction {
    pub fn engine(&self) -> Engine {
        match self {
            Transaction::Sqlite(_) => Engine::Sqlite,
            Transaction::Postgres(_) => Engine::Postgres,
        }
    }

    /// Rows of a statement, which may write (`RETURNING`).
    pub async fn fetch(&mut self, statement: Statement) -> Result<Vec<Row>, StoreError> {
        match self {
            Transaction::Sqlite(transaction) => {
                let (sql, arguments, prepared) = statement.for_sqlite()?;
                let query = sqlx::query_with::<Sqlite, _>(sql, arguments).persistent(prepared);
                let rows = query.fetch_all(transaction.connection()?).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Transaction::Postgres(transaction) => {
                let (sql, arguments, prepared) = statement.for_postgres()?;
                let query = sqlx::query_with::<Postgres, _>(sql, arguments).persistent(prepared);
                let rows = query.fetch_all(&mut **transaction).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    pub async fn execute(&mut self, statement: Statement) -> Result<u64, StoreError> {
        match self {
            Transaction::Sqlite(transaction) => {
                let (sql, arguments, prepared) = statement.for_sqlite()?;
                let query = sqlx::query_with::<Sqlite, _>(sql, arguments).persistent(prepared);
                let done = query.execute(transaction.connection()?).await?;
                Ok(done.rows_affected())
            }
            Transaction::Postgres(transaction) => {
                let (sql, arguments, prepared) = statement.for_postgres()?;
                let query = sqlx::query_with::<Postgres, _>(sql, arguments).persistent(prepared);
                Ok(query.execute(&mut **transaction).await?.rows_affected())
            }
        }
    }

    pub async fn commit(self) -> Result<(), StoreError> {
        match self {
            Transaction::Sqlite(transaction) => transaction.commit().await,
            Transaction::Postgres(transaction) => Ok(transaction.commit().await?),
        }
    }
}

/// The one connection that writes, in a transaction. SQLite ends a transaction by itself when the
/// disk is full, and sqlx's own would not know: the connection would be of no use from then on. So
/// one that isn't committed is closed, which undoes it in every case.
pub struct OwnedWriter(Option<PoolConnection<Sqlite>>);

impl OwnedWriter {
    async fn begin(writer: &SqlitePool) -> Result<Self, StoreError> {
        let mut begun = OwnedWriter(Some(writer.acquire().await?));
        sqlx::raw_sql("BEGIN IMMEDIATE")
            .execute(begun.connection()?)
            .await?;
        Ok(begun)
    }

    fn connection(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        self.0.as_deref_mut().ok_or(StoreError::Ended)
    }

    async fn commit(mut self) -> Result<(), StoreError> {
        sqlx::raw_sql("COMMIT").execute(self.connection()?).await?;
        // Back to the pool.
        self.0 = None;
        Ok(())
    }
}

impl Drop for OwnedWriter {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}

async fn connect_sqlite(path: &Path, tables: Tables, wait: Duration) -> Result<Db, StoreError> {
    match std::fs::metadata(path) {
        // SQLite's own message doesn't say why. Not by opening it: closing it again would end the
        // locks that other connections of this process hold.
        Ok(found) if found.is_file() => {
            rustix::fs::access(path, rustix::fs::Access::WRITE_OK).map_err(|e| {
                let what = format!("{}: {}", path.display(), std::io::Error::from(e));
                StoreError::NotWritable(what)
            })?;
        }
        Ok(_) => {
            let what = format!("{} is not a file", path.display());
            return Err(StoreError::Unreachable(what));
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => match tables {
            Tables::Read | Tables::Check => {
                return Err(SchemaFault::NoFile(path.display().to_string()).into());
            }
            Tables::Migrate => create(path)?,
        },
        Err(e) => {
            let what = format!("{}: {e}", path.display());
            return Err(StoreError::Unreachable(what));
        }
    }
    let options = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        // A revocation has to outlive a power cut.
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(wait)
        .foreign_keys(false)
        .disable_statement_logging();
    let pool = |connections| {
        SqlitePoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(wait)
    };
    let opened = Arc::new(AtomicU64::new(0));
    let counted = opened.clone();
    let writer = pool(1).after_connect(move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(()) })
    });
    let writer = writer.connect_with(options.clone()).await?;
    // A file that can be read only is noticed now, not at the first key.
    OwnedWriter::begin(&writer).await?.commit().await?;
    let readers = pool(SQLITE_READERS).connect_lazy_with(options.read_only(true));
    Ok(Db(Pools::Sqlite {
        writer,
        readers,
        opened,
    }))
}

/// An empty file for its owner alone. SQLite gives the files next to it the same mode.
fn create(path: &Path) -> Result<(), StoreError> {
    let created = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match created {
        Ok(_) => Ok(()),
        // Another process was faster.
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => {
            let what = format!("{} can't be made: {e}", path.display());
            Err(StoreError::NotWritable(what))
        }
    }
}

async fn connect_postgres(options: PgConnectOptions, wait: Duration) -> Result<Db, StoreError> {
    let options = options
        .options([("statement_timeout", STATEMENT_TIMEOUT)])
        .application_name("ati")
        .disable_statement_logging();
    // Outside of the pool, which would try until its time is over, and not tell why.
    let connected = PgConnection::connect_with(&options);
    let connection = tokio::time::timeout(CONNECT_TIMEOUT.max(wait), connected)
        .await
        .map_err(|_| StoreError::Slow(CONNECT_TIMEOUT.max(wait)))??;
    connection.close().await?;
    let pool = PgPoolOptions::new()
        .max_connections(POSTGRES_CONNECTIONS)
        .acquire_timeout(wait)
        .idle_timeout(Duration::from_secs(600))
        .max_lifetime(Duration::from_secs(1800))
        .connect_lazy_with(options);
    Ok(Db(Pools::Postgres(pool)))
}
