//! The tables: how they are made, and whether they are those that this version needs.

mod dialect;
mod found;
mod migrations;
mod tables;

use self::dialect::written_for;
use self::found::FoundTables;
use self::migrations::{MIGRATIONS, Step};
use self::tables::Table;
use super::db::{Db, Engine, Transaction};
use super::error::{SchemaFault, StoreError};
use super::statement::{Statement, sql};
use super::time::Timestamp;

/// The version of the tables that this ati makes and needs.
pub const VERSION: i64 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// Serialises edges that migrate at the same time. The number is ati's own, and means nothing.
const LOCK: &str = "select pg_advisory_xact_lock(7202611180022)";

const VERSIONS: &str = "create table if not exists ati_schema (
    version {int} primary key,
    name text not null,
    applied_at {time} not null
)";

/// Makes what is missing: everything in one transaction, so that a failure changes nothing.
pub async fn migrate(db: &Db) -> Result<(), StoreError> {
    let mut transaction = db.begin().await?;
    if transaction.engine() == Engine::Postgres {
        transaction.execute(sql(LOCK)).await?;
        transaction
            .execute(sql("set local statement_timeout = 0"))
            .await?;
    }
    let tables = FoundTables::read(&mut transaction).await?;
    let found = match tables.has("ati_schema") {
        true => version(&mut transaction).await?,
        false => 0,
    };
    if found > VERSION {
        let wanted = VERSION;
        return Err(SchemaFault::Newer { found, wanted }.into());
    }
    // What each migration makes is made only where it is missing. So all are repeated if a table or
    // a column was lost, and the tables of existing deployments are taken over.
    let from = match tables.are_complete() {
        Ok(()) => found,
        Err(_) => 0,
    };
    if from == VERSION {
        return Ok(());
    }
    let engine = transaction.engine();
    run(&mut transaction, VERSIONS).await?;
    for migration in MIGRATIONS.iter().filter(|one| one.version > from) {
        for step in migration.steps {
            match step {
                Step::Table(table) => make(&mut transaction, table, &tables).await?,
                Step::Both(text) => run(&mut transaction, text).await?,
                Step::Postgres(text) if engine == Engine::Postgres => {
                    run(&mut transaction, text).await?;
                }
                Step::Postgres(_) => {}
            }
        }
        let note = "insert into ati_schema (version, name, applied_at) values ($1, $2, $3) \
                    on conflict (version) do nothing";
        let note = sql(note)
            .int(migration.version)
            .text(migration.name)
            .time(Timestamp::now());
        transaction.execute(note).await?;
    }
    transaction.commit().await
}

/// Whether the tables are those that this version needs, and whether this user may write to them if
/// that is asked for.
pub async fn check(db: &Db, writable: bool) -> Result<(), StoreError> {
    let mut transaction = db.begin().await?;
    let tables = FoundTables::read(&mut transaction).await?;
    if !tables.has("ati_schema") {
        return Err(SchemaFault::Absent.into());
    }
    if writable {
        found::check_writable(&mut transaction).await?;
    }
    let (found, wanted) = (version(&mut transaction).await?, VERSION);
    if found == 0 {
        return Err(SchemaFault::Absent.into());
    }
    if found < wanted {
        return Err(SchemaFault::Older { found, wanted }.into());
    }
    if found > wanted {
        return Err(SchemaFault::Newer { found, wanted }.into());
    }
    tables.are_complete()?;
    if writable {
        found::check_sequence(&mut transaction).await?;
    }
    Ok(())
}

/// Makes a table, or adds the columns that it lacks.
async fn make(
    transaction: &mut Transaction,
    table: &'static Table,
    found: &FoundTables,
) -> Result<(), StoreError> {
    run(transaction, &table.creation()).await?;
    for (column, definition) in found.lacks(table) {
        let added = run(transaction, &table.addition(column, definition)).await;
        added.map_err(|e| match e.is_away() {
            true => e,
            false => {
                let column = format!("{}.{column}", table.name);
                let why = e.to_string();
                SchemaFault::NotMendable { column, why }.into()
            }
        })?;
    }
    Ok(())
}

async fn run(transaction: &mut Transaction, text: &str) -> Result<(), StoreError> {
    let statement = Statement::composed(written_for(transaction.engine(), text));
    transaction.execute(statement).await.map(|_| ())
}

async fn version(transaction: &mut Transaction) -> Result<i64, StoreError> {
    let text = "select coalesce(max(version), 0) as version from ati_schema";
    let rows = transaction.fetch(sql(text)).await?;
    rows.first().map_or(Ok(0), |row| row.int("version"))
}
