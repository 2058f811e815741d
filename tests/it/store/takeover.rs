//! What becomes of the tables of an existing deployment?

use ati::store::sql;
use serde_json::{Value, json};

use super::{Key, admin, answering, call, issue, issue_for_quotes, setup};
use crate::support::ati::{command, stderr, stdout};
use crate::support::database::{Database, rows};
use crate::support::eventually;

/// Tables as such a deployment has them, with a key and calls of its own.
const EXISTING: &[&str] = &[
    "create table ati_customers (id text primary key)",
    "create table ati_keys (
        token_hash text primary key, key_alias text not null, user_id text not null,
        blocked boolean not null default false, expires_at timestamptz,
        tools text[] not null default '{}', providers text[] not null default '{}',
        categories text[] not null default '{}', skills text[] not null default '{}',
        request_count bigint not null default 0, error_count bigint not null default 0,
        last_used_at timestamptz, metadata jsonb not null default '{}',
        created_at timestamptz not null default now(), created_by text,
        customer_id text references ati_customers(id), unique (user_id, key_alias))",
    "create table ati_deleted_keys (
        token_hash text primary key, snapshot jsonb not null,
        deleted_at timestamptz not null default now(), deleted_by text)",
    "create table ati_call_log (
        request_id uuid primary key default gen_random_uuid(), started_at timestamptz not null,
        ended_at timestamptz not null, latency_ms bigint not null, token_hash text, user_id text,
        session_id text, endpoint text not null, tool_name text, provider text, handler text,
        status text not null, upstream_status integer, error_class text, error_message text,
        request_args jsonb, response_size integer, requester_ip inet, user_agent text)",
    "create index idx_call_log_failures on ati_call_log(status, started_at desc)
        where status <> 'success'",
    "create table ati_audit_log (
        id bigserial primary key, happened_at timestamptz not null default now(),
        actor text not null, action text not null, target_table text not null,
        target_id text not null, before_value jsonb, after_value jsonb)",
    "insert into ati_keys (token_hash, key_alias, user_id, tools)
        values (encode(sha256('ati-key_existing'), 'hex'), 'old', 'old-user', '{market:quote}')",
    "insert into ati_call_log (started_at, ended_at, latency_ms, endpoint, tool_name, status)
        values (now(), now(), 5, '/call', 'first', 'success'),
               (now(), now(), 5, '/call', 'second', 'error'),
               (now(), now(), 5, '/call', 'third', '404')",
];

#[test]
fn existing_tables_are_taken_over_whole() {
    let (database, upstream) = (Database::postgres(), answering());
    database.run(EXISTING);
    let proxy = setup(&database, &upstream).start();
    let old = Key {
        raw: "ati-key_existing".into(),
        hash: String::new(),
    };
    assert_eq!(call(&proxy, &old, "market:quote"), 200);
    let new = issue_for_quotes(&proxy, "without metadata");
    assert_eq!(call(&proxy, &new, "market:quote"), 200);
    // A customer is no row of a table.
    let customer = json!({"user_id": "u", "alias": "c", "customer_id": "acme", "tools": ["*"]});
    assert_eq!(call(&proxy, &issue(&proxy, customer), "mail:send"), 200);
    let filter = json!({"user_id": "user-1"});
    let revoked = admin(&proxy, "POST", "/admin/keys/bulk-revoke", &filter);
    assert_eq!(revoked.json(), json!({"revoked": 1}), "{}", revoked.text());
    assert_eq!(call(&proxy, &new, "market:quote"), 401);

    let entries = eventually("the rows of the calls", || {
        let output = command(proxy.dir.path())
            .args(["--output", "json", "audit", "tail", "-n", "50"])
            .env("ATI_DB_URL", database.url())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let entries: Vec<Value> = serde_json::from_str(&stdout(&output)).unwrap();
        (entries.len() >= 6).then_some(entries)
    });
    let named = |name: &str| entries.iter().any(|entry| entry["tool"] == name);
    assert!(named("first") && named("market:quote"), "{entries:?}");
    let store = database.migrated();
    let statuses = sql("select tool_name, status, error_class from ati_call_log \
                        where tool_name in ('first', 'second', 'third') order by tool_name");
    let statuses: Vec<(Option<i64>, Option<String>)> = rows(&store, statuses)
        .iter()
        .map(|row| {
            let class = row.text_or_null("error_class").unwrap();
            (row.int_or_null("status").unwrap(), class)
        })
        .collect();
    let expected = [
        (Some(200), None),
        (None, Some("error".into())),
        (Some(404), None),
    ];
    assert_eq!(statuses, expected);
    let actions = rows(&store, sql("select action from ati_audit_log order by id"));
    let actions: Vec<String> = actions
        .iter()
        .map(|row| row.text("action").unwrap())
        .collect();
    assert_eq!(actions, ["key.issue", "key.issue", "key.bulk_revoke"]);
}
