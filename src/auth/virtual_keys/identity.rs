//! The caller that a row of `ati_keys` describes.

use std::sync::Arc;

use super::cache::{Found, Known};
use super::usage::{KeyUse, UsedKeys};
use crate::auth::rate::Rate;
use crate::auth::{Identity, Scopes};
use crate::error::KeyFault;
use crate::keyring::customer;
use crate::store::keys::KeyRow;

pub fn found(row: &KeyRow, used: &Arc<UsedKeys>) -> Found {
    if row.blocked {
        return Found::refused(KeyFault::Blocked);
    }
    // As a token whose limits can't be read: to ignore them would be worse.
    let Some(rates) = rates(row) else {
        return Found::refused(KeyFault::BadRate);
    };
    // None of ati's own commands writes such a one.
    let customer_id = row.customer_id.clone().filter(|id| !id.is_empty());
    if customer_id
        .as_deref()
        .and_then(customer::fault_of_id)
        .is_some()
    {
        return Found::refused(KeyFault::BadCustomer);
    }
    Found::Known(Arc::new(Known {
        expires: row.expires_at,
        identity: Arc::new(Identity {
            subject: row.user_id.clone(),
            scopes: scopes(row),
            expires: row.expires_at.map(|end| end.unix_seconds()),
            job_id: None,
            sandbox_id: None,
            customer_id,
            rates,
            delegation: None,
            key: Some(KeyUse::new(&row.token_hash, used)),
        }),
    }))
}

/// The scopes of a token that may do the same.
fn scopes(row: &KeyRow) -> Scopes {
    let tools = row.tools.iter().map(|tool| format!("tool:{tool}"));
    let providers = row.providers.iter().map(|name| format!("tool:{name}:*"));
    let categories = row.categories.iter().map(|name| format!("category:{name}"));
    let skills = row.skills.iter().map(|skill| format!("skill:{skill}"));
    Scopes::of_words(tools.chain(providers).chain(categories).chain(skills))
}

fn rates(row: &KeyRow) -> Option<Vec<(String, Rate)>> {
    let Some(rate) = &row.rate else {
        return Some(Vec::new());
    };
    let limits = rate.as_object()?.iter();
    let limits = limits.map(|(pattern, spec)| {
        let rate = Rate::parse(spec.as_str()?)?;
        Some((pattern.clone(), rate))
    });
    let mut limits: Vec<(String, Rate)> = limits.collect::<Option<_>>()?;
    limits.sort_by(|a, b| a.0.cmp(&b.0));
    Some(limits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Timestamp;
    use serde_json::json;

    fn row() -> KeyRow {
        KeyRow {
            token_hash: "00".repeat(32),
            key_alias: "a".into(),
            user_id: "u".into(),
            blocked: false,
            expires_at: None,
            tools: vec!["web_search".into()],
            providers: vec!["github".into()],
            categories: vec!["finance".into()],
            skills: vec!["research".into()],
            rate: None,
            customer_id: Some("c".into()),
            request_count: 0,
            error_count: 0,
            last_used_at: None,
            metadata: None,
            created_at: Timestamp::now(),
            created_by: None,
        }
    }

    fn identity(row: &KeyRow) -> Result<Arc<Identity>, super::super::LookupError> {
        found(row, &Arc::default()).usable()
    }

    #[test]
    fn key_is_a_caller_with_the_scopes_of_its_row() {
        let caller = identity(&row()).unwrap();
        assert_eq!(caller.subject, "u");
        assert_eq!(caller.customer_id.as_deref(), Some("c"));
        let words: Vec<&str> = caller.scopes.iter().collect();
        assert_eq!(
            words,
            [
                "tool:web_search",
                "tool:github:*",
                "category:finance",
                "skill:research"
            ]
        );
    }

    #[test]
    fn value_with_a_space_is_no_second_scope() {
        let mut row = row();
        row.tools = vec!["a *".into(), "b\ttool:c".into()];
        let caller = identity(&row).unwrap();
        for scope in ["tool:a", "tool:c", "tool:b", "tool:anything"] {
            assert!(!caller.scopes.allow(scope), "{scope}");
        }
    }

    #[test]
    fn key_whose_limits_cant_be_read_is_refused() {
        let mut row = row();
        row.rate = Some(json!({"tool:*": "10/hour"}));
        assert_eq!(identity(&row).unwrap().rates[0].1.limit, 10);
        for wrong in [
            json!({"tool:*": "10/fortnight"}),
            json!({"a": 1}),
            json!([]),
        ] {
            row.rate = Some(wrong);
            assert!(identity(&row).is_err());
        }
    }
}
