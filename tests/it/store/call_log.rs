//! The call log: which rows there are, what they say, and what becomes of them while the database
//! is away.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ati::auth::token::{Claims, Namespace, Signer};
use ati::store::{Row, Store, sql};
use serde_json::{Value, json};

use crate::support::ati::{Proxy, Setup, command, stdout, tells_nothing};
use crate::support::database::{Database, on_both_engines, rows};
use crate::support::eventually;
use crate::support::tokens::{bearer, claims, key_pair};
use crate::support::upstream::Upstream;

on_both_engines!(
    every_call_and_route_request_has_a_row,
    rows_survive_sigterm_and_are_found_by_the_command_line,
    hostile_values_are_stored_as_they_are_and_keep_no_row_out,
    id_that_is_sent_twice_loses_no_row,
    old_rows_and_rows_beyond_the_number_are_removed,
    rows_of_one_millisecond_are_kept_up_to_the_number,
);

const TOOLS: &str = "[[tools]]\nname = 'look'\nmethod = 'POST'\n";

fn setup(database: &Database) -> Setup {
    Setup::new()
        .env("ATI_DB_URL", database.url())
        .arg("--migrate")
}

fn all(store: &Store) -> Vec<Row> {
    rows(store, sql("select * from ati_call_log order by started_at"))
}

fn wait_for_rows(store: &Store, count: usize) -> Vec<Row> {
    eventually("the rows of the call log", || {
        Some(all(store)).filter(|rows| rows.len() >= count)
    })
}

fn text(row: &Row, column: &str) -> String {
    row.text_or_null(column).unwrap().unwrap_or_default()
}

fn token_of_a_job(signer: &Signer) -> String {
    bearer(
        signer,
        &Claims {
            job_id: Some("job-1".into()),
            sandbox_id: Some("box-2".into()),
            scope: "tool:look".into(),
            ati: Some(Namespace {
                v: 1,
                rate: Default::default(),
                customer_id: Some("acme".into()),
                delegation: None,
            }),
            ..claims()
        },
    )
}

fn every_call_and_route_request_has_a_row(database: &mut Database) {
    let api = Upstream::echo();
    let (signer, public) = key_pair();
    let proxy = setup(database)
        .jwt(&public)
        .tools("p", &api.url(), "", TOOLS)
        .route("r", &api.url(), "path_prefix = '/r'")
        .start();
    let store = database.migrated();
    let token = token_of_a_job(&signer);
    let headers = [
        ("authorization", token.as_str()),
        ("x-request-id", "mine-1"),
        ("user-agent", "tester/1"),
        ("content-type", "application/json"),
    ];
    let mut client = proxy.client();
    let mut post = |path: &str, body: Value| {
        let body = body.to_string();
        client.send("POST", path, &headers, body.as_bytes()).status
    };
    let call = json!({"tool_name": "look", "args": {"q": 1, "api_key": "planted-in-args"}});
    assert_eq!(post("/call", call), 200);
    assert_eq!(post("/call", json!({"tool_name": "absent"})), 404);
    let mcp = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "look", "arguments": {"q": 2}}});
    assert_eq!(post("/mcp", mcp), 200);
    // No call.
    assert_eq!(
        post("/mcp", json!({"jsonrpc": "2.0", "id": 2, "method": "ping"})),
        200
    );
    assert_eq!(
        proxy.client().get("/r/a/b?key=planted-in-query").status,
        200
    );
    // No caller is known.
    assert_eq!(proxy.call(None, "look", json!({})).status, 401);
    let found = wait_for_rows(&store, 4);
    assert_eq!(found.len(), 4);
    let mut shown: Vec<[String; 4]> = found
        .iter()
        .map(|row| {
            let status = row.int("status").unwrap().to_string();
            [
                text(row, "endpoint"),
                text(row, "tool_name"),
                text(row, "handler"),
                status,
            ]
        })
        .collect();
    shown.sort();
    assert_eq!(
        shown,
        [
            ["/call", "absent", "", "404"],
            ["/call", "look", "http", "200"],
            ["/mcp", "look", "http", "200"],
            ["/r/a/b", "", "passthrough", "200"],
        ]
    );
    let row = |endpoint: &str, status: i64| {
        let is =
            |row: &&Row| text(row, "endpoint") == endpoint && row.int("status").unwrap() == status;
        found.iter().find(is).unwrap()
    };
    let first = row("/call", 200);
    for (column, value) in [
        ("user_id", "agent-7"),
        ("provider", "p"),
        ("job_id", "job-1"),
        ("sandbox_id", "box-2"),
        ("customer_id", "acme"),
        ("client_request_id", "mine-1"),
        ("user_agent", "tester/1"),
        ("error_class", ""),
    ] {
        assert_eq!(text(first, column), value, "{column}");
    }
    let args = first.json("request_args").unwrap().unwrap();
    assert_eq!(args, json!({"q": 1, "api_key": "[REDACTED]"}));
    assert_eq!(
        first.ip("requester_ip").unwrap().unwrap().to_string(),
        "127.0.0.1"
    );
    assert_eq!(first.int("upstream_status").unwrap(), 200);
    assert!(first.int("response_size").unwrap() > 0 && first.int("latency_ms").unwrap() >= 0);
    assert!(first.time("ended_at").unwrap() >= first.time("started_at").unwrap());
    assert_ne!(text(row("/call", 404), "error_class"), "");
    let route = row("/r/a/b", 200).json("request_args").unwrap().unwrap();
    assert_eq!(route, json!({"method": "GET"}));
    tells_nothing("the database", &String::from_utf8_lossy(&database.dump()));
}

