//! Two proxies on one PostgreSQL, and a PostgreSQL that goes away and comes back.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Key, answering, call, issue_for_quotes, revoke, setup};
use crate::support::ati::Proxy;
use crate::support::database::Database;
use crate::support::eventually;

#[test]
fn key_revoked_at_one_edge_is_refused_at_the_other_within_a_second() {
    let (database, upstream) = (Database::postgres(), answering());
    let one = setup(&database, &upstream).start();
    let other = setup(&database, &upstream).start();
    for round in 0..5 {
        let key = issue_for_quotes(&one, &format!("round-{round}"));
        assert_eq!(call(&one, &key, "market:quote"), 200);
        assert_eq!(call(&other, &key, "market:quote"), 200);
        let start = Instant::now();
        revoke(&one, &key);
        assert_eq!(call(&one, &key, "market:quote"), 401);
        eventually("the other edge to refuse it", || {
            (call(&other, &key, "market:quote") == 401).then_some(())
        });
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );
    }
}

#[test]
fn key_revoked_while_an_edge_does_not_listen_is_refused_when_it_does() {
    let (database, upstream) = (Database::postgres(), answering());
    let one = setup(&database, &upstream).start();
    let other = setup(&database, &upstream).start();
    for round in 0..3 {
        let key = issue_for_quotes(&one, &format!("round-{round}"));
        assert_eq!(call(&other, &key, "market:quote"), 200);
        // Ends every connection, the listeners' included.
        database.run(&["select pg_terminate_backend(pid) from pg_stat_activity \
                        where application_name = 'ati'"]);
        eventually("the revocation", || {
            let path = format!("/admin/keys/{}", key.hash);
            let revoked = super::admin(&one, "DELETE", &path, &json!(null)).status;
            (revoked == 200 || revoked == 404).then_some(())
        });
        let start = Instant::now();
        eventually("the other edge to refuse it", || {
            (call(&other, &key, "market:quote") == 401).then_some(())
        });
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );
    }
}

/// Calls with cached keys until it is told to stop; how many succeeded, and how many did not.
fn load(proxy: &Proxy, key: &Key, stop: &AtomicBool) -> (usize, usize) {
    let (good, bad) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    match call(proxy, key, "market:quote") {
                        200 => good.fetch_add(1, Ordering::Relaxed),
                        _ => bad.fetch_add(1, Ordering::Relaxed),
                    };
                }
            });
        }
    });
    (good.into_inner(), bad.into_inner())
}

#[test]
fn cached_keys_go_on_while_the_database_is_away_and_it_recovers_by_itself() {
    let (mut database, upstream) = (Database::postgres(), answering());
    let proxy = setup(&database, &upstream).start();
    let (cached, unseen) = (
        issue_for_quotes(&proxy, "cached"),
        issue_for_quotes(&proxy, "unseen"),
    );
    assert_eq!(call(&proxy, &cached, "market:quote"), 200);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let under_load = scope.spawn(|| load(&proxy, &cached, &stop));
        for round in ["A", "B"] {
            database.stop();
            let start = Instant::now();
            let refused = proxy.call(Some(&unseen.header()), "market:quote", json!({}));
            assert_eq!((refused.status, refused.text().as_str()), (503, ""));
            assert!(
                start.elapsed() < Duration::from_secs(3),
                "{:?}",
                start.elapsed()
            );
            // From then on at once: no request waits for a database that is known to be away.
            let start = Instant::now();
            assert_eq!(call(&proxy, &unseen, "market:quote"), 503);
            assert!(
                start.elapsed() < Duration::from_secs(1),
                "{:?}",
                start.elapsed()
            );
            let body = json!({"user_id": "u", "alias": "new"});
            let issued = super::admin(&proxy, "POST", "/admin/keys/issue", &body);
            assert_eq!(issued.status, 503, "{}", issued.text());
            assert_eq!(issued.header("retry-after"), Some("1"));
            // Administration doesn't wait for it, either.
            assert!(
                start.elapsed() < Duration::from_secs(1),
                "{:?}",
                start.elapsed()
            );
            database.start_again();
            let back = eventually("keys to be looked up again", || {
                // Another one each time: that it is unknown is kept for a while.
                let wrong = Key {
                    raw: format!("ati-key_{}", round.repeat(22)),
                    hash: String::new(),
                };
                (call(&proxy, &wrong, "market:quote") == 401).then(Instant::now)
            });
            assert!(back.elapsed() < Duration::from_secs(10));
        }
        stop.store(true, Ordering::Release);
        let (good, bad) = under_load.join().unwrap();
        assert_eq!(bad, 0, "of {good}");
        assert!(good > 100);
        // Revocations are noticed again, and what was counted meanwhile is written.
        assert_eq!(call(&proxy, &unseen, "market:quote"), 200);
        eventually("the counters", || {
            let count = super::shown(&proxy, &cached)["request_count"].as_u64()?;
            (count == good as u64 + 1).then_some(())
        });
        revoke(&proxy, &cached);
        assert_eq!(call(&proxy, &cached, "market:quote"), 401);
    });
}

/// However long ago the key was looked up: it was in use all the time.
#[test]
fn key_in_use_goes_on_for_the_stale_time_after_the_database_went_away() {
    let (mut database, upstream) = (Database::postgres(), answering());
    let proxy = setup(&database, &upstream)
        .conf("[store]\nstale_seconds = 2\n")
        .start();
    let key = issue_for_quotes(&proxy, "a");
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        assert_eq!(call(&proxy, &key, "market:quote"), 200);
    }
    proxy.settles("ati_store_connected", 1.0);
    database.stop();
    let stopped = Instant::now();
    while stopped.elapsed() < Duration::from_millis(1500) {
        assert_eq!(call(&proxy, &key, "market:quote"), 200);
    }
    proxy.settles("ati_store_connected", 0.0);
    eventually("the key to end", || {
        (call(&proxy, &key, "market:quote") == 503).then_some(())
    });
    assert!(stopped.elapsed() >= Duration::from_secs(2));
    database.start_again();
    eventually("the key to be looked up again", || {
        (call(&proxy, &key, "market:quote") == 200).then_some(())
    });
    proxy.settles("ati_store_connected", 1.0);
}

/// A database that is there and answers wrongly isn't away.
#[test]
fn lookup_that_fails_for_another_reason_is_logged_as_that() {
    let (database, upstream) = (Database::postgres(), answering());
    let proxy = setup(&database, &upstream).start();
    let key = issue_for_quotes(&proxy, "a");
    database.run(&["alter table ati_keys drop column rate"]);
    assert_eq!(call(&proxy, &key, "market:quote"), 503);
    proxy.log.wait_for("virtual keys can't be looked up");
    proxy.settles("ati_store_connected", 1.0);
    assert!(!proxy.log.text().contains("the database is away"));
    database.run(&["alter table ati_keys add column rate jsonb"]);
    eventually("the key to be found", || {
        (call(&proxy, &key, "market:quote") == 200).then_some(())
    });
}

#[test]
fn cached_key_ends_when_the_database_is_away_for_too_long() {
    let (mut database, upstream) = (Database::postgres(), answering());
    let proxy = setup(&database, &upstream)
        .conf("[store]\nstale_seconds = 1\n")
        .start();
    let key = issue_for_quotes(&proxy, "a");
    assert_eq!(call(&proxy, &key, "market:quote"), 200);
    database.stop();
    eventually("the key to end", || {
        (call(&proxy, &key, "market:quote") == 503).then_some(())
    });
}
