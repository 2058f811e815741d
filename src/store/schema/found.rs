//! What a database has, and what its user may do there.

use std::collections::{BTreeMap, BTreeSet};

use super::tables::{AUDIT_LOG, TABLES, Table};
use crate::store::db::{Engine, Transaction};
use crate::store::error::{SchemaFault, StoreError};
use crate::store::statement::sql;

/// The columns of each table.
pub struct FoundTables(BTreeMap<String, BTreeSet<String>>);

impl FoundTables {
    pub async fn read(transaction: &mut Transaction) -> Result<Self, StoreError> {
        let text = match transaction.engine() {
            Engine::Sqlite => {
                "select tables.name as table_name, columns.name as column_name \
                 from sqlite_master as tables, pragma_table_info(tables.name) as columns \
                 where tables.type = 'table'"
            }
            // Not the information schema: that hides tables from users who may not use them.
            Engine::Postgres => {
                "select tables.relname::text as table_name, columns.attname::text as column_name \
                 from pg_catalog.pg_class as tables \
                 join pg_catalog.pg_namespace as spaces on spaces.oid = tables.relnamespace \
                 join pg_catalog.pg_attribute as columns on columns.attrelid = tables.oid \
                 where spaces.nspname = any (current_schemas(false)) \
                 and tables.relkind in ('r', 'p', 'v', 'f') \
                 and columns.attnum > 0 and not columns.attisdropped"
            }
        };
        let mut found = BTreeMap::<String, BTreeSet<String>>::new();
        for row in transaction.fetch(sql(text)).await? {
            let columns = found.entry(row.text("table_name")?).or_default();
            columns.insert(row.text("column_name")?);
        }
        Ok(FoundTables(found))
    }

    pub fn has(&self, table: &str) -> bool {
        self.0.contains_key(table)
    }

    /// The columns that a table lacks; none of a table that isn't there at all.
    pub fn lacks(
        &self,
        table: &'static Table,
    ) -> impl Iterator<Item = (&'static str, &'static str)> {
        let found = self.0.get(table.name);
        let columns = table.columns.iter().copied();
        columns.filter(move |(name, _)| found.is_some_and(|found| !found.contains(*name)))
    }

    /// Whether every table is there with all of its columns.
    pub fn are_complete(&self) -> Result<(), SchemaFault> {
        for table in TABLES {
            if !self.has(table.name) {
                return Err(SchemaFault::Incomplete(table.name.to_owned()));
            }
            if let Some((column, _)) = self.lacks(table).next() {
                return Err(SchemaFault::LostColumn(format!("{}.{column}", table.name)));
            }
        }
        Ok(())
    }
}

/// Whether this user may write. SQLite's file was asked when it was opened.
pub async fn check_writable(transaction: &mut Transaction) -> Result<(), StoreError> {
    if transaction.engine() == Engine::Sqlite {
        return Ok(());
    }
    let read_only = "select pg_is_in_recovery() or current_setting('transaction_read_only') = 'on' \
                     as read_only";
    let rows = transaction.fetch(sql(read_only)).await?;
    if rows
        .first()
        .map_or(Ok(false), |row| row.bool("read_only"))?
    {
        let why = "it is a replica, or read-only for the user of ATI_DB_URL";
        return Err(StoreError::NotWritable(why.to_owned()));
    }
    let mut wanted = vec![("ati_schema", "select")];
    for table in TABLES {
        wanted.extend(table.needs.iter().map(|privilege| (table.name, *privilege)));
    }
    let (names, privileges): (Vec<String>, Vec<String>) = wanted
        .into_iter()
        .map(|(name, privilege)| (name.to_owned(), privilege.to_owned()))
        .unzip();
    let denied = "select wanted.name, wanted.privilege \
                  from unnest($1::text[], $2::text[]) as wanted (name, privilege) \
                  join pg_catalog.pg_class as tables on tables.relname = wanted.name \
                  join pg_catalog.pg_namespace as spaces on spaces.oid = tables.relnamespace \
                  where spaces.nspname = any (current_schemas(false)) \
                  and not has_table_privilege(tables.oid, wanted.privilege) \
                  order by 1, 2 limit 1";
    let denied = sql(denied).texts(names).texts(privileges);
    if let Some(row) = transaction.fetch(denied).await?.first() {
        let (name, privilege) = (row.text("name")?, row.text("privilege")?);
        let why = format!(
            "the user of ATI_DB_URL lacks the privilege to {privilege} in the table '{name}'"
        );
        return Err(StoreError::NotWritable(why));
    }
    Ok(())
}

/// The numbers of audit rows come from a sequence with privileges of its own.
pub async fn check_sequence(transaction: &mut Transaction) -> Result<(), StoreError> {
    if transaction.engine() == Engine::Sqlite {
        return Ok(());
    }
    let text = "select coalesce(has_sequence_privilege( \
                pg_get_serial_sequence('ati_audit_log', 'id'), 'usage'), true) as may_use";
    let rows = transaction.fetch(sql(text)).await?;
    match rows.first().map_or(Ok(true), |row| row.bool("may_use"))? {
        true => Ok(()),
        false => Err(StoreError::NotWritable(format!(
            "the user of ATI_DB_URL lacks the privilege to use the sequence of the table '{}'",
            AUDIT_LOG.name
        ))),
    }
}
