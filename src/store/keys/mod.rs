//! Virtual keys: their rows, the copies of revoked ones, and the audit of both. The database has
//! the hash of a key, never the key.

mod revoke;
mod row;

pub use revoke::{Filter, Revoked, revoke, revoke_all};
pub use row::KeyRow;

use serde_json::Value;

use super::audit_log::{self, Change};
use super::db::{Db, Transaction};
use super::error::StoreError;
use super::statement::sql;
use super::time::Timestamp;

/// The channel that tells other edges about revoked keys: the payload is the hash.
pub const CHANNEL: &str = "ati_key_revoked";
/// A list has at most so many keys.
const LONGEST_LIST: i64 = 100;

/// How often a key was used since this was last told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    pub hash: String,
    pub requests: u64,
    pub errors: u64,
    pub last: Timestamp,
}

/// Adds a key. `Conflict`: its user has one of this alias.
pub async fn issue(db: &Db, key: &KeyRow, actor: &str) -> Result<(), StoreError> {
    let mut transaction = db.begin().await?;
    transaction.execute(key.insert()).await?;
    audit(
        &mut transaction,
        Entry {
            actor,
            action: "key.issue",
            target: Some(&key.token_hash),
            before: None,
            after: Some(key.to_json()),
        },
    )
    .await?;
    transaction.commit().await
}

pub async fn find(db: &Db, hash: &str) -> Result<Option<KeyRow>, StoreError> {
    let row = db
        .fetch_one(sql("select * from ati_keys where token_hash = $1").text(hash))
        .await?;
    row.as_ref().map(KeyRow::read).transpose()
}

/// The keys of a user, the newest first, those that have expired included.
pub async fn of_user(db: &Db, user: &str) -> Result<Vec<KeyRow>, StoreError> {
    let text = "select * from ati_keys where user_id = $1 \
                order by created_at desc, token_hash limit $2";
    let rows = db.fetch(sql(text).text(user).int(LONGEST_LIST)).await?;
    rows.iter().map(KeyRow::read).collect()
}

/// Adds what was counted to the rows. Each list has its keys in one order, so that two edges don't
/// wait for each other.
pub async fn count(db: &Db, mut used: Vec<Usage>) -> Result<(), StoreError> {
    used.sort_by(|a, b| a.hash.cmp(&b.hash));
    let mut transaction = db.begin().await?;
    for usage in used {
        let text = "update ati_keys set request_count = request_count + $2, \
                    error_count = error_count + $3, \
                    last_used_at = case when last_used_at > $4 then last_used_at else $4 end \
                    where token_hash = $1";
        let statement = sql(text)
            .text(usage.hash)
            .int(i64::try_from(usage.requests).unwrap_or(i64::MAX))
            .int(i64::try_from(usage.errors).unwrap_or(i64::MAX))
            .time(usage.last);
        transaction.execute(statement).await?;
    }
    transaction.commit().await
}

/// A row of `ati_audit_log`.
struct Entry<'a> {
    actor: &'a str,
    action: &'a str,
    target: Option<&'a str>,
    before: Option<Value>,
    after: Option<Value>,
}

async fn audit(transaction: &mut Transaction, entry: Entry<'_>) -> Result<(), StoreError> {
    let change = Change {
        actor: entry.actor,
        action: entry.action,
        table: "ati_keys",
        target: entry.target,
        before: entry.before,
        after: entry.after,
    };
    audit_log::record(transaction, change).await
}