/// What `ati audit` prints.
fn audit(proxy_dir: &std::path::Path, database: &Database, args: &[&str]) -> Vec<Value> {
    let mut command = command(proxy_dir);
    command.env("ATI_DB_URL", database.url());
    let output = command
        .args(["--output", "json", "audit"])
        .args(args)
        .output();
    let output = output.unwrap();
    let text = stdout(&output);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text} {output:?}"))
}

fn rows_survive_sigterm_and_are_found_by_the_command_line(database: &mut Database) {
    let api = Upstream::echo();
    let mut proxy = setup(database)
        .tools("p", &api.url(), "", TOOLS)
        .route("r", &api.url(), "path_prefix = '/r'")
        .start();
    for n in 0..20 {
        assert_eq!(proxy.call(None, "look", json!({"n": n})).status, 200);
    }
    assert_eq!(proxy.call(None, "absent", json!({})).status, 404);
    assert_eq!(proxy.client().get("/r/x").status, 200);
    proxy.signal("TERM");
    assert!(proxy.wait().success());
    let dir = proxy.dir.path();
    let find = |args: &[&str]| audit(dir, database, args);
    assert_eq!(find(&["search"]).len(), 22);
    assert_eq!(find(&["tail", "-n", "5"]).len(), 5);
    assert_eq!(find(&["search", "--tool", "lo*"]).len(), 20);
    assert_eq!(find(&["search", "--tool", "l_ok"]).len(), 0);
    assert_eq!(find(&["search", "--sub", "dev"]).len(), 21);
    assert_eq!(find(&["search", "--status", "404"]).len(), 1);
    assert_eq!(find(&["search", "--status", "error"]).len(), 1);
    assert_eq!(find(&["search", "--job", "none"]).len(), 0);
    assert_eq!(
        find(&["search", "--since", "1h", "--status", "2xx"]).len(),
        21
    );
    let route = find(&["search", "--route", "r"]);
    assert_eq!(
        (&route[0]["method"], &route[0]["path"]),
        (&json!("GET"), &json!("/r/x"))
    );
    let last = &find(&["tail", "-n", "3", "--tool", "look"])[2];
    assert_eq!(
        (&last["status"], &last["agent_sub"]),
        (&json!("ok"), &json!("dev"))
    );
    assert!(last["args"]["n"].as_u64().unwrap() > 10, "{last}");
    let id = last["request_id"].as_str().unwrap();
    assert_eq!(&find(&["search", "--request-id", id])[0], last);
    // The file has the calls of tools, as ever.
    assert_eq!(find(&["search", "--file"]).len(), 20);
}

fn hostile_values_are_stored_as_they_are_and_keep_no_row_out(database: &mut Database) {
    let api = Upstream::echo();
    let proxy = setup(database).tools("p", &api.url(), "", TOOLS).start();
    let store = database.migrated();
    let sql = "'; drop table ati_call_log; --";
    let long = "x".repeat(1 << 20);
    let args = json!({"a\u{0}b": "nul \u{0}", "sql": sql, "big": 1e300, "long": long, "deep": [[{"x": sql}]]});
    let body = json!({"tool_name": "look", "args": args}).to_string();
    let headers = [
        ("x-request-id", sql),
        ("user-agent", sql),
        ("mcp-session-id", sql),
    ];
    let answer = proxy
        .client()
        .send("POST", "/call", &headers, body.as_bytes());
    assert_eq!(answer.status, 200);
    let named = json!({"tool_name": sql, "args": {}}).to_string();
    assert_eq!(
        proxy
            .client()
            .send("POST", "/call", &headers, named.as_bytes())
            .status,
        404
    );
    assert_eq!(proxy.call(None, "look", json!({})).status, 200);
    let found = wait_for_rows(&store, 3);
    let of = |status: i64, agent: &str| {
        let is =
            |row: &&Row| row.int("status").unwrap() == status && text(row, "user_agent") == agent;
        found.iter().find(is).unwrap()
    };
    let hostile = of(200, sql);
    let args = hostile.json("request_args").unwrap().unwrap();
    assert_eq!(args["sql"], sql);
    assert_eq!(args["a\u{fffd}b"], "nul \u{fffd}");
    assert_eq!(text(hostile, "session_id"), sql);
    assert!(text(of(404, sql), "error_message").contains(sql));
    assert_eq!(proxy.metric("ati_call_log_dropped_total"), Some(0.0));
    let named = audit(proxy.dir.path(), database, &["search", "--sub", sql]);
    assert!(named.is_empty());
}

