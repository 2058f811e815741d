//! A row of either engine.

use std::net::IpAddr;

use serde_json::Value as JsonValue;
use sqlx::postgres::{PgRow, PgValueFormat, PgValueRef};
use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;
use sqlx::types::ipnet::IpNet;
use sqlx::{Column as _, ColumnIndex, Row as _, TypeInfo as _};
use uuid::Uuid;

use super::StoreError;
use super::time::Timestamp;

pub enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl Row {
    pub fn bool(&self, column: &str) -> Result<bool, StoreError> {
        Ok(match self {
            Row::Sqlite(row) => row.try_get(column)?,
            Row::Postgres(row) => row.try_get(column)?,
        })
    }

    pub fn int(&self, column: &str) -> Result<i64, StoreError> {
        present(self.int_or_null(column)?, column)
    }

    pub fn int_or_null(&self, column: &str) -> Result<Option<i64>, StoreError> {
        Ok(match self {
            Row::Sqlite(row) => row.try_get(column)?,
            // Tables of existing deployments may have narrower columns.
            Row::Postgres(row) => match type_name(row, column)?.as_str() {
                "INT2" => row.try_get::<Option<i16>, _>(column)?.map(i64::from),
                "INT4" => row.try_get::<Option<i32>, _>(column)?.map(i64::from),
                _ => row.try_get(column)?,
            },
        })
    }

    pub fn text(&self, column: &str) -> Result<String, StoreError> {
        present(self.text_or_null(column)?, column)
    }

    pub fn text_or_null(&self, column: &str) -> Result<Option<String>, StoreError> {
        Ok(match self {
            Row::Sqlite(row) => row.try_get(column)?,
            Row::Postgres(row) => row.try_get(column)?,
        })
    }

    pub fn bytes(&self, column: &str) -> Result<Vec<u8>, StoreError> {
        Ok(match self {
            Row::Sqlite(row) => row.try_get(column)?,
            Row::Postgres(row) => row.try_get(column)?,
        })
    }

    pub fn time(&self, column: &str) -> Result<Timestamp, StoreError> {
        present(self.time_or_null(column)?, column)
    }

    pub fn time_or_null(&self, column: &str) -> Result<Option<Timestamp>, StoreError> {
        Ok(match self {
            Row::Sqlite(row) => row
                .try_get::<Option<i64>, _>(column)?
                .map(|millis| {
                    let time = Timestamp::from_millis(millis);
                    time.ok_or_else(|| unreadable(column, "not a time"))
                })
                .transpose()?,
            Row::Postgres(row) => {
                if is_out_of_range(&row.try_get_raw(column)?) {
                    return Err(unreadable(column, "not a time of these millennia"));
                }
                row.try_get::<Option<time::OffsetDateTime>, _>(column)?
                    .map(Timestamp::from_date)
            }
        })
    }

    pub fn texts(&self, column: &str) -> Result<Vec<String>, StoreError> {
        Ok(match self {
            Row::Sqlite(row) => {
                let text: String = row.try_get(column)?;
                serde_json::from_str(&text).map_err(|e| unreadable(column, &e.to_string()))?
            }
            Row::Postgres(row) => row
                .try_get::<Option<Vec<String>>, _>(column)?
                .unwrap_or_default(),
        })
    }

    pub fn json(&self, column: &str) -> Result<Option<JsonValue>, StoreError> {
        Ok(match self {
            Row::Sqlite(row) => row
                .try_get::<Option<String>, _>(column)?
                .map(|text| {
                    serde_json::from_str(&text).map_err(|e| unreadable(column, &e.to_string()))
                })
                .transpose()?,
            Row::Postgres(row) => row
                .try_get::<Option<Json<JsonValue>>, _>(column)?
                .map(|json| json.0),
        })
    }

    pub fn uuid(&self, column: &str) -> Result<Uuid, StoreError> {
        Ok(match self {
            Row::Sqlite(row) => {
                let text: String = row.try_get(column)?;
                Uuid::try_parse(&text).map_err(|e| unreadable(column, &e.to_string()))?
            }
            Row::Postgres(row) => row.try_get(column)?,
        })
    }

    pub fn ip(&self, column: &str) -> Result<Option<IpAddr>, StoreError> {
        Ok(match self {
            Row::Sqlite(row) => row
                .try_get::<Option<String>, _>(column)?
                .map(|text| text.parse().map_err(|_| unreadable(column, "no address")))
                .transpose()?,
            Row::Postgres(row) => row
                .try_get::<Option<IpNet>, _>(column)?
                .map(|network| network.addr()),
        })
    }
}

fn type_name(row: &PgRow, column: &str) -> Result<String, StoreError> {
    let index = column.index(row)?;
    Ok(row.column(index).type_info().name().to_owned())
}

fn present<T>(value: Option<T>, column: &str) -> Result<T, StoreError> {
    value.ok_or_else(|| unreadable(column, "it is empty"))
}

/// `infinity`, and times that the library would panic on.
fn is_out_of_range(value: &PgValueRef<'_>) -> bool {
    /// Microseconds since 2000, about eight thousand years.
    const FARTHEST: u64 = 250_000_000_000_000_000;
    let bytes = match value.format() {
        PgValueFormat::Binary => value.as_bytes().ok(),
        PgValueFormat::Text => None,
    };
    let micros = bytes.and_then(|bytes| Some(i64::from_be_bytes(bytes.try_into().ok()?)));
    micros.is_some_and(|micros| micros.unsigned_abs() > FARTHEST)
}

fn unreadable(column: &str, what: &str) -> StoreError {
    StoreError::Unreadable {
        column: column.to_owned(),
        what: what.to_owned(),
    }
}
