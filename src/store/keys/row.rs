//! A row of `ati_keys`.

use serde_json::{Value, json};

use crate::store::error::StoreError;
use crate::store::row::Row;
use crate::store::statement::{Statement, sql};
use crate::store::time::Timestamp;

#[derive(Debug, Clone, PartialEq)]
pub struct KeyRow {
    /// SHA-256 of the whole key, as hex.
    pub token_hash: String,
    pub key_alias: String,
    pub user_id: String,
    pub blocked: bool,
    pub expires_at: Option<Timestamp>,
    pub tools: Vec<String>,
    pub providers: Vec<String>,
    pub categories: Vec<String>,
    pub skills: Vec<String>,
    /// Limits by scope pattern, as in a token.
    pub rate: Option<Value>,
    pub customer_id: Option<String>,
    pub request_count: i64,
    pub error_count: i64,
    pub last_used_at: Option<Timestamp>,
    pub metadata: Option<Value>,
    pub created_at: Timestamp,
    pub created_by: Option<String>,
}

impl KeyRow {
    pub(super) fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(KeyRow {
            token_hash: row.text("token_hash")?,
            key_alias: row.text("key_alias")?,
            user_id: row.text("user_id")?,
            blocked: row.bool("blocked")?,
            expires_at: row.time_or_null("expires_at")?,
            tools: row.texts("tools")?,
            providers: row.texts("providers")?,
            categories: row.texts("categories")?,
            skills: row.texts("skills")?,
            rate: row.json("rate")?,
            customer_id: row.text_or_null("customer_id")?,
            request_count: row.int("request_count")?,
            error_count: row.int("error_count")?,
            last_used_at: row.time_or_null("last_used_at")?,
            metadata: row.json("metadata")?,
            created_at: row.time("created_at")?,
            created_by: row.text_or_null("created_by")?,
        })
    }

    pub(super) fn insert(&self) -> Statement {
        let text = "insert into ati_keys (token_hash, key_alias, user_id, blocked, expires_at, \
                    tools, providers, categories, skills, rate, customer_id, metadata, \
                    created_at, created_by) \
                    values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";
        sql(text)
            .text(&self.token_hash)
            .text(&self.key_alias)
            .text(&self.user_id)
            .bool(self.blocked)
            .time(self.expires_at)
            .texts(self.tools.clone())
            .texts(self.providers.clone())
            .texts(self.categories.clone())
            .texts(self.skills.clone())
            .json(self.rate.clone())
            .text_or_null(self.customer_id.as_ref())
            .json(self.metadata.clone())
            .time(self.created_at)
            .text_or_null(self.created_by.as_ref())
    }

    /// What an administrator sees of it, and what is kept of it when it is revoked.
    pub fn to_json(&self) -> Value {
        let time = |time: Option<Timestamp>| time.map(Timestamp::rfc3339);
        json!({
            "token_hash": self.token_hash,
            "key_alias": self.key_alias,
            "user_id": self.user_id,
            "blocked": self.blocked,
            "expires_at": time(self.expires_at),
            "tools": self.tools,
            "providers": self.providers,
            "categories": self.categories,
            "skills": self.skills,
            "request_count": self.request_count,
            "error_count": self.error_count,
            "last_used_at": time(self.last_used_at),
            "metadata": self.metadata,
            "created_at": self.created_at.rfc3339(),
            "created_by": self.created_by,
            "rate": self.rate,
            "customer_id": self.customer_id,
        })
    }
}
