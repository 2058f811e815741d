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
