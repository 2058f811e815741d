//! What an administrator asks for, checked: a key to issue, keys to revoke.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::end_after;
use crate::auth::rate::Rate;
use crate::auth::scope::is_word;
use crate::keyring::customer;
use crate::store::Timestamp;
use crate::store::keys::{Filter, KeyRow};

/// Of a name: a user, an alias, an actor, a customer.
const LONGEST_NAME: usize = 256;
const LONGEST_SCOPE: usize = 512;
const MOST_SCOPES: usize = 1000;
const LONGEST_METADATA: usize = 64 << 10;
const MOST_HASHES: usize = 10_000;

/// The body of `POST /admin/keys/issue`.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct IssueRequest {
    pub user_id: String,
    #[serde(alias = "key_alias")]
    pub alias: String,
    #[serde(default)]
    pub tools: Vec<String>,
    #[serde(default)]
    pub providers: Vec<String>,
    #[serde(default)]
    pub categories: Vec<String>,
    #[serde(default)]
    pub skills: Vec<String>,
    #[serde(default)]
    pub expires_in_secs: Option<i64>,
    /// Limits by scope pattern, as in a token.
    #[serde(default)]
    pub rate: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub customer_id: Option<String>,
    #[serde(default)]
    pub metadata: Option<Value>,
    #[serde(default)]
    pub created_by: Option<String>,
}

impl IssueRequest {
    /// The row of the key, or what is wrong.
    pub fn into_row(self, hash: String) -> Result<KeyRow, String> {
        if self.user_id.trim().is_empty() {
            return Err("user_id is required".into());
        }
        if self.alias.trim().is_empty() {
            return Err("key_alias is required".into());
        }
        check_name("user_id", &self.user_id)?;
        check_name("key_alias", &self.alias)?;
        for (field, name) in [
            ("created_by", &self.created_by),
            ("customer_id", &self.customer_id),
        ] {
            if let Some(name) = name {
                check_name(field, name)?;
                if name.trim().is_empty() {
                    return Err(format!("{field} is empty"));
                }
            }
        }
        let customer = self.customer_id.as_deref();
        if let Some(fault) = customer.and_then(customer::fault_of_id) {
            return Err(format!("customer_id {fault}"));
        }
        check_scopes("tools", &self.tools)?;
        check_scopes("providers", &self.providers)?;
        check_scopes("categories", &self.categories)?;
        check_scopes("skills", &self.skills)?;
        let expires_at = match self.expires_in_secs {
            None => None,
            Some(seconds) => Some(
                u64::try_from(seconds)
                    .ok()
                    .filter(|seconds| *seconds > 0)
                    .and_then(end_after)
                    .ok_or("expires_in_secs must be a number of seconds, from 1 on")?,
            ),
        };
        let rate = self.rate.filter(|rate| !rate.is_empty());
        for (pattern, spec) in rate.iter().flatten() {
            check_scopes("rate", std::slice::from_ref(pattern))?;
            if Rate::parse(spec).is_none() {
                return Err(format!(
                    "rate: the limit of '{pattern}' can't be read; expected a count and a unit, \
                     like 10/hour"
                ));
            }
        }
        check_metadata(self.metadata.as_ref())?;
        Ok(KeyRow {
            token_hash: hash,
            key_alias: self.alias,
            user_id: self.user_id,
            blocked: false,
            expires_at,
            tools: self.tools,
            providers: self.providers,
            categories: self.categories,
            skills: self.skills,
            rate: rate.map(|rate| json!(rate)),
            customer_id: self.customer_id,
            request_count: 0,
            error_count: 0,
            last_used_at: None,
            metadata: self.metadata.filter(|metadata| !metadata.is_null()),
            created_at: Timestamp::now(),
            created_by: self.created_by,
        })
    }
}

/// The body of `POST /admin/keys/bulk-revoke`.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct RevokeRequest {
    #[serde(default)]
    pub user_id: Option<String>,
    #[serde(default)]
    pub alias_prefix: Option<String>,
    #[serde(default)]
    pub hashes: Option<Vec<String>>,
}

