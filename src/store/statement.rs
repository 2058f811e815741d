//! A statement and its values, for either engine. Parameters are `$1`, `$2` in both.

use std::net::IpAddr;

use serde_json::Value as JsonValue;
use sqlx::postgres::PgArguments;
use sqlx::sqlite::SqliteArguments;
use sqlx::types::Json;
use sqlx::types::ipnet::IpNet;
use sqlx::{Arguments as _, AssertSqlSafe, SqlSafeStr as _, SqlStr};
use uuid::Uuid;

use super::StoreError;
use super::time::Timestamp;

/// No `Debug`: values may be a caller's.
pub struct Statement {
    sql: SqlStr,
    values: Vec<Value>,
    /// Whether the engine keeps it prepared: only texts that come again are worth it.
    prepared: bool,
}

/// Each absent value has a type, which PostgreSQL asks for.
enum Value {
    Bool(bool),
    Int(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
    Time(Option<Timestamp>),
    /// `text[]` in PostgreSQL, a JSON array in SQLite.
    Texts(Vec<String>),
    /// The same, with absent values.
    List(Vec<Option<String>>),
    Json(Option<JsonValue>),
    Uuid(Uuid),
    Ip(Option<IpAddr>),
}

pub fn sql(text: &'static str) -> Statement {
    Statement {
        sql: text.into_sql_str(),
        values: Vec::new(),
        prepared: true,
    }
}

impl Statement {
    /// A text that is put together: out of ati's own words only, never out of a value.
    pub fn composed(text: String) -> Self {
        Statement {
            sql: AssertSqlSafe(text).into_sql_str(),
            values: Vec::new(),
            prepared: false,
        }
    }

    /// The same, of a text that comes again.
    pub fn repeated(text: String) -> Self {
        Statement {
            prepared: true,
            ..Statement::composed(text)
        }
    }

    fn with(mut self, value: Value) -> Self {
        self.values.push(value);
        self
    }

    pub fn bool(self, value: bool) -> Self {
        self.with(Value::Bool(value))
    }

    pub fn int(self, value: impl Into<Option<i64>>) -> Self {
        self.with(Value::Int(value.into()))
    }

    pub fn text(self, value: impl Into<String>) -> Self {
        self.with(Value::Text(Some(value.into())))
    }

    pub fn text_or_null(self, value: Option<impl Into<String>>) -> Self {
        self.with(Value::Text(value.map(Into::into)))
    }

    pub fn bytes(self, value: impl Into<Vec<u8>>) -> Self {
        self.with(Value::Bytes(Some(value.into())))
    }

    pub fn bytes_or_null(self, value: Option<Vec<u8>>) -> Self {
        self.with(Value::Bytes(value))
    }

    pub fn time(self, value: impl Into<Option<Timestamp>>) -> Self {
        self.with(Value::Time(value.into()))
    }

    pub fn texts(self, value: Vec<String>) -> Self {
        self.with(Value::Texts(value))
    }

    pub fn list(self, values: Vec<Option<String>>) -> Self {
        self.with(Value::List(values))
    }

    pub fn json(self, value: impl Into<Option<JsonValue>>) -> Self {
        self.with(Value::Json(value.into()))
    }

    pub fn uuid(self, value: Uuid) -> Self {
        self.with(Value::Uuid(value))
    }

    pub fn ip(self, value: Option<IpAddr>) -> Self {
        self.with(Value::Ip(value))
    }

    pub(super) fn for_sqlite(self) -> Result<(SqlStr, SqliteArguments, bool), StoreError> {
        let mut arguments = SqliteArguments::default();
        for value in self.values {
            let added = match value {
                Value::Bool(value) => arguments.add(value),
                Value::Int(value) => arguments.add(value),
                Value::Text(value) => arguments.add(value),
                Value::Bytes(value) => arguments.add(value),
                Value::Time(value) => arguments.add(value.map(Timestamp::millis)),
                Value::Texts(value) => arguments.add(JsonValue::from(value).to_string()),
                Value::List(value) => arguments.add(JsonValue::from(value).to_string()),
                Value::Json(value) => arguments.add(value.map(|value| value.to_string())),
                Value::Uuid(value) => arguments.add(value.hyphenated().to_string()),
                Value::Ip(value) => arguments.add(value.map(|value| value.to_string())),
            };
            added.map_err(|e| StoreError::Failed(e.to_string()))?;
        }
        Ok((self.sql, arguments, self.prepared))
    }

    pub(super) fn for_postgres(self) -> Result<(SqlStr, PgArguments, bool), StoreError> {
        let mut arguments = PgArguments::default();
        for value in self.values {
            let added = match value {
                Value::Bool(value) => arguments.add(value),
                Value::Int(value) => arguments.add(value),
                Value::Text(value) => arguments.add(value),
                Value::Bytes(value) => arguments.add(value),
                Value::Time(value) => arguments.add(value.map(Timestamp::date)),
                Value::Texts(value) => arguments.add(value),
                Value::List(value) => arguments.add(value),
                Value::Json(value) => arguments.add(value.map(Json)),
                Value::Uuid(value) => arguments.add(value),
                Value::Ip(value) => arguments.add(value.map(IpNet::from)),
            };
            added.map_err(|e| StoreError::Failed(e.to_string()))?;
        }
        Ok((self.sql, arguments, self.prepared))
    }
}
