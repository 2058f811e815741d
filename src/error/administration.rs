//! Why `/admin/keys` didn't do what it was asked.

use std::borrow::Cow;

use http::StatusCode;

use super::RefusalBody;

/// What an administrator is told about a second key of the same name.
pub const SAME_ALIAS: &str = "this user has a key with this alias already";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminRefusal {
    /// A value that isn't taken. The text says which, and why.
    Invalid(Cow<'static, str>),
    NoSuchKey,
    /// The user has a key of this alias.
    Duplicate,
    /// The database is away. Nothing was changed.
    StoreAway(String),
    /// The database refused, or its rows can't be read. Nothing was changed.
    StoreFailed(String),
}

impl AdminRefusal {
    pub fn status(&self) -> StatusCode {
        match self {
            AdminRefusal::Invalid(_) => StatusCode::BAD_REQUEST,
            AdminRefusal::NoSuchKey => StatusCode::NOT_FOUND,
            AdminRefusal::Duplicate => StatusCode::CONFLICT,
            AdminRefusal::StoreAway(_) => StatusCode::SERVICE_UNAVAILABLE,
            AdminRefusal::StoreFailed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub fn body(&self) -> RefusalBody {
        RefusalBody::Json(match self {
            AdminRefusal::Invalid(why) => why.clone(),
            AdminRefusal::NoSuchKey => "no such key".into(),
            AdminRefusal::Duplicate => SAME_ALIAS.into(),
            AdminRefusal::StoreAway(why) | AdminRefusal::StoreFailed(why) => why.clone().into(),
        })
    }

    /// Seconds after which the same request may succeed, where it may.
    pub fn retry_after(&self) -> Option<&'static str> {
        match self {
            AdminRefusal::StoreAway(_) => Some("1"),
            AdminRefusal::Invalid(_)
            | AdminRefusal::NoSuchKey
            | AdminRefusal::Duplicate
            | AdminRefusal::StoreFailed(_) => None,
        }
    }

    pub fn label(&self) -> &'static str {
        match self {
            AdminRefusal::Invalid(_) => "admin_invalid",
            AdminRefusal::NoSuchKey => "no_such_key",
            AdminRefusal::Duplicate => "duplicate_key",
            AdminRefusal::StoreAway(_) => "store_away",
            AdminRefusal::StoreFailed(_) => "store_failed",
        }
    }
}
