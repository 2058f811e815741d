//! `ati_credentials`: credentials of customers, and of all customers together. Rows are encrypted
//! (`keyring::stored`); this file sees no value.
//!
//! Every change counts up `ati_credential_changes`, in the same transaction: edges look at that one
//! number, and read all rows when it is another one. New master keys count, too: an edge may have
//! the key that a row is under now, and not the one before. What it could read stays readable.

use serde_json::{Value, json};

use super::audit_log::{self, Change};
use super::{Db, Row, StoreError, Timestamp, Transaction, sql};
use crate::keyring::stored::{Place, Sealed, StoredRow};

/// The nonce has a column of its own.
const NONCE: usize = 12;
/// Rows that get a new master key in one transaction. SQLite has one writer, which others wait for.
const BATCH: i64 = 200;

/// What a list shows of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedCredential {
    pub customer: Option<String>,
    pub name: String,
    /// Of the master key.
    pub key_id: String,
    pub created: Timestamp,
    pub updated: Timestamp,
}

/// The number of changes so far.
pub async fn changes(db: &Db) -> Result<i64, StoreError> {
    let row = db.fetch_one(sql("select changes from ati_credential_changes"));
    row.await?.map_or(Ok(0), |row| row.int("changes"))
}

/// All rows, and the number of changes that they have at least.
pub async fn load(db: &Db) -> Result<(i64, Vec<StoredRow>), StoreError> {
    // First the number: a change that comes between is read twice, and never missed.
    let changes = changes(db).await?;
    let rows = db.fetch(sql(
        "select customer_id, name, key_id, nonce, ciphertext, wrapped_key from ati_credentials",
    ));
    let rows = rows.await?;
    let rows: Result<Vec<StoredRow>, StoreError> = rows.iter().map(stored_row).collect();
    Ok((changes, rows?))
}

/// Adds a credential, or replaces it: true.
pub async fn set(
    db: &Db,
    actor: &str,
    place: Place<'_>,
    sealed: &Sealed,
) -> Result<bool, StoreError> {
    let (now, (nonce, ciphertext)) = (Timestamp::now(), halves(sealed)?);
    let mut transaction = db.begin().await?;
    // First, because it is what writers wait for each other at.
    count_change(&mut transaction).await?;
    let before = find(&mut transaction, place).await?;
    let statement = match before {
        Some(_) => {
            "update ati_credentials \
             set key_id = $3, nonce = $4, ciphertext = $5, wrapped_key = $6, updated_at = $7 \
             where coalesce(customer_id, '') = coalesce($1, '') and name = $2"
        }
        None => {
            "insert into ati_credentials (customer_id, name, key_id, nonce, ciphertext, \
             wrapped_key, updated_at, created_at) values ($1, $2, $3, $4, $5, $6, $7, $7)"
        }
    };
    let statement = sql(statement)
        .text_or_null(place.customer)
        .text(place.name)
        .text(&sealed.key_id)
        .bytes(nonce)
        .bytes(ciphertext)
        .bytes(sealed.wrapped_key.clone())
        .time(now);
    transaction.execute(statement).await?;
    let after = json!({"key_id": sealed.key_id});
    let was = before.as_ref().map(|row| json!({"key_id": row.key_id}));
    let change = change(actor, "credential.set", was, Some(after));
    let target = target(place);
    let target = Some(target.as_str());
    audit_log::record(&mut transaction, Change { target, ..change }).await?;
    transaction.commit().await?;
    Ok(before.is_some())
}

/// Whether there was such a credential.
pub async fn remove(db: &Db, actor: &str, place: Place<'_>) -> Result<bool, StoreError> {
    let mut transaction = db.begin().await?;
    count_change(&mut transaction).await?;
    let Some(before) = find(&mut transaction, place).await? else {
        return Ok(false);
    };
    let statement = sql("delete from ati_credentials \
         where coalesce(customer_id, '') = coalesce($1, '') and name = $2");
    let statement = statement.text_or_null(place.customer).text(place.name);
    transaction.execute(statement).await?;
    let was = Some(json!({"key_id": before.key_id}));
    let change = change(actor, "credential.remove", was, None);
    let target = target(place);
    let target = Some(target.as_str());
    audit_log::record(&mut transaction, Change { target, ..change }).await?;
    transaction.commit().await?;
    Ok(true)
}

/// In the order of customers and names; those of all customers first. `customer`: only its own.
pub async fn list(db: &Db, customer: Option<&str>) -> Result<Vec<ListedCredential>, StoreError> {
    let all = "select customer_id, name, key_id, created_at, updated_at from ati_credentials";
    let order = "order by coalesce(customer_id, ''), name";
    let statement = match customer {
        None => super::Statement::composed(format!("{all} {order}")),
        Some(customer) => {
            super::Statement::composed(format!("{all} where customer_id = $1 {order}"))
                .text(customer)
        }
    };
    let rows = db.fetch(statement).await?;
    rows.iter().map(listed).collect()
}

/// What became of a batch of rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rewrapped {
    pub rewrapped: u64,
    /// Changed by another process meanwhile.
    pub changed: u64,
    /// Rows that were left as they are, and why.
    pub unreadable: Vec<(Option<String>, String, String)>,
    /// Where the next batch begins. None: this was the last.
    pub next: Option<(String, String)>,
}

