//! Revoking keys: the row moves to `ati_deleted_keys`, and other edges are told, all or nothing.

use serde_json::{Value, json};

use super::{CHANNEL, Entry, KeyRow, audit};
use crate::store::db::{Db, Engine, Transaction};
use crate::store::error::StoreError;
use crate::store::row::Row;
use crate::store::statement::{Statement, sql};
use crate::store::time::Timestamp;

/// Which keys are revoked together: those that every filter that is set fits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub user_id: Option<String>,
    /// Literal: `%` and `_` mean themselves.
    pub alias_prefix: Option<String>,
    pub hashes: Vec<String>,
}

impl Filter {
    /// Without a filter, every key would be revoked.
    pub fn is_empty(&self) -> bool {
        self.user_id.is_none() && self.alias_prefix.is_none() && self.hashes.is_empty()
    }

    fn deletion(&self, engine: Engine) -> Statement {
        let mut conditions = Vec::new();
        if self.user_id.is_some() {
            conditions.push(format!("user_id = ${}", conditions.len() + 1));
        }
        if self.alias_prefix.is_some() {
            let at = conditions.len() + 1;
            conditions.push(format!("substr(key_alias, 1, length(${at})) = ${at}"));
        }
        if !self.hashes.is_empty() {
            let at = conditions.len() + 1;
            conditions.push(match engine {
                Engine::Sqlite => format!("token_hash in (select value from json_each(${at}))"),
                Engine::Postgres => format!("token_hash = any (${at})"),
            });
        }
        let conditions = conditions.join(" and ");
        let text = format!("delete from ati_keys where {conditions} returning *");
        let mut statement = Statement::composed(text);
        if let Some(user) = &self.user_id {
            statement = statement.text(user);
        }
        if let Some(prefix) = &self.alias_prefix {
            statement = statement.text(prefix);
        }
        if !self.hashes.is_empty() {
            statement = statement.texts(self.hashes.clone());
        }
        statement
    }
}

/// The hashes of the keys that were revoked.
pub type Revoked = Vec<String>;

/// Revokes one key. False: there is none of this hash.
pub async fn revoke(db: &Db, hash: &str, by: &str) -> Result<bool, StoreError> {
    let mut transaction = db.begin().await?;
    let deletion = sql("delete from ati_keys where token_hash = $1 returning *").text(hash);
    let revoked = remove(&mut transaction, deletion, by).await?;
    let Some(key) = revoked.first() else {
        return Ok(false);
    };
    let entry = Entry {
        actor: by,
        action: "key.revoke",
        target: Some(hash),
        before: Some(key.snapshot.clone()),
        after: None,
    };
    audit(&mut transaction, entry).await?;
    transaction.commit().await?;
    Ok(true)
}

/// Revokes all keys that the filter fits.
pub async fn revoke_all(db: &Db, filter: &Filter, by: &str) -> Result<Revoked, StoreError> {
    if filter.is_empty() {
        return Ok(Vec::new());
    }
    let mut transaction = db.begin().await?;
    let deletion = filter.deletion(transaction.engine());
    let revoked = remove(&mut transaction, deletion, by).await?;
    let hashes: Vec<String> = revoked.into_iter().map(|key| key.token_hash).collect();
    let what = json!({
        "user_id": filter.user_id,
        "alias_prefix": filter.alias_prefix,
        "hashes": Some(&filter.hashes).filter(|hashes| !hashes.is_empty()),
    });
    let entry = Entry {
        actor: by,
        action: "key.bulk_revoke",
        target: None,
        before: Some(json!({"filter": what, "revoked": hashes})),
        after: Some(json!({"revoked": hashes.len()})),
    };
    audit(&mut transaction, entry).await?;
    transaction.commit().await?;
    Ok(hashes)
}

/// A key that was removed.
struct RemovedKey {
    token_hash: String,
    snapshot: Value,
}

impl RemovedKey {
    /// A row that can't be read can be revoked all the same.
    fn read(row: &Row) -> Result<Self, StoreError> {
        let token_hash = row.text("token_hash")?;
        let snapshot = match KeyRow::read(row) {
            Ok(key) => key.to_json(),
            Err(e) => json!({"token_hash": token_hash, "unreadable": e.to_string()}),
        };
        Ok(RemovedKey {
            token_hash,
            snapshot,
        })
    }
}

async fn remove(
    transaction: &mut Transaction,
    deletion: Statement,
    by: &str,
) -> Result<Vec<RemovedKey>, StoreError> {
    let rows = transaction.fetch(deletion).await?;
    let keys: Result<Vec<RemovedKey>, StoreError> = rows.iter().map(RemovedKey::read).collect();
    let keys = keys?;
    for key in &keys {
        keep(transaction, key, by).await?;
        if transaction.engine() == Engine::Postgres {
            // Delivered at the commit.
            let tell = sql("select pg_notify($1, $2)");
            let tell = tell.text(CHANNEL).text(&key.token_hash);
            transaction.execute(tell).await?;
        }
    }
    Ok(keys)
}

async fn keep(transaction: &mut Transaction, key: &RemovedKey, by: &str) -> Result<(), StoreError> {
    let text = "insert into ati_deleted_keys (token_hash, snapshot, deleted_at, deleted_by) \
                values ($1, $2, $3, $4) on conflict (token_hash) do nothing";
    let statement = sql(text)
        .text(&key.token_hash)
        .json(key.snapshot.clone())
        .time(Timestamp::now())
        .text(by);
    transaction.execute(statement).await.map(|_| ())
}
