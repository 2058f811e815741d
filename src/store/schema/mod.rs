//! The tables: how they are made, and whether they are those that this version needs.

mod dialect;
mod migrations;

use self::dialect::written_for;
use self::migrations::{MIGRATIONS, TABLES};
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
    let tables = tables(&mut transaction).await?;
    let found = match tables.iter().any(|table| table == "ati_schema") {
        true => version(&mut transaction).await?,
        false => 0,
    };
    if found > VERSION {
        let wanted = VERSION;
        return Err(SchemaFault::Newer { found, wanted }.into());
    }
    // What each migration makes is made only where it is missing. So all are repeated if a table
    // was lost, and the tables of existing deployments are taken over.
    let complete = TABLES
        .iter()
        .all(|table| tables.iter().any(|found| found == table));
    let from = if complete { found } else { 0 };
    let engine = transaction.engine();
    run(&mut transaction, VERSIONS, engine).await?;
    for migration in MIGRATIONS.iter().filter(|one| one.version > from) {
        for step in migration.steps {
            if let Some(text) = step.text(engine) {
                run(&mut transaction, text, engine).await?;
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

/// Whether the tables are those that this version needs.
pub async fn check(db: &Db) -> Result<(), StoreError> {
    let mut transaction = db.begin().await?;
    let tables = tables(&mut transaction).await?;
    let has = |name: &str| tables.iter().any(|table| table == name);
    if !has("ati_schema") {
        return Err(SchemaFault::Absent.into());
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
    match TABLES.iter().find(|table| !has(table)) {
        Some(missing) => Err(SchemaFault::Incomplete((*missing).to_owned()).into()),
        None => Ok(()),
    }
}

async fn run(
    transaction: &mut Transaction,
    text: &'static str,
    engine: Engine,
) -> Result<(), StoreError> {
    let statement = Statement::composed(written_for(engine, text));
    transaction.execute(statement).await.map(|_| ())
}

/// The names of ati's tables that are there.
async fn tables(transaction: &mut Transaction) -> Result<Vec<String>, StoreError> {
    let text = match transaction.engine() {
        Engine::Sqlite => "select name from sqlite_master where type = 'table'",
        Engine::Postgres => {
            "select table_name::text as name from information_schema.tables \
             where table_schema = any (current_schemas(false))"
        }
    };
    let rows = transaction.fetch(sql(text)).await?;
    let names = rows.iter().map(|row| row.text("name"));
    names.collect()
}

async fn version(transaction: &mut Transaction) -> Result<i64, StoreError> {
    let text = "select coalesce(max(version), 0) as version from ati_schema";
    let rows = transaction.fetch(sql(text)).await?;
    rows.first().map_or(Ok(0), |row| row.int("version"))
}
