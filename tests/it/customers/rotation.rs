//! A new master key while a proxy serves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ati::keyring::stored::{MasterKeys, Place, Sealed};
use ati::store::credentials;
use serde_json::json;

use super::{fed, has_rows, master, setup, with_database};
use crate::support::ati::{stderr, stdout, tool};
use crate::support::database::{Database, on_both_engines};
use crate::support::http::Client;
use crate::support::tokens::{bearer_of, key_pair};
use crate::support::upstream::Upstream;

on_both_engines!(
    nothing_is_unreadable_while_the_master_key_changes,
    rewrap_leaves_rows_of_unknown_keys_and_goes_on_later,
    row_that_could_not_be_read_is_used_once_it_is_rewrapped,
    rewrap_that_was_interrupted_goes_on_with_the_rest,
);

const CUSTOMERS: usize = 30;

/// Two proxies: one is told of the new key first, the other one never restarts.
fn nothing_is_unreadable_while_the_master_key_changes(database: &mut Database) {
    let api = Upstream::echo();
    let (signer, public) = key_pair();
    let bearer = "auth_type = 'bearer'\nauth_key_name = 'api'";
    let start = || {
        setup(database)
            .jwt(&public)
            .credentials(&json!({"api": "planted-key-of-all"}))
            .tools("p", &api.url(), bearer, &tool("p", ""))
            .start()
    };
    let (mut first, second) = (start(), start());
    for customer in 0..CUSTOMERS {
        let mut command = with_database(first.dir.path(), database);
        let id = format!("c{customer}");
        command.args(["credential", "set", "api", "--customer", &id]);
        let output = fed(&mut command, &format!("planted-key-of-{id}"));
        assert!(output.status.success(), "{}", stderr(&output));
    }
    has_rows(&first, CUSTOMERS);
    has_rows(&second, CUSTOMERS);
    let token = |customer: usize| bearer_of(&signer, Some(&format!("c{customer}")));
    let tokens: Vec<String> = (0..CUSTOMERS).map(token).collect();
    let (stop, served) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let edge = [first.edge, second.edge][caller % 2];
            let (stop, served, tokens) = (&stop, &served, &tokens);
            scope.spawn(move || {
                let mut turn = caller;
                while !stop.load(Ordering::Relaxed) {
                    turn += 1;
                    let token = &tokens[turn % CUSTOMERS];
                    let headers = [("authorization", token.as_str())];
                    let body = json!({"tool_name": "p", "args": {}}).to_string();
                    // A connection each: a hand-over ends those of the old process.
                    let mut client = Client::connect(edge);
                    let answer = client.send("POST", "/call", &headers, body.as_bytes());
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let enough = || {
            let from = served.load(Ordering::Relaxed);
            crate::support::eventually("more calls", || {
                (served.load(Ordering::Relaxed) > from + 20).then_some(())
            });
        };
        let stopping = Stop(&stop);
        enough();
        // Both keys on one proxy, then new wrappings, then the new key alone.
        first.set_env("ATI_MASTER_KEY", master(2));
        first.set_env("ATI_MASTER_KEY_OLD", master(1));
        let former = first.upgrade();
        enough();
        let rewrap = || {
            let mut command = with_database(first.dir.path(), database);
            command
                .env("ATI_MASTER_KEY", master(2))
                .env("ATI_MASTER_KEY_OLD", master(1));
            let output = command
                .args(["--output", "json", "admin", "rewrap"])
                .output();
            let output = output.unwrap();
            assert!(output.status.success(), "{}", stderr(&output));
            serde_json::from_str::<serde_json::Value>(&stdout(&output)).unwrap()
        };
        assert_eq!(rewrap()["rewrapped"], CUSTOMERS);
        assert_eq!(rewrap()["rewrapped"], 0);
        // Both proxies read all rows anew, the second without the key that they are under.
        super::set(&first, database, "other", None, "planted-other");
        has_rows(&first, CUSTOMERS + 1);
        has_rows(&second, CUSTOMERS + 1);
        enough();
        drop(former);
        first.set_env("ATI_MASTER_KEY_OLD", "");
        let former = first.upgrade();
        enough();
        drop(former);
        drop(stopping);
    });
    for received in api.received() {
        let key = received.header("authorization").unwrap();
        assert!(key.starts_with("Bearer planted-key-of-c"), "{key}");
    }
    // `other` was encrypted with the old key, which the first proxy doesn't have any more.
    let unreadable = first.metric("ati_stored_credentials{state=\"unreadable\"}");
    assert_eq!(unreadable, Some(1.0));
}

/// Ends the callers, however the test ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn rewrap_leaves_rows_of_unknown_keys_and_goes_on_later(database: &mut Database) {
    let proxy = setup(database).start();
    let dir = proxy.dir.path();
    for (byte, name) in [(1, "a"), (2, "b"), (3, "c")] {
        let mut command = with_database(dir, database);
        command.env("ATI_MASTER_KEY", master(byte));
        let output = fed(command.args(["credential", "set", name]), "planted-value");
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let rewrap = |more: &[(&str, String)]| {
        let mut command = with_database(dir, database);
        command.env("ATI_MASTER_KEY", master(3));
        command.envs(more.iter().map(|(name, value)| (*name, value)));
        command.args(["admin", "rewrap"]).output().unwrap()
    };
    let partly = rewrap(&[("ATI_MASTER_KEY_ONE", master(1))]);
    assert_eq!(partly.status.code(), Some(3), "{}", stderr(&partly));
    let text = stderr(&partly);
    assert!(text.contains("1 credentials can't be read"), "{text}");
    assert!(text.contains("ATI_MASTER_KEY_<ID>"), "{text}");
    let wholly = rewrap(&[("ATI_MASTER_KEY_TWO", master(2))]);
    assert!(wholly.status.success(), "{}", stderr(&wholly));
    let mut command = with_database(dir, database);
    command.env("ATI_MASTER_KEY", master(3));
    let listed = command
        .args(["--output", "json", "credential", "list"])
        .output();
    let listed: serde_json::Value = serde_json::from_str(&stdout(&listed.unwrap())).unwrap();
    let readable = |row: &serde_json::Value| row["readable"] == true;
    assert_eq!(
        listed
            .as_array()
            .unwrap()
            .iter()
            .filter(|row| readable(row))
            .count(),
        3
    );
}

fn row_that_could_not_be_read_is_used_once_it_is_rewrapped(database: &mut Database) {
    let proxy = setup(database).start();
    let mut command = with_database(proxy.dir.path(), database);
    command.env("ATI_MASTER_KEY", master(2));
    let set = fed(command.args(["credential", "set", "api"]), "planted-value");
    assert!(set.status.success(), "{}", stderr(&set));
    proxy.settles("ati_stored_credentials{state=\"unreadable\"}", 1.0);
    let mut command = with_database(proxy.dir.path(), database);
    command.env("ATI_MASTER_KEY_OTHER", master(2));
    let rewrapped = command.args(["admin", "rewrap"]).output().unwrap();
    assert!(rewrapped.status.success(), "{}", stderr(&rewrapped));
    proxy.settles("ati_stored_credentials{state=\"unreadable\"}", 0.0);
    has_rows(&proxy, 1);
}

/// More rows than fit into a batch; the first batch is all that the first run got to.
fn rewrap_that_was_interrupted_goes_on_with_the_rest(database: &mut Database) {
    const ROWS: i64 = 450;
    let keys = |variables: &[(&str, u8)]| {
        let variables = variables
            .iter()
            .map(|(name, byte)| ((*name).to_owned(), Some(master(*byte).into())));
        Arc::new(MasterKeys::from_variables(variables).unwrap())
    };
    let (old, both) = (
        keys(&[("ATI_MASTER_KEY", 1)]),
        keys(&[("ATI_MASTER_KEY", 2), ("ATI_MASTER_KEY_OLD", 1)]),
    );
    let new_id = both.active().unwrap().id().to_owned();
    let store = database.migrated();
    let id = new_id.clone();
    let first = store.wait(|db| async move {
        for row in 0..ROWS {
            // Some of one customer, some of all, some of many.
            let customer = match row % 3 {
                0 => None,
                1 => Some("acme".to_owned()),
                _ => Some(format!("customer {row}")),
            };
            let name = format!("key {row}");
            let place = Place {
                customer: customer.as_deref(),
                name: &name,
            };
            let sealed = old.seal(place, b"planted-value").unwrap();
            credentials::set(&db, "test", place, &sealed).await?;
        }
        let rewrap = |place: Place<'_>, sealed: &Sealed| {
            both.rewrap(place, sealed).map_err(|e| e.to_string())
        };
        let start = (String::new(), String::new());
        credentials::rewrap_batch(&db, "test", &id, &start, rewrap).await
    });
    let first = first.unwrap().rewrapped as i64;
    assert!(first > 0 && first < ROWS, "{first}");
    let setup = setup(database);
    let mut command = with_database(setup.path(), database);
    command
        .env("ATI_MASTER_KEY", master(2))
        .env("ATI_MASTER_KEY_OLD", master(1));
    let output = command
        .args(["--output", "json", "admin", "rewrap"])
        .output();
    let done: serde_json::Value = serde_json::from_str(&stdout(&output.unwrap())).unwrap();
    assert_eq!(done["rewrapped"], ROWS - first);
    let alone = keys(&[("ATI_MASTER_KEY", 2)]);
    let (_, rows) = store
        .wait(|db| async move { credentials::load(&db).await })
        .unwrap();
    assert_eq!(rows.len() as i64, ROWS);
    for row in &rows {
        assert_eq!(row.sealed.key_id, new_id);
        let value = alone.open(row.place(), &row.sealed).unwrap();
        assert_eq!(value.expose(), b"planted-value");
    }
}
