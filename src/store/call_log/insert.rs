use std::collections::HashSet;

use serde_json::Value;
use uuid::Uuid;

use super::CallRecord;
use super::record::{COLUMNS, Kind};
use crate::request_id::RequestId;
use crate::store::{Db, Engine, Statement, StoreError, Timestamp};

/// Writes rows with one statement. Rows that are there already, because an earlier attempt got
/// further than it seemed, stay as they are.
pub async fn insert(db: &Db, rows: &mut [Box<CallRecord>]) -> Result<(), StoreError> {
    let written = insert_new(db, rows).await?;
    if written.len() == rows.len() {
        return Ok(());
    }
    let mut clashing = clashing(db, rows, written).await?;
    if clashing.is_empty() {
        return Ok(());
    }
    // A caller behind a trusted proxy may send an id twice. Its requests are told apart by ids of
    // their own then, and found by the one that it sent.
    for row in &mut clashing {
        let sent = std::mem::replace(&mut row.request_id, RequestId::generate());
        row.client_request_id
            .get_or_insert_with(|| sent.to_string().into());
    }
    let rows: Vec<&CallRecord> = clashing.iter().map(|row| &***row).collect();
    let statement = statement(db.engine(), &rows);
    db.fetch_written(statement).await.map(|_| ())
}

/// The ids of the rows that were not there yet.
async fn insert_new(db: &Db, rows: &[Box<CallRecord>]) -> Result<Vec<Uuid>, StoreError> {
    let rows: Vec<&CallRecord> = rows.iter().map(|row| &**row).collect();
    let written = db.fetch_written(statement(db.engine(), &rows)).await?;
    written.iter().map(|row| row.uuid("request_id")).collect()
}

/// Of the rows that were not written, those whose id another request has.
async fn clashing<'a>(
    db: &Db,
    rows: &'a mut [Box<CallRecord>],
    written: Vec<Uuid>,
) -> Result<Vec<&'a mut Box<CallRecord>>, StoreError> {
    let ids = rows.iter().map(|row| row.request_id.to_string()).collect();
    let text = match db.engine() {
        Engine::Sqlite => {
            "select request_id, started_at from ati_call_log \
             where request_id in (select value from json_each($1))"
        }
        Engine::Postgres => {
            "select request_id, started_at from ati_call_log \
             where request_id = any ($1::text[]::uuid[])"
        }
    };
    let found = db.fetch(crate::store::sql(text).texts(ids)).await?;
    let found = found
        .iter()
        .map(|row| Ok((row.uuid("request_id")?, row.time("started_at")?)));
    let found: HashSet<(Uuid, Timestamp)> = found.collect::<Result<_, StoreError>>()?;
    let mut written: HashSet<Uuid> = written.into_iter().collect();
    let is_missing = |row: &&mut Box<CallRecord>| {
        let id = row.request_id.uuid();
        // Of two rows with one id in this statement, the first was written.
        !written.remove(&id) && !found.contains(&(id, row.started_at))
    };
    Ok(rows.iter_mut().filter(is_missing).collect())
}

fn statement(engine: Engine, rows: &[&CallRecord]) -> Statement {
    let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let into = format!("insert into ati_call_log ({})", names.join(", "));
    let end = "on conflict (request_id) do nothing returning request_id";
    match engine {
        Engine::Sqlite => {
            let value = |(index, (_, kind)): (usize, &(&str, Kind))| {
                let value = format!("json_extract(value, '$[{index}]')");
                match kind {
                    Kind::Int | Kind::Time => format!("cast({value} as integer)"),
                    Kind::Uuid | Kind::Text | Kind::Json | Kind::Ip => value,
                }
            };
            let values: Vec<String> = COLUMNS.iter().enumerate().map(value).collect();
            let rows: Vec<Value> = rows.iter().map(|row| columns_of(row)).collect();
            // Without a condition, SQLite would read the `on` as that of a join.
            let text = format!(
                "{into} select {} from json_each($1) where true {end}",
                values.join(", ")
            );
            Statement::repeated(text).text(Value::from(rows).to_string())
        }
        Engine::Postgres => {
            let lists = COLUMNS.iter().enumerate().map(|(index, (_, kind))| {
                let list = format!("${}::text[]", index + 1);
                match kind {
                    Kind::Uuid => format!("{list}::uuid[]"),
                    Kind::Time | Kind::Int => format!("{list}::bigint[]"),
                    Kind::Text => list,
                    Kind::Json => format!("{list}::jsonb[]"),
                    Kind::Ip => format!("{list}::inet[]"),
                }
            });
            let lists: Vec<String> = lists.collect();
            let names_of_lists: Vec<String> =
                names.iter().map(|name| format!("l_{name}")).collect();
            let values = COLUMNS.iter().map(|(name, kind)| match kind {
                Kind::Time => format!("to_timestamp(l_{name}::double precision / 1000)"),
                Kind::Uuid | Kind::Int | Kind::Text | Kind::Json | Kind::Ip => format!("l_{name}"),
            });
            let values: Vec<String> = values.collect();
            let text = format!(
                "{into} select {} from unnest({}) as rows ({}) {end}",
                values.join(", "),
                lists.join(", "),
                names_of_lists.join(", ")
            );
            let mut columns: Vec<Vec<Option<String>>> = vec![Vec::new(); COLUMNS.len()];
            for row in rows {
                for (column, value) in columns.iter_mut().zip(row.columns()) {
                    column.push(value);
                }
            }
            let statement = Statement::repeated(text);
            columns.into_iter().fold(statement, Statement::list)
        }
    }
}

fn columns_of(row: &CallRecord) -> Value {
    row.columns().into_iter().map(Value::from).collect()
}
