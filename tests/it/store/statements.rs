//! Does the store keep every kind of value, and lose nothing when something fails?

use std::net::IpAddr;

use ati::store::{Store, StoreError, Timestamp, sql};
use serde_json::json;
use uuid::Uuid;

use crate::support::database::{Database, on_both_engines, rows};

on_both_engines!(
    every_kind_of_value_comes_back_as_it_was_written,
    transaction_without_a_commit_leaves_nothing,
    second_row_with_the_same_values_is_a_conflict,
    migrating_twice_changes_nothing,
);

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(work)
}

fn every_kind_of_value_comes_back_as_it_was_written(database: &mut Database) {
    let store = database.migrated();
    let (id, now) = (Uuid::new_v4(), Timestamp::now());
    let hostile = "'; drop table ati_keys; -- \u{1F980} \\ \" $1 ?1 %_";
    let arguments = json!({"a": [1, 2.5, null, hostile]});
    let address: IpAddr = "2001:db8::1".parse().unwrap();
    let call = sql(
        "insert into ati_call_log (request_id, started_at, latency_ms, endpoint, tool_name, \
         request_args, requester_ip, job_id) values ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .uuid(id)
    .time(now)
    .int(17)
    .text("/call")
    .text(hostile)
    .json(arguments.clone())
    .ip(Some(address))
    .text_or_null(None::<String>);
    let key = sql(
        "insert into ati_keys (token_hash, key_alias, user_id, blocked, tools, created_at) \
         values ($1, $2, $3, $4, $5, $6)",
    )
    .text("hash")
    .text(hostile)
    .text("user")
    .bool(true)
    .texts(vec![hostile.into(), "a,b".into(), String::new()])
    .time(now);
    block_on(store.run(|db| async move {
        db.execute(call).await?;
        db.execute(key).await
    }))
    .unwrap();
    let calls = rows(&store, sql("select * from ati_call_log"));
    let [call] = calls.as_slice() else { panic!() };
    assert_eq!(call.uuid("request_id").unwrap(), id);
    assert_eq!(call.time("started_at").unwrap(), now);
    assert_eq!(call.time_or_null("ended_at").unwrap(), None);
    assert_eq!(call.int("latency_ms").unwrap(), 17);
    assert_eq!(call.text("tool_name").unwrap(), hostile);
    assert_eq!(call.json("request_args").unwrap(), Some(arguments));
    assert_eq!(call.ip("requester_ip").unwrap(), Some(address));
    assert_eq!(call.text_or_null("job_id").unwrap(), None);
    let keys = rows(&store, sql("select * from ati_keys"));
    let [key] = keys.as_slice() else { panic!() };
    assert!(key.bool("blocked").unwrap());
    assert_eq!(key.texts("tools").unwrap(), [hostile, "a,b", ""]);
    assert_eq!(key.texts("skills").unwrap(), [""; 0]);
    assert_eq!(key.int("request_count").unwrap(), 0);
}

fn confirmation(token: &str) -> ati::store::Statement {
    sql("insert into ati_confirmations (token_hash, binding, expires_at) values ($1, $2, $3)")
        .text(token)
        .text("b")
        .time(Timestamp::now())
}

fn confirmations(store: &Store) -> i64 {
    let count = sql("select count(*) as n from ati_confirmations");
    rows(store, count)[0].int("n").unwrap()
}

fn transaction_without_a_commit_leaves_nothing(database: &mut Database) {
    let store = database.migrated();
    block_on(store.run(|db| async move {
        let mut dropped = db.begin().await?;
        dropped.execute(confirmation("one")).await?;
        drop(dropped);
        let mut kept = db.begin().await?;
        kept.execute(confirmation("two")).await?;
        kept.execute(confirmation("three")).await?;
        kept.commit().await
    }))
    .unwrap();
    assert_eq!(confirmations(&store), 2);
}

fn second_row_with_the_same_values_is_a_conflict(database: &mut Database) {
    let store = database.migrated();
    let insert = || store.run(|db| async move { db.execute(confirmation("one")).await });
    assert_eq!(block_on(insert()), Ok(1));
    assert_eq!(block_on(insert()), Err(StoreError::Conflict));
}

fn migrating_twice_changes_nothing(database: &mut Database) {
    let store = database.migrated();
    block_on(store.run(|db| async move { db.execute(confirmation("one")).await })).unwrap();
    assert_eq!(confirmations(&database.migrated()), 1);
}