/// How many rows aren't under this master key.
pub async fn count_under_others(db: &Db, key_id: &str) -> Result<i64, StoreError> {
    let statement = sql("select count(*) as count from ati_credentials where key_id <> $1");
    let row = db.fetch_one(statement.text(key_id)).await?;
    row.map_or(Ok(0), |row| row.int("count"))
}

/// Gives the rows after `from` that aren't under `key_id` what `rewrap` makes of them, a batch at a
/// time. A row that another process changes meanwhile stays as that process made it.
pub async fn rewrap_batch(
    db: &Db,
    actor: &str,
    key_id: &str,
    from: &(String, String),
    rewrap: impl Fn(Place<'_>, &Sealed) -> Result<Option<Sealed>, String>,
) -> Result<Rewrapped, StoreError> {
    let statement = sql(
        "select customer_id, name, key_id, nonce, ciphertext, wrapped_key from ati_credentials \
         where key_id <> $1 and (coalesce(customer_id, ''), name) > ($2, $3) \
         order by coalesce(customer_id, ''), name limit $4",
    );
    let statement = statement.text(key_id).text(&from.0).text(&from.1);
    let rows = db.fetch(statement.int(BATCH)).await?;
    let rows: Vec<StoredRow> = rows.iter().map(stored_row).collect::<Result<_, _>>()?;
    let mut outcome = Rewrapped {
        next: rows
            .last()
            .map(|row| (row.customer.clone().unwrap_or_default(), row.name.clone())),
        ..Rewrapped::default()
    };
    // All of the arithmetic before the transaction: it is short.
    let mut ready = Vec::new();
    for row in &rows {
        match rewrap(row.place(), &row.sealed) {
            Ok(Some(sealed)) => ready.push((row, sealed)),
            Ok(None) => {}
            Err(why) => {
                let place = (row.customer.clone(), row.name.clone(), why);
                outcome.unreadable.push(place);
            }
        }
    }
    if ready.is_empty() {
        return Ok(outcome);
    }
    let mut transaction = db.begin().await?;
    count_change(&mut transaction).await?;
    for (row, sealed) in ready {
        let statement = sql("update ati_credentials set key_id = $3, wrapped_key = $4 \
             where coalesce(customer_id, '') = coalesce($1, '') and name = $2 \
             and key_id = $5 and wrapped_key = $6");
        let statement = statement
            .text_or_null(row.customer.as_deref())
            .text(&row.name)
            .text(&sealed.key_id)
            .bytes(sealed.wrapped_key)
            .text(&row.sealed.key_id)
            .bytes(row.sealed.wrapped_key.clone());
        match transaction.execute(statement).await? {
            0 => outcome.changed += 1,
            _ => outcome.rewrapped += 1,
        }
    }
    let after = json!({"key_id": key_id, "rows": outcome.rewrapped});
    let change = change(actor, "credential.rewrap", None, Some(after));
    audit_log::record(&mut transaction, change).await?;
    transaction.commit().await?;
    Ok(outcome)
}

async fn count_change(transaction: &mut Transaction) -> Result<(), StoreError> {
    let statement = "update ati_credential_changes set changes = changes + 1";
    if transaction.execute(sql(statement)).await? == 0 {
        let statement = "insert into ati_credential_changes (id, changes) values (1, 1)";
        transaction.execute(sql(statement)).await?;
    }
    Ok(())
}

async fn find(
    transaction: &mut Transaction,
    place: Place<'_>,
) -> Result<Option<ListedCredential>, StoreError> {
    let statement = sql(
        "select customer_id, name, key_id, created_at, updated_at from ati_credentials \
         where coalesce(customer_id, '') = coalesce($1, '') and name = $2",
    );
    let statement = statement.text_or_null(place.customer).text(place.name);
    let rows = transaction.fetch(statement).await?;
    rows.first().map(listed).transpose()
}

fn listed(row: &Row) -> Result<ListedCredential, StoreError> {
    Ok(ListedCredential {
        customer: row.text_or_null("customer_id")?,
        name: row.text("name")?,
        key_id: row.text("key_id")?,
        created: row.time("created_at")?,
        updated: row.time("updated_at")?,
    })
}

fn stored_row(row: &Row) -> Result<StoredRow, StoreError> {
    let mut ciphertext = row.bytes("nonce")?;
    ciphertext.extend(row.bytes("ciphertext")?);
    Ok(StoredRow {
        customer: row.text_or_null("customer_id")?,
        name: row.text("name")?,
        sealed: Sealed {
            key_id: row.text("key_id")?,
            wrapped_key: row.bytes("wrapped_key")?,
            ciphertext,
        },
    })
}

fn halves(sealed: &Sealed) -> Result<(&[u8], &[u8]), StoreError> {
    let halves = sealed.ciphertext.split_at_checked(NONCE);
    halves.ok_or_else(|| StoreError::Failed("a value without a nonce".to_owned()))
}

fn change<'a>(
    actor: &'a str,
    action: &'a str,
    before: Option<Value>,
    after: Option<Value>,
) -> Change<'a> {
    Change {
        actor,
        action,
        table: "ati_credentials",
        target: None,
        before,
        after,
    }
}

/// As the audit log names it.
fn target(place: Place<'_>) -> String {
    match place.customer {
        Some(customer) => format!("{}@{customer}", place.name),
        None => place.name.to_owned(),
    }
}
