use std::sync::Arc;

use base64::Engine as _;
use zeroize::Zeroizing;

use super::*;
use crate::keyring::Source;
use crate::keyring::stored::{MasterKeys, StoredCredentials, StoredRow};

fn master(byte: u8) -> Arc<MasterKeys> {
    let value = base64::engine::general_purpose::STANDARD.encode([byte; 32]);
    let variable = ("ATI_MASTER_KEY".to_owned(), Some(Zeroizing::new(value)));
    Arc::new(MasterKeys::from_variables(std::iter::once(variable)).unwrap())
}

/// Rows of `(customer, name, value)`. Those whose value is empty were encrypted with another key.
fn keyring(entries: &[(&str, &str)], rows: &[(Option<&str>, &str, &str)]) -> Keyring {
    let entries = entries
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Secret::new(value.as_bytes()).unwrap()));
    let (keys, other) = (master(1), master(2));
    let rows: Vec<StoredRow> = rows
        .iter()
        .map(|(customer, name, value)| {
            let place = Place {
                customer: *customer,
                name,
            };
            let keys = if value.is_empty() { &other } else { &keys };
            StoredRow {
                customer: customer.map(str::to_owned),
                name: (*name).to_owned(),
                sealed: keys.seal(place, value.as_bytes()).unwrap(),
            }
        })
        .collect();
    Keyring::new(entries.collect(), Source::Credentials)
        .with_stored(Arc::new(StoredCredentials::new(keys, rows)))
}

fn get(lookup: Lookup<'_>, name: &str) -> Option<String> {
    let found = lookup.get(name).unwrap();
    found.map(|secret| String::from_utf8(secret.expose().to_vec()).unwrap())
}

#[test]
fn secret_of_a_customer_comes_first_and_for_that_customer_only() {
    let entries = [
        ("k", "all"),
        ("k@acme", "acme"),
        ("Other", "x"),
        ("Other@acme", "own"),
    ];
    let keyring = keyring(&entries, &[]);
    let tool = |customer| Lookup::tool(&keyring, customer);
    assert_eq!(get(tool(Some("acme")), "k").as_deref(), Some("acme"));
    assert_eq!(get(tool(Some("globex")), "k").as_deref(), Some("all"));
    assert_eq!(get(tool(Some("")), "k").as_deref(), Some("all"));
    assert_eq!(get(tool(Some("ACME")), "k").as_deref(), Some("all"));
    assert_eq!(get(tool(None), "other"), None);
    assert_eq!(get(tool(Some("acme")), "other"), None);
    let route = |customer| Lookup::passthrough(&keyring, customer);
    assert_eq!(get(route(None), "other").as_deref(), Some("x"));
    assert_eq!(get(route(Some("acme")), "other").as_deref(), Some("own"));
    assert_eq!(get(route(Some("ACME")), "other").as_deref(), Some("x"));
    assert!(tool(Some("acme")).is_special(|| vec!["a", "k"]));
    assert!(route(Some("acme")).is_special(|| vec!["other"]));
    assert!(!tool(None).is_special(|| vec!["k"]));
}

#[test]
fn sources_are_asked_in_their_order() {
    const OWN_ROW: (Option<&str>, &str, &str) = (Some("acme"), "k", "own row");
    const OWN_ENTRY: (&str, &str) = ("k@acme", "own entry");
    const SHARED_ROW: (Option<&str>, &str, &str) = (None, "k", "shared row");
    const ENTRY: (&str, &str) = ("k", "entry");
    // For each set of sources: what acme finds, and what a caller without a customer finds.
    for present in 0..16u8 {
        let has = |bit: u8| present & bit != 0;
        let rows = [(8, OWN_ROW), (2, SHARED_ROW)];
        let entries = [(4, OWN_ENTRY), (1, ENTRY)];
        let rows: Vec<_> = rows
            .into_iter()
            .filter(|(bit, _)| has(*bit))
            .map(|it| it.1)
            .collect();
        let entries: Vec<_> = entries
            .into_iter()
            .filter(|(bit, _)| has(*bit))
            .map(|it| it.1)
            .collect();
        let keyring = keyring(&entries, &rows);
        let all = [
            (8, "own row"),
            (4, "own entry"),
            (2, "shared row"),
            (1, "entry"),
        ];
        let first = |sources: &[(u8, &'static str)]| {
            sources
                .iter()
                .find(|(bit, _)| has(*bit))
                .map(|(_, value)| *value)
        };
        for lookup in [Lookup::tool, Lookup::passthrough] {
            let found = get(lookup(&keyring, Some("acme")), "k");
            assert_eq!(found.as_deref(), first(&all), "{present:04b}");
            for other in [
                None,
                Some("globex"),
                Some("acm"),
                Some("acme2"),
                Some("Acme"),
            ] {
                let found = get(lookup(&keyring, other), "k");
                assert_eq!(
                    found.as_deref(),
                    first(&all[2..]),
                    "{present:04b} {other:?}"
                );
            }
        }
        let special = Lookup::tool(&keyring, Some("acme")).is_special(|| vec!["k"]);
        assert_eq!(special, has(8) || has(4));
        let stored = Lookup::tool(&keyring, Some("acme")).is_stored("k");
        assert_eq!(stored, has(8) || (!has(4) && has(2)), "{present:04b}");
    }
}

#[test]
fn row_that_can_not_be_read_is_an_error_and_never_another_source() {
    let entries = [("k", "entry"), ("k@acme", "own entry")];
    let keyring = keyring(&entries, &[(Some("acme"), "k", ""), (None, "other", "")]);
    for lookup in [Lookup::tool, Lookup::passthrough] {
        let error = lookup(&keyring, Some("acme")).get("k").unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("'k' of customer 'acme' can't be read"),
            "{text}"
        );
        assert!(lookup(&keyring, Some("acme")).is_special(|| vec!["k"]));
        assert_eq!(
            get(lookup(&keyring, Some("globex")), "k").as_deref(),
            Some("entry")
        );
        assert!(lookup(&keyring, Some("globex")).get("other").is_err());
    }
}

/// Ids with an `@` don't get this far (`auth`); here neither reading may reach the other's entry.
#[test]
fn customer_with_an_at_sign_reaches_no_row_of_another() {
    let keyring = keyring(
        &[],
        &[(Some("b"), "k@a", "b's"), (Some("a@b"), "k", "a@b's")],
    );
    let tool = |customer| Lookup::tool(&keyring, Some(customer));
    assert_eq!(get(tool("a@b"), "k").as_deref(), Some("a@b's"));
    assert_eq!(get(tool("b"), "k@a").as_deref(), Some("b's"));
    assert_eq!(get(tool("b"), "k"), None);
    assert_eq!(get(tool("a"), "k"), None);
}
