//! `ati credential`: good and bad input.

use serde_json::{Value, json};

use super::{fed, setup, with_database};
use crate::support::ati::{command, stderr, stdout, tells_nothing};
use crate::support::database::{Database, on_both_engines};

on_both_engines!(
    credential_is_set_listed_and_removed_without_showing_it,
    sql_in_every_field_is_only_text,
);

fn credential_is_set_listed_and_removed_without_showing_it(database: &mut Database) {
    let proxy = setup(database).start();
    let dir = proxy.dir.path();
    let run = |words: &[&str], input: &str| {
        let mut command = with_database(dir, database);
        let output = fed(
            command.args(["--output", "json", "credential"]).args(words),
            input,
        );
        tells_nothing("stdout", &stdout(&output));
        tells_nothing("stderr", &stderr(&output));
        (output.status.code().unwrap(), stdout(&output))
    };
    let json_of = |(code, text): (i32, String)| -> Value {
        assert_eq!(code, 0, "{text}");
        serde_json::from_str(&text).unwrap()
    };
    let saved = json_of(run(&["set", "api", "--customer", "acme"], "planted-one\n"));
    assert_eq!(
        (&saved["status"], &saved["name"], &saved["customer"]),
        (&json!("saved"), &json!("api"), &json!("acme"))
    );
    let replaced = json_of(run(&["set", "api", "--customer", "acme"], "planted-two"));
    assert_eq!(replaced["status"], "replaced");
    let file = dir.join("account.json");
    std::fs::write(&file, "{\"planted-key\": 1}\n").unwrap();
    json_of(run(
        &["set", "account", "--file", file.to_str().unwrap()],
        "",
    ));
    let listed = json_of(run(&["list"], ""));
    let names: Vec<(&Value, &Value)> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (&row["customer"], &row["name"]))
        .collect();
    assert_eq!(
        names,
        [
            (&json!(null), &json!("account")),
            (&json!("acme"), &json!("api"))
        ]
    );
    let of_acme = json_of(run(&["list", "--customer", "acme"], ""));
    assert_eq!(of_acme.as_array().unwrap().len(), 1);
    let mut plain = with_database(dir, database);
    let lines = plain.args(["credential", "list"]).output().unwrap();
    assert!(stdout(&lines).contains("acme"), "{}", stdout(&lines));
    let removed = json_of(run(&["remove", "api", "--customer", "acme"], ""));
    assert_eq!(removed["status"], "removed");
    assert_eq!(run(&["remove", "api", "--customer", "acme"], "").0, 1);
    assert_eq!(run(&["remove", "api"], "").0, 1);
}

fn sql_in_every_field_is_only_text(database: &mut Database) {
    let proxy = setup(database).start();
    let hostile = "x'; drop table ati_credentials; --";
    let mut command = with_database(proxy.dir.path(), database);
    command.args(["credential", "set", hostile, "--customer", hostile]);
    let output = fed(&mut command, hostile);
    assert!(output.status.success(), "{}", stderr(&output));
    let mut command = with_database(proxy.dir.path(), database);
    command.args([
        "--output",
        "json",
        "credential",
        "list",
        "--customer",
        hostile,
    ]);
    let listed: Value = serde_json::from_str(&stdout(&command.output().unwrap())).unwrap();
    assert_eq!(listed[0]["name"], hostile);
    assert_eq!(listed[0]["customer"], hostile);
}

#[test]
fn bad_input_is_refused_with_the_way_out() {
    let database = Database::sqlite();
    let proxy = setup(&database).start();
    let dir = proxy.dir.path();
    let long = "x".repeat(300);
    let big = "v".repeat(70 << 10);
    for (words, input, expected) in [
        (&["set", "a@b"][..], "planted-v", "has an '@' in it"),
        (&["set", ""], "planted-v", "is empty"),
        (&["set", &long], "planted-v", "longer than 256 bytes"),
        (&["set", "k", "--customer", "a/b"], "planted-v", "a '/'"),
        (&["set", "k", "--customer", "a@b"], "planted-v", "an '@'"),
        (&["set", "k", "--customer", ""], "planted-v", "is empty"),
        (
            &["set", "k", "--customer", "a\nb"],
            "planted-v",
            "isn't printed",
        ),
        (
            &["set", "k", "--customer", &long],
            "planted-v",
            "longer than 256 bytes",
        ),
        (&["set", "k"], "", "the value of 'k' is empty"),
        (&["set", "k"], &big, "longer than 64 KiB"),
        (&["set", "k", "--file", "/nonexistent"], "", "/nonexistent"),
        (
            &["set", "k", "planted-on-the-command-line"],
            "",
            "unexpected argument",
        ),
    ] {
        let mut command = with_database(dir, &database);
        let output = fed(command.arg("credential").args(words), input);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{words:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(expected),
            "{words:?}: {}",
            stderr(&output)
        );
    }
    let refused = |change: &dyn Fn(&mut std::process::Command)| {
        let mut command = with_database(dir, &database);
        change(&mut command);
        let output = fed(command.args(["credential", "set", "k"]), "planted-v");
        assert!(!output.status.success());
        stderr(&output)
    };
    let text = refused(&|command| _ = command.env_remove("ATI_DB_URL"));
    assert!(text.contains("ATI_DB_URL isn't set"), "{text}");
    let text = refused(&|command| _ = command.env_remove("ATI_MASTER_KEY"));
    assert!(text.contains("openssl rand -base64 32"), "{text}");
    let text = refused(&|command| _ = command.env("ATI_MASTER_KEY", "planted-not-a-key"));
    assert!(
        text.contains("ATI_MASTER_KEY: expected base64 of 32 bytes"),
        "{text}"
    );
    assert!(!text.contains("planted"), "{text}");
    let text = refused(&|command| _ = command.env("ATI_MASTER_KEY_ACTIVE", "m7"));
    assert!(text.contains("ATI_MASTER_KEY_ACTIVE"), "{text}");
    let mut list = with_database(dir, &database);
    let output = list.args(["credential", "list"]).output().unwrap();
    assert!(
        stdout(&output).starts_with("No credentials stored"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn proxy_with_a_bad_master_key_does_not_start() {
    let database = Database::sqlite();
    let setup = setup(&database).env("ATI_MASTER_KEY", "planted-short");
    let output = setup.output();
    assert!(!output.status.success());
    assert!(stderr(&output).contains("ATI_MASTER_KEY: expected base64 of 32 bytes"));
    assert!(!stderr(&output).contains("planted"));
    // Tokens name no customer that has two readings.
    let mut issue = command(setup.path());
    issue.args([
        "token",
        "issue",
        "--sub",
        "x",
        "--scope",
        "*",
        "--secret",
        &"ab".repeat(32),
    ]);
    issue.args(["--customer-id", "a@b"]);
    let output = issue.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}
