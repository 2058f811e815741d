//! What the database holds of customers' credentials, and what happens while it is away.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::json;

use super::{fed, has_rows, master, remove, set, setup, with_database};
use crate::support::ati::{stderr, tool};
use crate::support::database::{Database, on_both_engines, rows};
use crate::support::eventually;
use crate::support::tokens::{bearer_of, key_pair};
use crate::support::upstream::Upstream;

on_both_engines!(
    dump_holds_no_secret_in_any_encoding,
    rows_that_are_swapped_open_for_neither_customer,
    changes_leave_audit_rows_without_values,
);

/// Parts of the forms that a reader could find this secret in.
fn encodings(secret: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = vec![secret.to_vec(), secret.iter().rev().copied().collect()];
    forms.push(hex::encode(secret).into_bytes());
    forms.push(hex::encode_upper(secret).into_bytes());
    let wide = |order: fn(u16) -> [u8; 2]| -> Vec<u8> {
        secret
            .iter()
            .flat_map(|byte| order(u16::from(*byte)))
            .collect()
    };
    forms.extend([wide(u16::to_le_bytes), wide(u16::to_be_bytes)]);
    forms.push(
        secret
            .iter()
            .flat_map(|byte| format!("%{byte:02X}").into_bytes())
            .collect(),
    );
    forms.push(
        secret
            .iter()
            .flat_map(|byte| format!("\\{byte:03o}").into_bytes())
            .collect(),
    );
    // Base64 of the secret behind zero, one and two other bytes; the letters that depend on what
    // stands next to it are cut off.
    for before in 0..3 {
        let padded = [&[0].repeat(before)[..], secret].concat();
        let whole = padded.len() / 3 * 3;
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            let text = engine.encode(&padded[..whole]);
            forms.push(text.as_bytes()[before.div_ceil(1) * 2..].to_vec());
        }
    }
    forms
}

fn finds(haystack: &[u8], secret: &[u8]) -> bool {
    encodings(secret)
        .iter()
        .any(|form| haystack.windows(form.len()).any(|part| part == form))
}

fn dump_holds_no_secret_in_any_encoding(database: &mut Database) {
    let secret = "planted-secret-of-acme-0123456789";
    // The search finds what is there.
    for form in encodings(secret.as_bytes()) {
        assert!(finds(&[b"x", &form[..], b"y"].concat(), secret.as_bytes()));
    }
    let api = Upstream::echo();
    let (signer, public) = key_pair();
    let bearer = "auth_type = 'bearer'\nauth_key_name = 'api'";
    let proxy = setup(database)
        .jwt(&public)
        .tools("p", &api.url(), bearer, &tool("p", ""))
        .start();
    set(&proxy, database, "api", Some("acme"), secret);
    set(
        &proxy,
        database,
        "api",
        None,
        "planted-secret-of-all-987654321",
    );
    // Replaced and removed ones leave nothing behind, either.
    set(
        &proxy,
        database,
        "api",
        Some("globex"),
        "planted-first-of-globex-5555",
    );
    set(
        &proxy,
        database,
        "api",
        Some("globex"),
        "planted-second-of-globex-6666",
    );
    set(
        &proxy,
        database,
        "gone",
        Some("acme"),
        "planted-removed-of-acme-7777",
    );
    remove(&proxy, database, "gone", Some("acme"));
    has_rows(&proxy, 3);
    let token = bearer_of(&signer, Some("acme"));
    assert_eq!(proxy.call(Some(&token), "p", json!({})).status, 200);
    let expected = format!("Bearer {secret}");
    assert_eq!(api.last().header("authorization"), Some(expected.as_str()));
    let dump = database.dump();
    assert!(finds(&dump, b"ati_credentials"), "the dump has the table");
    for secret in [
        secret,
        "planted-secret-of-all-987654321",
        "planted-first-of-globex-5555",
        "planted-second-of-globex-6666",
        "planted-removed-of-acme-7777",
    ] {
        assert!(!finds(&dump, secret.as_bytes()), "{secret}");
    }
    assert!(!finds(&dump, &[1; 32]) && !finds(&dump, master(1).as_bytes()));
}

