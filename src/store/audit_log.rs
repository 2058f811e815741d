//! `ati_audit_log`: what was changed, when and by which user. A row is written in the transaction
//! of its change. It holds no secret.

use serde_json::Value;

use super::{StoreError, Timestamp, Transaction, sql};

/// A change, as the table has it.
pub struct Change<'a> {
    pub actor: &'a str,
    /// `credential.set`, for example.
    pub action: &'a str,
    pub table: &'a str,
    /// Which row of the table.
    pub target: Option<&'a str>,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

pub async fn record(transaction: &mut Transaction, change: Change<'_>) -> Result<(), StoreError> {
    let statement = sql(
        "insert into ati_audit_log (happened_at, actor, action, target_table, target_id, \
         before_value, after_value) values ($1, $2, $3, $4, $5, $6, $7)",
    );
    let statement = statement
        .time(Timestamp::now())
        .text(change.actor)
        .text(change.action)
        .text(change.table)
        .text_or_null(change.target)
        .json(change.before)
        .json(change.after);
    transaction.execute(statement).await.map(|_| ())
}
