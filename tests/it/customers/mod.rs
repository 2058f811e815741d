//! Credentials of customers: which one a call uses, who can never get it, and how they are kept in
//! the database.

mod commands;
mod database;
mod isolation;
mod order;
mod rotation;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::support::ati::{Proxy, Setup, command, stderr};
use crate::support::database::Database;
use crate::support::eventually;

/// A master key, as `openssl rand -base64 32` prints one.
fn master(byte: u8) -> String {
    STANDARD.encode([byte; 32])
}

/// A proxy with this database, and the tables in it.
fn setup(database: &Database) -> Setup {
    Setup::new()
        .arg("--migrate")
        .env("ATI_DB_URL", database.url())
        .env("ATI_MASTER_KEY", master(1))
}

/// `ati`, on a machine that has the database and the first master key.
fn with_database(dir: &Path, database: &Database) -> Command {
    let mut command = command(dir);
    command
        .env("ATI_DB_URL", database.url())
        .env("ATI_MASTER_KEY", master(1));
    command
}

/// Runs the command with this standard input.
fn fed(command: &mut Command, input: &str) -> Output {
    let command = command.stdin(Stdio::piped());
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that refuses its arguments doesn't read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn set(proxy: &Proxy, database: &Database, name: &str, customer: Option<&str>, value: &str) {
    let mut command = with_database(proxy.dir.path(), database);
    command.args(["credential", "set", name]);
    command.args(
        customer
            .iter()
            .flat_map(|customer| ["--customer", customer]),
    );
    let output = fed(&mut command, value);
    assert!(output.status.success(), "{}", stderr(&output));
}

fn remove(proxy: &Proxy, database: &Database, name: &str, customer: Option<&str>) {
    let mut command = with_database(proxy.dir.path(), database);
    command.args(["credential", "remove", name]);
    command.args(
        customer
            .iter()
            .flat_map(|customer| ["--customer", customer]),
    );
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Waits until the proxy has read this many rows.
fn has_rows(proxy: &Proxy, rows: usize) {
    eventually("the proxy to read the rows", || {
        let series = "ati_stored_credentials{state=\"readable\"}";
        (proxy.metric(series) == Some(rows as f64)).then_some(())
    });
}