fn rows_that_are_swapped_open_for_neither_customer(database: &mut Database) {
    let api = Upstream::echo();
    let (signer, public) = key_pair();
    let bearer = "auth_type = 'bearer'\nauth_key_name = 'api'";
    let proxy = setup(database)
        .jwt(&public)
        .credentials(&json!({"api": "planted-of-all"}))
        .tools("p", &api.url(), bearer, &tool("p", ""))
        .start();
    set(&proxy, database, "api", Some("acme"), "planted-of-acme");
    set(&proxy, database, "api", Some("globex"), "planted-of-globex");
    has_rows(&proxy, 2);
    // An attacker with the database, but without the master key.
    database.run(&[
        "update ati_credentials set customer_id = 'x' where customer_id = 'acme'",
        "update ati_credentials set customer_id = 'acme' where customer_id = 'globex'",
        "update ati_credentials set customer_id = 'globex' where customer_id = 'x'",
        "update ati_credential_changes set changes = changes + 1",
    ]);
    for customer in ["acme", "globex"] {
        let token = bearer_of(&signer, Some(customer));
        let answer = eventually("the swapped row", || {
            let answer = proxy.call(Some(&token), "p", json!({}));
            (answer.status != 200).then_some(answer)
        });
        assert_eq!(answer.status, 502);
        assert!(
            answer.text().contains("was copied from another place"),
            "{}",
            answer.text()
        );
    }
    let before = api.received().len();
    assert!(
        api.received()
            .iter()
            .all(|it| it.header("authorization") != Some("Bearer planted-of-all"))
    );
    let token = bearer_of(&signer, Some("initech"));
    assert_eq!(proxy.call(Some(&token), "p", json!({})).status, 200);
    assert_eq!(api.received().len(), before + 1);
}

fn changes_leave_audit_rows_without_values(database: &mut Database) {
    let proxy = setup(database).start();
    set(&proxy, database, "api", Some("acme"), "planted-value-one");
    set(&proxy, database, "api", Some("acme"), "planted-value-two");
    remove(&proxy, database, "api", Some("acme"));
    let mut command = with_database(proxy.dir.path(), database);
    command.env("ATI_MASTER_KEY", master(2));
    let output = fed(
        command.args(["credential", "set", "other"]),
        "planted-value-three",
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let mut command = with_database(proxy.dir.path(), database);
    command.env("ATI_MASTER_KEY_TWO", master(2));
    assert!(
        command
            .args(["admin", "rewrap"])
            .status()
            .unwrap()
            .success()
    );
    let store = database.migrated();
    let statement = ati::store::sql(
        "select actor, action, target_table, target_id, before_value, after_value \
         from ati_audit_log order by id",
    );
    let all = rows(&store, statement);
    let texts: Vec<(String, Option<String>)> = all
        .iter()
        .map(|row| {
            (
                row.text("action").unwrap(),
                row.text_or_null("target_id").unwrap(),
            )
        })
        .collect();
    let target =
        |action: &str, target: Option<&str>| (action.to_owned(), target.map(str::to_owned));
    assert_eq!(
        texts,
        [
            target("credential.set", Some("api@acme")),
            target("credential.set", Some("api@acme")),
            target("credential.remove", Some("api@acme")),
            target("credential.set", Some("other")),
            target("credential.rewrap", None),
        ]
    );
    for row in &all {
        assert_eq!(row.text("target_table").unwrap(), "ati_credentials");
        assert!(row.text("actor").unwrap().starts_with("cli:"));
    }
    assert_eq!(all[0].json("before_value").unwrap(), None);
    assert!(all[1].json("before_value").unwrap().is_some());
    assert_eq!(all[4].json("after_value").unwrap().unwrap()["rows"], 1);
}

#[test]
fn credentials_go_on_while_postgres_is_away() {
    let mut database = Database::postgres();
    let api = Upstream::echo();
    let (signer, public) = key_pair();
    let bearer = "auth_type = 'bearer'\nauth_key_name = 'api'";
    let proxy = setup(&database)
        .jwt(&public)
        .tools("p", &api.url(), bearer, &tool("p", ""))
        .start();
    set(&proxy, &database, "api", Some("acme"), "planted-one");
    has_rows(&proxy, 1);
    let token = bearer_of(&signer, Some("acme"));
    let ask = || {
        assert_eq!(proxy.call(Some(&token), "p", json!({})).status, 200);
        api.last().header("authorization").unwrap().to_owned()
    };
    assert_eq!(ask(), "Bearer planted-one");
    database.stop();
    proxy
        .log
        .wait_for("the credentials of the database can't be read");
    assert_eq!(ask(), "Bearer planted-one");
    let mut command = with_database(proxy.dir.path(), &database);
    let refused = fed(command.args(["credential", "set", "api"]), "planted-two");
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("can't be reached"),
        "{}",
        stderr(&refused)
    );
    proxy.reload();
    assert_eq!(ask(), "Bearer planted-one");
    database.start_again();
    proxy
        .log
        .wait_for("the credentials of the database can be read again");
    set(&proxy, &database, "api", Some("acme"), "planted-two");
    eventually("the new value", || {
        (ask() == "Bearer planted-two").then_some(())
    });
}
