//! When does a proxy with a database start, and what does it say when it doesn't?

use ati::store::SCHEMA_VERSION;
use serde_json::Value;

use crate::support::ati::{Proxy, Setup, stderr};
use crate::support::database::{Database, on_both_engines};

on_both_engines!(
    proxy_makes_the_tables_with_migrate_and_starts_without_it_then,
    database_without_tables_stops_the_start_and_tells_the_way_out,
    newer_tables_stop_the_start_even_with_migrate,
    lost_table_stops_the_start_and_migrate_makes_it_again,
    lost_column_stops_the_start_and_migrate_adds_it_again,
    lost_column_that_rows_need_stops_every_start,
);

fn setup(database: &Database) -> Setup {
    Setup::new().env("ATI_DB_URL", database.url())
}

fn health(proxy: &Proxy) -> Value {
    proxy.client().get("/health").json()
}

/// What a proxy says that doesn't start.
fn refused(setup: Setup) -> String {
    let output = setup.output();
    assert!(!output.status.success());
    stderr(&output)
}

fn proxy_makes_the_tables_with_migrate_and_starts_without_it_then(database: &mut Database) {
    let proxy = setup(database).arg("--migrate").start();
    assert_eq!(health(&proxy)["db"], "connected");
    drop(proxy);
    assert_eq!(health(&setup(database).start())["db"], "connected");
    // Idempotent, as documented.
    setup(database).arg("--migrate").start();
}

fn database_without_tables_stops_the_start_and_tells_the_way_out(database: &mut Database) {
    let text = refused(setup(database));
    assert!(text.contains("ati proxy --migrate"), "{text}");
}

fn newer_tables_stop_the_start_even_with_migrate(database: &mut Database) {
    drop(database.migrated());
    let version = SCHEMA_VERSION + 1;
    let time = if database.is_postgres() { "now()" } else { "0" };
    let newer = format!("insert into ati_schema values ({version}, 'newer', {time})");
    database.run(&[&newer]);
    for arguments in [&[][..], &["--migrate"]] {
        let setup = arguments.iter().fold(setup(database), |s, arg| s.arg(arg));
        let text = refused(setup);
        assert!(text.contains("a newer ati made them"), "{text}");
    }
}

fn lost_table_stops_the_start_and_migrate_makes_it_again(database: &mut Database) {
    drop(database.migrated());
    database.run(&["drop table ati_deleted_keys"]);
    let text = refused(setup(database));
    assert!(
        text.contains("lacks the table 'ati_deleted_keys'"),
        "{text}"
    );
    setup(database).arg("--migrate").start();
    setup(database).start();
}

fn lost_column_stops_the_start_and_migrate_adds_it_again(database: &mut Database) {
    drop(database.migrated());
    for (table, column) in [("ati_keys", "rate"), ("ati_call_log", "user_agent")] {
        database.run(&[&format!("alter table {table} drop column {column}")]);
        let text = refused(setup(database));
        let lost = format!("lacks the column '{table}.{column}'");
        assert!(text.contains(&lost), "{text}");
        assert!(text.contains("ati proxy --migrate"), "{text}");
        setup(database).arg("--migrate").start();
        setup(database).start();
    }
}

fn lost_column_that_rows_need_stops_every_start(database: &mut Database) {
    drop(database.migrated());
    let time = if database.is_postgres() { "now()" } else { "0" };
    let key = format!(
        "insert into ati_keys (token_hash, key_alias, user_id, created_at) \
         values ('h', 'a', 'u', {time})"
    );
    database.run(&[
        &key,
        "drop index ati_keys_of_user",
        "alter table ati_keys drop column created_at",
    ]);
    let text = refused(setup(database).arg("--migrate"));
    assert!(
        text.contains("lacks the column 'ati_keys.created_at'"),
        "{text}"
    );
    assert!(text.contains("restore a backup"), "{text}");
    // Nothing was changed.
    let text = refused(setup(database).arg("--migrate"));
    assert!(
        text.contains("lacks the column 'ati_keys.created_at'"),
        "{text}"
    );
}

#[test]
fn user_who_may_not_write_stops_the_start_and_may_read_the_call_log() {
    let database = Database::postgres();
    drop(database.migrated());
    database.run(&[
        "create role nothing login",
        "create role reader login",
        "grant select on all tables in schema public to reader",
        "create role replica login",
        "grant all on all tables in schema public to replica",
        "grant all on all sequences in schema public to replica",
        "alter role replica set default_transaction_read_only = on",
        "create role numberless login",
        "grant all on all tables in schema public to numberless",
        "create role worker login",
        "grant select, insert, update, delete on all tables in schema public to worker",
        "grant usage on all sequences in schema public to worker",
        "revoke update, delete, select on ati_audit_log from worker",
    ]);
    for (user, part) in [
        ("nothing", "lacks the privilege to"),
        (
            "reader",
            "lacks the privilege to insert in the table 'ati_audit_log'",
        ),
        ("replica", "read-only"),
        ("numberless", "sequence of the table 'ati_audit_log'"),
    ] {
        let text = refused(Setup::new().env("ATI_DB_URL", database.url_of(user)));
        assert!(text.contains("can't be written to"), "{user}: {text}");
        assert!(text.contains(part), "{user}: {text}");
    }
    // One who may do no more than a proxy does; with `--migrate`, which finds nothing to do.
    let worker = Setup::new().env("ATI_DB_URL", database.url_of("worker"));
    let proxy = worker.arg("--migrate").start();
    assert_eq!(health(&proxy)["db"], "connected");
    for user in ["reader", "replica"] {
        let output = crate::support::ati::command(proxy.dir.path())
            .args(["audit", "tail"])
            .env("ATI_DB_URL", database.url_of(user))
            .output()
            .unwrap();
        assert!(output.status.success(), "{user}: {}", stderr(&output));
    }
}

#[test]
fn blank_database_url_means_no_database() {
    let proxy = Setup::new().env("ATI_DB_URL", "  ").start();
    assert_eq!(health(&proxy)["db"], "disabled");
}

#[test]
fn wrong_database_url_stops_the_start_without_telling_it() {
    for url in [
        "mysql://root:planted-password@127.0.0.1/x",
        "planted-password",
        "sqlite:",
        "sqlite:/nonexistent/folder/store.db",
        "postgres://u:planted-password@127.0.47.1:1/x",
        "postgres://u:planted-password@%2Fnonexistent/x",
        "postgres://u:planted-password@host:port/x",
    ] {
        let text = refused(Setup::new().env("ATI_DB_URL", url).arg("--migrate"));
        assert!(
            text.contains("ATI_DB_URL") || text.contains("database"),
            "{url}: {text}"
        );
        assert!(!text.contains("planted"), "{text}");
    }
}
