//! More than one edge on one PostgreSQL: limits and confirmations hold across them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ati::auth::token::{Claims, Namespace};
use ati::error::ConfirmationFault;
use ati::runtime::{Binding, Confirmations};
use ati::store::sql;
use serde_json::json;

use crate::support::ati::{Proxy, Setup};
use crate::support::database::{Database, on_both_engines, rows};
use crate::support::eventually;
use crate::support::tokens::{bearer, claims, key_pair};
use crate::support::upstream::Upstream;

const TOOLS: &str = "[[tools]]\nname = 'look'\n";

struct Edges {
    proxies: Vec<Proxy>,
    token: String,
    _api: Upstream,
}

fn edges(database: &Database, count: usize, limit: &str) -> Edges {
    drop(database.migrated());
    let api = Upstream::echo();
    let (signer, public) = key_pair();
    let start = |_| {
        Setup::new()
            .env("ATI_DB_URL", database.url())
            .jwt(&public)
            .tools("p", &api.url(), "", TOOLS)
            .start()
    };
    let rate = BTreeMap::from([("tool:*".to_owned(), limit.to_owned())]);
    let token = bearer(
        &signer,
        &Claims {
            ati: Some(Namespace {
                v: 1,
                rate: rate.into_iter().collect(),
                customer_id: None,
                delegation: None,
            }),
            ..claims()
        },
    );
    Edges {
        proxies: (0..count).map(start).collect(),
        token,
        _api: api,
    }
}

/// How many of 1000 calls pass, from 50 callers that take the edges in turn.
fn passed(edges: &Edges, used: usize) -> usize {
    let passed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for caller in 0..50 {
            let (edges, passed) = (&edges, &passed);
            scope.spawn(move || {
                for call in 0..20 {
                    let proxy = &edges.proxies[(caller + call) % used];
                    match proxy.call(Some(&edges.token), "look", json!({})).status {
                        200 => passed.fetch_add(1, Ordering::SeqCst),
                        429 => 0,
                        other => panic!("{other}"),
                    };
                }
            });
        }
    });
    passed.load(Ordering::SeqCst)
}

#[test]
fn limit_of_a_token_holds_across_two_edges_in_turn() {
    let database = Database::postgres();
    let edges = edges(&database, 2, "100/minute");
    let passed = passed(&edges, 2);
    assert!((90..=100).contains(&passed), "{passed} of 100");
}

#[test]
fn limit_of_a_token_is_whole_where_one_edge_has_all_calls() {
    let database = Database::postgres();
    let edges = edges(&database, 2, "100/minute");
    let passed = passed(&edges, 1);
    assert!((90..=100).contains(&passed), "{passed} of 100");
}

#[test]
fn calls_that_an_edge_reserved_and_did_not_make_are_given_back() {
    let database = Database::postgres();
    let edges = edges(&database, 2, "40/minute");
    let call = |edge: usize| edges.proxies[edge].call(Some(&edges.token), "look", json!({}));
    assert_eq!(call(0).status, 200);
    let store = database.migrated();
    let reserved = || {
        let sum = sql("select coalesce(sum(reserved), 0)::bigint as n from ati_rate_reservations");
        rows(&store, sum)[0].int("n").unwrap()
    };
    let started = std::time::Instant::now();
    eventually("the unused call to be given back", || {
        (reserved() == 1).then_some(())
    });
    assert!(started.elapsed().as_secs() < 5);
    // So the other edge has all that is left.
    for _ in 0..39 {
        assert_eq!(call(1).status, 200);
    }
    let refused = call(1);
    assert_eq!(refused.status, 429);
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=61).contains(&wait), "{wait}");
    assert!(refused.text().contains("40"), "{}", refused.text());
}

#[test]
fn edge_counts_for_itself_while_the_database_is_away() {
    let mut database = Database::postgres();
    let edges = edges(&database, 1, "5/hour");
    let proxy = &edges.proxies[0];
    let call = || proxy.call(Some(&edges.token), "look", json!({})).status;
    assert_eq!([call(), call()], [200, 200]);
    database.stop();
    // What it has counted before counts on.
    let answers: Vec<u16> = (0..6).map(|_| call()).collect();
    assert_eq!(answers, [200, 200, 200, 429, 429, 429]);
    proxy
        .log
        .wait_for("limits are counted by this edge alone: the database is away");
    proxy.settles("ati_limits_counted_locally_total", 6.0);
    database.start_again();
    eventually("the database to count again", || {
        (call() == 200).then_some(())
    });
}

#[test]
fn call_that_wants_a_confirmation_is_unavailable_while_the_database_is_away() {
    let mut database = Database::postgres();
    drop(database.migrated());
    let api = Upstream::echo();
    let tools = "[[tools]]\nname = 'wipe'\neffects = { destructive = true }\n";
    let proxy = Setup::new()
        .env("ATI_DB_URL", database.url())
        .tools("p", &api.url(), "", tools)
        .start();
    let call = || proxy.call(None, "wipe", json!({}));
    assert_eq!(call().status, 409, "{}", call().text());
    database.stop();
    proxy.settles("ati_store_connected", 0.0);
    let start = std::time::Instant::now();
    let refused = call();
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.header("retry-after"), Some("1"));
    let why = "Unavailable: confirmations can't be kept: the database is away";
    assert_eq!(refused.json(), json!({"result": null, "error": why}));
    database.start_again();
    eventually("confirmations to be kept again", || {
        (call().status == 409).then_some(())
    });
    assert_eq!(api.received().len(), 0);
}

on_both_engines!(confirmation_of_one_edge_is_used_up_once_by_all);

fn confirmation_of_one_edge_is_used_up_once_by_all(database: &mut Database) {
    let edge = || Confirmations::in_database(Arc::new(database.migrated()));
    let edges: Vec<Confirmations> = (0..4).map(|_| edge()).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let call = |caller: u8, tool: &str, arguments: u8| Binding {
        caller: [caller; 32],
        tool: tool.to_owned(),
        arguments: [arguments; 32],
    };
    let own = call(1, "pay", 1);
    runtime.block_on(async {
        let minute = Duration::from_secs(60);
        let token = edges[0].issue(&own, minute).await.unwrap().token;
        for (other, fault) in [
            (call(2, "pay", 1), ConfirmationFault::OtherCaller),
            (call(1, "look", 1), ConfirmationFault::OtherTool),
            (call(1, "pay", 2), ConfirmationFault::ChangedArguments),
        ] {
            assert_eq!(edges[1].consume(&token, &other).await.unwrap(), Err(fault));
        }
        let consumed = edges
            .iter()
            .cycle()
            .take(16)
            .map(|edge| edge.consume(&token, &own));
        let outcomes = futures::future::join_all(consumed).await;
        let used = outcomes.iter().filter(|it| matches!(it, Ok(Ok(()))));
        assert_eq!(used.count(), 1, "{outcomes:?}");
        let expired = edges[2].issue(&own, Duration::ZERO).await.unwrap().token;
        let fault = Err(ConfirmationFault::Expired);
        assert_eq!(edges[3].consume(&expired, &own).await.unwrap(), fault);
        // The oldest of a caller make room, and no token is in the database.
        let first = edges[0].issue(&own, minute).await.unwrap().token;
        for _ in 0..64 {
            edges[1].issue(&own, minute + minute).await.unwrap();
        }
        let unknown = Err(ConfirmationFault::Unknown);
        assert_eq!(edges[2].consume(&first, &own).await.unwrap(), unknown);
        let dump = String::from_utf8_lossy(&database.dump()).into_owned();
        assert!(!dump.contains("ati-confirm_"));
    });
}