fn id_that_is_sent_twice_loses_no_row(database: &mut Database) {
    let api = Upstream::echo();
    let proxy = setup(database)
        .conf("[server]\ntrusted_proxies = ['127.0.0.1']\n")
        .tools("p", &api.url(), "", TOOLS)
        .start();
    let store = database.migrated();
    let id = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    let body = json!({"tool_name": "look", "args": {}}).to_string();
    for count in 1..=3 {
        let headers = [("x-request-id", id)];
        assert_eq!(
            proxy
                .client()
                .send("POST", "/call", &headers, body.as_bytes())
                .status,
            200
        );
        // In statements of their own.
        assert_eq!(wait_for_rows(&store, count).len(), count);
    }
    let found = audit(proxy.dir.path(), database, &["search", "--request-id", id]);
    assert_eq!(found.len(), 3);
}

fn old_rows_and_rows_beyond_the_number_are_removed(database: &mut Database) {
    drop(database.migrated());
    let (old, new) = match database.is_postgres() {
        true => (
            "now() - interval '3 days'",
            "now() - n * interval '1 second'",
        ),
        false => (
            "(unixepoch() - 3 * 86400) * 1000",
            "(unixepoch() - n) * 1000",
        ),
    };
    let id = match database.is_postgres() {
        true => "gen_random_uuid()",
        false => "lower(hex(randomblob(4)) || '-0000-4000-8000-' || hex(randomblob(6)))",
    };
    for (time, count) in [(old, 2500), (new, 50)] {
        let insert = format!(
            "with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < {count})
             insert into ati_call_log (request_id, started_at, ended_at, endpoint)
             select {id}, {time}, {time}, '/call' from numbers"
        );
        database.run(&[&insert]);
    }
    let proxy = setup(database)
        .conf("[store]\ncall_log_days = 1\ncall_log_rows = 20\n")
        .start();
    let store = database.migrated();
    eventually("old rows to be removed", || {
        (all(&store).len() <= 20).then_some(())
    });
    assert!(all(&store).len() >= 19);
    assert_eq!(proxy.client().get("/health").status, 200);
}

fn rows_of_one_millisecond_are_kept_up_to_the_number(database: &mut Database) {
    drop(database.migrated());
    let time = match database.is_postgres() {
        true => "date_trunc('second', now())",
        false => "unixepoch() * 1000",
    };
    for n in 0..10 {
        let insert = format!(
            "insert into ati_call_log (request_id, started_at, ended_at, endpoint) \
             values ('00000000-0000-4000-8000-00000000000{n}', {time}, {time}, '/call')"
        );
        database.run(&[&insert]);
    }
    // All in the same millisecond, whenever they were written.
    database.run(&["update ati_call_log set ended_at = (select max(ended_at) from ati_call_log)"]);
    let _proxy = setup(database).conf("[store]\ncall_log_rows = 5\n").start();
    let store = database.migrated();
    eventually("rows to be removed", || {
        (all(&store).len() < 10).then_some(())
    });
    assert_eq!(all(&store).len(), 5);
}

/// Calls go on while PostgreSQL is away, and their rows are written when it is back.
#[test]
fn rows_of_answered_calls_outlive_a_stopped_database() {
    let mut database = Database::postgres();
    let api = Upstream::echo();
    let proxy = setup(&database).tools("p", &api.url(), "", TOOLS).start();
    let (answered, ends) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !ends.load(Ordering::SeqCst) {
                    assert_eq!(proxy.call(None, "look", json!({})).status, 200);
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let until = |count: usize| {
            eventually("calls", || {
                (answered.load(Ordering::SeqCst) >= count).then_some(())
            });
        };
        until(200);
        database.stop();
        proxy
            .log
            .wait_for("the call log can't be written, and its rows wait");
        until(answered.load(Ordering::SeqCst) + 200);
        database.start_again();
        until(answered.load(Ordering::SeqCst) + 200);
        ends.store(true, Ordering::SeqCst);
    });
    let answered = answered.load(Ordering::SeqCst);
    proxy.settles("ati_call_log_waiting_rows", 0.0);
    assert_eq!(proxy.metric("ati_call_log_dropped_total"), Some(0.0));
    proxy.settles("ati_call_log_written_total", answered as f64);
    let store = database.migrated();
    let counted = rows(
        &store,
        sql("select count(*) as n, count(distinct request_id) as d from ati_call_log"),
    );
    assert_eq!(counted[0].int("n").unwrap(), answered as i64);
    assert_eq!(counted[0].int("d").unwrap(), answered as i64);
}

/// What doesn't fit is counted: the database stays away, and the process ends.
#[test]
fn rows_that_are_lost_at_the_end_are_counted_and_logged() {
    let mut database = Database::postgres();
    let api = Upstream::echo();
    let mut proxy: Proxy = setup(&database).tools("p", &api.url(), "", TOOLS).start();
    database.stop();
    for _ in 0..3 {
        assert_eq!(proxy.call(None, "look", json!({})).status, 200);
    }
    proxy.signal("TERM");
    let started = std::time::Instant::now();
    assert!(proxy.wait().success());
    assert!(started.elapsed() < Duration::from_secs(30));
    let line = proxy.log.wait_for("rows of the call log are dropped");
    assert_eq!(line["rows"], 3);
}
