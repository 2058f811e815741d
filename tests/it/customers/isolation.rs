//! Many customers at once: no request carries another's credential.

use std::io::{BufRead as _, BufReader, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use super::{fed, has_rows, setup, with_database};
use crate::support::ati::{Setup, stderr, tool};
use crate::support::database::Database;
use crate::support::http::Client;
use crate::support::tokens::{bearer_of, key_pair};
use crate::support::upstream::Upstream;

const CUSTOMERS: usize = 50;
const CALLERS: usize = 20;

#[test]
fn no_request_carries_the_key_of_another_customer() {
    run(&Database::sqlite(), 2_000);
}

#[test]
#[ignore = "heavy"]
fn no_request_of_a_hundred_thousand_carries_the_key_of_another_customer() {
    run(&Database::sqlite(), 100_000);
}

#[test]
#[ignore = "heavy"]
fn no_request_of_a_hundred_thousand_carries_the_key_of_another_customer_on_postgres() {
    run(&Database::postgres(), 100_000);
}

/// What the upstream saw.
#[derive(Default)]
struct Seen {
    right: AtomicU64,
    wrong: AtomicU64,
}

/// Compares the customer in the target with the key in `Authorization`.
fn comparing(seen: Arc<Seen>) -> Upstream {
    Upstream::raw(move |stream| {
        let mut reader = BufReader::new(stream);
        loop {
            let (mut target, mut key) = (String::new(), String::new());
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
                let line = line.trim_end();
                if line.is_empty() {
                    break;
                }
                if target.is_empty() {
                    target = line.split(' ').nth(1).unwrap_or_default().to_owned();
                } else if let Some(value) = line.to_ascii_lowercase().strip_prefix("authorization:")
                {
                    key = value.trim().to_owned();
                }
            }
            let customer = target.rsplit(['=', '/']).next().unwrap_or_default();
            let is_right = key == format!("bearer planted-key-of-{customer}");
            let counter = if is_right { &seen.right } else { &seen.wrong };
            counter.fetch_add(1, Ordering::Relaxed);
            let answer =
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
            if reader.get_mut().write_all(answer).is_err() {
                return;
            }
        }
    })
}

/// Odd customers have rows in the database, even ones entries in the keyring. Callers use a tool
/// and a route in turn. Meanwhile rows change, so that snapshots are swapped under load.
fn run(database: &Database, requests: usize) {
    let seen = Arc::new(Seen::default());
    let api = comparing(seen.clone());
    let (signer, public) = key_pair();
    let name = |customer: usize| format!("customer-{customer}");
    let even = (0..CUSTOMERS).step_by(2).map(|customer| {
        let id = name(customer);
        (format!("api@{id}"), json!(format!("planted-key-of-{id}")))
    });
    let mut keyring: serde_json::Map<_, _> = even.collect();
    keyring.insert("api".to_owned(), json!("planted-key-of-all"));
    let bearer = "auth_type = 'bearer'\nauth_key_name = 'api'";
    let params = "\n[tools.input_schema]\ntype = 'object'\n\
                  [tools.input_schema.properties.who]\ntype = 'string'\n";
    let setup: Setup = setup(database)
        .jwt(&public)
        .credentials(&json!(keyring))
        .tools("p", &api.url(), bearer, &tool("p", params))
        .route(
            "r",
            &api.url(),
            &format!("path_prefix = '/r'\nrequire_token = true\n{bearer}"),
        );
    let proxy = setup.start();
    for customer in (1..CUSTOMERS).step_by(2) {
        let id = name(customer);
        let mut command = with_database(proxy.dir.path(), database);
        command.args(["credential", "set", "api", "--customer", &id]);
        let output = fed(&mut command, &format!("planted-key-of-{id}"));
        assert!(output.status.success(), "{}", stderr(&output));
    }
    has_rows(&proxy, CUSTOMERS / 2);
    let each = requests / (CUSTOMERS * CALLERS);
    let (edge, signer) = (proxy.edge, &signer);
    let running = AtomicU64::new((CUSTOMERS * CALLERS) as u64);
    std::thread::scope(|scope| {
        for caller in 0..CUSTOMERS * CALLERS {
            let running = &running;
            let work = move || {
                let id = name(caller % CUSTOMERS);
                let token = bearer_of(signer, Some(&id));
                let headers = [("authorization", token.as_str())];
                let body = json!({"tool_name": "p", "args": {"who": id}}).to_string();
                let mut client = Client::connect(edge);
                for turn in 0..each {
                    let answer = match (turn + caller) % 2 {
                        0 => client.send("POST", "/call", &headers, body.as_bytes()),
                        _ => client.send("GET", &format!("/r/{id}"), &headers, b""),
                    };
                    assert_eq!(answer.status, 200, "{}", answer.text());
                }
                running.fetch_sub(1, Ordering::Relaxed);
            };
            let thread = std::thread::Builder::new().stack_size(256 << 10);
            thread.spawn_scoped(scope, work).unwrap();
        }
        // Rows that no caller uses.
        while running.load(Ordering::Relaxed) > 0 {
            super::set(
                &proxy,
                database,
                "other",
                Some("bystander"),
                "planted-other",
            );
        }
    });
    assert_eq!(seen.wrong.load(Ordering::Relaxed), 0);
    assert_eq!(
        seen.right.load(Ordering::Relaxed),
        (each * CUSTOMERS * CALLERS) as u64
    );
}
