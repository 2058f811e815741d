//! What can go wrong in the store. No text of these errors holds a value that a statement was
//! given, or the database's URL.

use std::time::Duration;

use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    #[error(
        "ATI_DB_URL names no database that ati knows: expected sqlite:<path of a file> or \
         postgres://<user>@<host>/<database>"
    )]
    UnknownEngine,
    #[error("ATI_DB_URL can't be read: {0}")]
    InvalidUrl(String),
    /// No connection, or a lost one.
    #[error(
        "the database can't be reached: {0} (is the one that ATI_DB_URL names running, and are \
         its host, user, password and file right?)"
    )]
    Unreachable(String),
    #[error(
        "the file that ATI_DB_URL names can't be used: {0}. It was left as it is: name another \
         path, where `ati proxy --migrate` makes a database, or restore a backup"
    )]
    NoDatabase(String),
    #[error("the database did not answer within {} seconds", .0.as_secs())]
    Slow(Duration),
    #[error("{0}")]
    Schema(SchemaFault),
    /// A row like it is there already.
    #[error("there is a row with these values already")]
    Conflict,
    #[error("the database can't be written to: {0}")]
    NotWritable(String),
    /// A value that doesn't fit its column, whatever is tried.
    #[error("the database refused a value: {0}")]
    Rejected(String),
    #[error("the database refused a statement: {0}")]
    Failed(String),
    /// A row that ati can't have written.
    #[error("the database has a value that can't be read, in the column '{column}': {what}")]
    Unreadable { column: String, what: String },
    #[error("the store has ended")]
    Ended,
}

/// What is wrong with the tables, and the way out.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SchemaFault {
    #[error(
        "there is no database at {0}: to make it, start once with `ati proxy --migrate`, or mend \
         ATI_DB_URL"
    )]
    NoFile(String),
    #[error(
        "the database has no tables of ati: to make them, start once with `ati proxy --migrate`"
    )]
    Absent,
    #[error(
        "the tables of the database are of version {found}, and this ati needs version {wanted}: \
         to bring them up to date, start once with `ati proxy --migrate`"
    )]
    Older { found: i64, wanted: i64 },
    #[error(
        "the tables of the database are of version {found}, and this ati knows up to version \
         {wanted}: a newer ati made them. Start that one, or restore a backup from before"
    )]
    Newer { found: i64, wanted: i64 },
    #[error(
        "the database lacks the table '{0}', although it should have it: restore a backup, or make \
         the table anew, empty, with `ati proxy --migrate`"
    )]
    Incomplete(String),
    #[error(
        "the database lacks the column '{0}', although it should have it: restore a backup, or add \
         the column anew, empty, with `ati proxy --migrate`"
    )]
    LostColumn(String),
    #[error(
        "the database lacks the column '{column}', and rows can't be without it: restore a backup \
         ({why})"
    )]
    NotMendable { column: String, why: String },
}

impl StoreError {
    /// Whether the database gave no answer.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, StoreError::Unreachable(_) | StoreError::Slow(_))
    }

    /// Whether it may work later without anything being mended in ati or in its tables.
    pub fn is_away(&self) -> bool {
        self.is_unreachable() || matches!(self, StoreError::NotWritable(_))
    }
}

impl From<SchemaFault> for StoreError {
    fn from(fault: SchemaFault) -> Self {
        StoreError::Schema(fault)
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(database) => of_database(database.as_ref()),
            sqlx::Error::Io(e) => StoreError::Unreachable(e.to_string()),
            sqlx::Error::Tls(e) => StoreError::Unreachable(format!("TLS: {e}")),
            sqlx::Error::PoolTimedOut => StoreError::Unreachable("no connection in time".into()),
            sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => StoreError::Ended,
            sqlx::Error::Configuration(e) => StoreError::InvalidUrl(e.to_string()),
            sqlx::Error::ColumnDecode { index, source } => StoreError::Unreadable {
                column: index.clone(),
                what: source.to_string(),
            },
            other => StoreError::Failed(other.to_string()),
        }
    }
}

fn of_database(error: &dyn sqlx::error::DatabaseError) -> StoreError {
    if error.is_unique_violation() {
        return StoreError::Conflict;
    }
    let (code, message) = (error.code().unwrap_or_default(), error.message().to_owned());
    let is_postgres = code.len() == 5;
    match &*code {
        // SQLite: READONLY, FULL, CANTOPEN with their extended codes, IOERR.
        code if !is_postgres => match code.parse::<u32>().map(|code| code & 0xff) {
            Ok(8 | 13 | 10) => StoreError::NotWritable(message),
            Ok(14 | 5 | 6) => StoreError::Unreachable(message),
            // NOTADB.
            Ok(26) => StoreError::NoDatabase(message),
            // TOOBIG, CONSTRAINT, MISMATCH.
            Ok(18..=20) => StoreError::Rejected(message),
            _ => StoreError::Failed(message),
        },
        // Read-only transaction, disk full.
        "25006" | "53100" => StoreError::NotWritable(message),
        // Connections that end or are refused, a server that stops or starts, too many clients.
        code if code.starts_with("08") || code.starts_with("57P") || code == "53300" => {
            StoreError::Unreachable(message)
        }
        // Data that can't be converted, and constraints.
        code if code.starts_with("22") || code.starts_with("23") => StoreError::Rejected(message),
        // No such database, no such user or a wrong password.
        code if code == "3D000" || code.starts_with("28") => StoreError::Unreachable(message),
        _ => StoreError::Failed(message),
    }
}