impl RevokeRequest {
    /// The filter, or what is wrong.
    pub fn into_filter(self) -> Result<Filter, String> {
        let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
        let mut filter = Filter {
            user_id: filled(self.user_id),
            alias_prefix: filled(self.alias_prefix),
            hashes: self.hashes.unwrap_or_default(),
        };
        // As the database has them.
        for hash in &mut filter.hashes {
            hash.make_ascii_lowercase();
        }
        if filter.is_empty() {
            return Err("bulk_revoke requires at least one filter field".into());
        }
        for (field, name) in [
            ("user_id", &filter.user_id),
            ("alias_prefix", &filter.alias_prefix),
        ] {
            if let Some(name) = name {
                check_name(field, name)?;
            }
        }
        if filter.hashes.len() > MOST_HASHES {
            return Err(format!("hashes has more than {MOST_HASHES} entries"));
        }
        if filter.hashes.iter().any(|hash| !is_word(hash)) {
            return Err("hashes has an entry that is no hash".into());
        }
        Ok(filter)
    }
}

/// A name that both engines can keep, and that can be read in a log.
pub fn check_name(field: &str, name: &str) -> Result<(), String> {
    if name.chars().count() > LONGEST_NAME {
        return Err(format!("{field} is longer than {LONGEST_NAME} characters"));
    }
    if name.contains(char::is_control) {
        return Err(format!("{field} has a control character"));
    }
    Ok(())
}

fn check_scopes(field: &str, scopes: &[String]) -> Result<(), String> {
    if scopes.len() > MOST_SCOPES {
        return Err(format!("{field} has more than {MOST_SCOPES} entries"));
    }
    for scope in scopes {
        if scope.len() > LONGEST_SCOPE {
            return Err(format!(
                "{field} has an entry of more than {LONGEST_SCOPE} bytes"
            ));
        }
        // A space would make two scopes of it.
        if !is_word(scope) {
            return Err(format!(
                "{field} has an entry that is empty or has a space in it"
            ));
        }
    }
    Ok(())
}

fn check_metadata(metadata: Option<&Value>) -> Result<(), String> {
    let text = metadata.map(Value::to_string).unwrap_or_default();
    if text.len() > LONGEST_METADATA {
        return Err(format!("metadata has more than {LONGEST_METADATA} bytes"));
    }
    // PostgreSQL can't keep it.
    if text.contains("\\u0000") {
        return Err("metadata has a null character".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(body: Value) -> Result<KeyRow, String> {
        let request: IssueRequest = serde_json::from_value(body).unwrap();
        request.into_row("h".into())
    }

    #[test]
    fn blank_user_or_alias_has_the_documented_message() {
        let user = row(json!({"user_id": " ", "alias": "a"})).unwrap_err();
        assert_eq!(user, "user_id is required");
        let alias = row(json!({"user_id": "u", "alias": ""})).unwrap_err();
        assert_eq!(alias, "key_alias is required");
    }

    #[test]
    fn value_that_would_be_kept_wrongly_is_refused() {
        let base = json!({"user_id": "u", "alias": "a"});
        assert!(row(base.clone()).is_ok());
        for (field, value) in [
            ("alias", json!("x".repeat(257))),
            ("user_id", json!("a\u{0}b")),
            ("tools", json!(["a b"])),
            ("tools", json!([""])),
            ("skills", json!(["x".repeat(513)])),
            ("expires_in_secs", json!(0)),
            ("expires_in_secs", json!(-5)),
            ("expires_in_secs", json!(i64::MAX)),
            ("rate", json!({"tool:*": "often"})),
            ("customer_id", json!("  ")),
            ("customer_id", json!("acme@globex")),
            ("customer_id", json!("a/b")),
            ("metadata", json!({"a": "\u{0}"})),
            ("metadata", json!("x".repeat(70_000))),
        ] {
            let mut body = base.clone();
            body[field] = value;
            assert!(row(body).is_err(), "{field}");
        }
    }

    #[test]
    fn bulk_revocation_without_a_filter_is_refused() {
        let filter = |body: Value| {
            let request: RevokeRequest = serde_json::from_value(body).unwrap();
            request.into_filter()
        };
        for nothing in [
            json!({}),
            json!({"user_id": "", "alias_prefix": "", "hashes": []}),
        ] {
            assert_eq!(
                filter(nothing).unwrap_err(),
                "bulk_revoke requires at least one filter field"
            );
        }
        assert!(filter(json!({"alias_prefix": "job-"})).is_ok());
        let capitals = filter(json!({"hashes": ["AB01"]})).unwrap();
        assert_eq!(capitals.hashes, ["ab01"]);
    }
}
