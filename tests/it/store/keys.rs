//! What does a virtual key open, and for how long?

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{Key, admin, answering, call, issue, issue_for_quotes, revoke, setup, shown};
use crate::support::ati::{stdout, tool};
use crate::support::database::{Database, on_both_engines};
use crate::support::eventually;
use crate::support::tokens;
use crate::support::upstream::Upstream;

on_both_engines!(
    key_opens_what_its_row_names_and_nothing_else,
    revoked_blocked_and_expired_keys_are_refused,
    key_goes_before_a_token,
    uses_of_a_key_are_counted,
    rate_of_a_key_limits_its_calls,
    route_that_asks_for_a_token_takes_a_key,
    key_revoked_by_another_process_is_refused_within_a_second,
    row_that_cannot_be_read_stops_no_other_key_and_can_be_revoked,
);

fn key_opens_what_its_row_names_and_nothing_else(database: &mut Database) {
    let upstream = answering();
    let proxy = setup(database, &upstream).start();
    let cases = [
        (json!({"tools": ["market:quote"]}), 200, 403),
        (json!({"providers": ["mail"]}), 403, 200),
        (json!({"categories": ["finance"]}), 200, 403),
        (json!({"categories": ["finance", "office"]}), 200, 200),
        (json!({"skills": ["market:quote"]}), 403, 403),
        (json!({"tools": ["*"]}), 200, 200),
        (json!({}), 403, 403),
    ];
    for (at, (scopes, quote, send)) in cases.into_iter().enumerate() {
        let mut body = json!({"user_id": "u", "alias": format!("a{at}")});
        let scopes_of = scopes.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(scopes_of);
        let key = issue(&proxy, body);
        assert_eq!(call(&proxy, &key, "market:quote"), quote, "{scopes}");
        assert_eq!(call(&proxy, &key, "mail:send"), send, "{scopes}");
        let header = key.header();
        let tools = proxy
            .client()
            .send("GET", "/tools", &[("authorization", &header)], b"")
            .json();
        let listed = |name: &str| tools.as_array().unwrap().iter().any(|t| t["name"] == name);
        assert_eq!(listed("market:quote"), quote == 200, "{scopes}");
        assert_eq!(listed("mail:send"), send == 200, "{scopes}");
    }
}

fn revoked_blocked_and_expired_keys_are_refused(database: &mut Database) {
    let upstream = answering();
    let proxy = setup(database, &upstream).start();
    let key = issue_for_quotes(&proxy, "revoked");
    assert_eq!(call(&proxy, &key, "market:quote"), 200);
    revoke(&proxy, &key);
    let header = key.header();
    let refused = proxy.call(Some(&header), "market:quote", json!({}));
    assert_eq!((refused.status, refused.text().as_str()), (401, ""));
    let why = refused.header("www-authenticate").unwrap().to_owned();
    assert!(why.starts_with("Ati-Key realm=\"ati\""), "{why}");

    // No call before, so that nothing is known about it.
    let blocked = issue_for_quotes(&proxy, "blocked");
    let word = if database.is_postgres() { "true" } else { "1" };
    database.run(&[&format!("update ati_keys set blocked = {word}")]);
    assert_eq!(call(&proxy, &blocked, "market:quote"), 401);

    let body = json!({"user_id": "u", "alias": "short", "tools": ["*"], "expires_in_secs": 1});
    let short = issue(&proxy, body);
    assert_eq!(call(&proxy, &short, "market:quote"), 200);
    eventually("the key to expire", || {
        (call(&proxy, &short, "market:quote") == 401).then_some(())
    });

    let unknown = Key {
        raw: "ati-key_AAAAAAAAAAAAAAAAAAAAAA".into(),
        hash: String::new(),
    };
    assert_eq!(call(&proxy, &unknown, "market:quote"), 401);
    assert_eq!(
        proxy
            .call(Some("Ati-Key "), "market:quote", json!({}))
            .status,
        401
    );
}

fn key_goes_before_a_token(database: &mut Database) {
    let upstream = answering();
    let (signer, public) = tokens::key_pair();
    let proxy = setup(database, &upstream).jwt(&public).start();
    let key = issue_for_quotes(&proxy, "a");
    assert_eq!(call(&proxy, &key, "market:quote"), 200);
    assert_eq!(proxy.call(None, "market:quote", json!({})).status, 401);
    let token = tokens::bearer(&signer, &tokens::claims());
    let bad = ("authorization", "Ati-Key ati-key_wrong");
    // Two headers: the key is tried, and the token doesn't help it.
    let both = [bad, ("authorization", token.as_str())];
    let tools = |headers: &[(&str, &str)]| proxy.client().send("GET", "/tools", headers, b"");
    assert_eq!(tools(&both).status, 401);
    // A good one is what the call is made with, wherever it stands. A second key, or something
    // else next to it, makes it unclear who calls.
    let header = key.header();
    let (good, token_too) = (
        ("authorization", header.as_str()),
        ("authorization", token.as_str()),
    );
    let basic = ("authorization", "Basic eDp5");
    for (headers, status) in [
        (&[good, token_too][..], 200),
        (&[token_too, good], 200),
        (&[good, good], 401),
        (&[good, basic], 401),
        (&[token_too, token_too], 401),
    ] {
        let listed = tools(headers);
        assert_eq!(listed.status, status, "{}", listed.text());
        // The token opens everything, the key one tool.
        if status == 200 {
            assert_eq!(listed.json().as_array().unwrap().len(), 1);
        }
    }
    assert_eq!(tools(&[("authorization", token.as_str())]).status, 200);
    let line = proxy.wait_for_audit(1);
    assert_eq!(line[0]["agent_sub"], "user-1");
}

fn uses_of_a_key_are_counted(database: &mut Database) {
    let upstream = answering();
    let proxy = setup(database, &upstream).start();
    let key = issue_for_quotes(&proxy, "a");
    for _ in 0..5 {
        assert_eq!(call(&proxy, &key, "market:quote"), 200);
    }
    assert_eq!(call(&proxy, &key, "mail:send"), 403);
    let row = eventually("the counters to be written", || {
        Some(shown(&proxy, &key)).filter(|row| row["request_count"] == 6)
    });
    assert_eq!(row["error_count"], 1);
    assert!(row["last_used_at"].is_string(), "{row}");
    // What isn't written yet is written at the end.
    assert_eq!(call(&proxy, &key, "market:quote"), 200);
    proxy.signal("TERM");
    let mut proxy = proxy;
    assert!(proxy.wait().success());
    let store = database.migrated();
    let rows = crate::support::database::rows(&store, ati::store::sql("select * from ati_keys"));
    assert_eq!(rows[0].int("request_count").unwrap(), 7);
}

fn rate_of_a_key_limits_its_calls(database: &mut Database) {
    let upstream = answering();
    let proxy = setup(database, &upstream).start();
    let limited = json!({
        "user_id": "u", "alias": "a", "tools": ["*"], "rate": {"tool:market:*": "2/day"},
        "customer_id": "acme", "metadata": {"job": [1, null]}, "created_by": "orchestrator"
    });
    let key = issue(&proxy, limited);
    let statuses = [0; 3].map(|_| call(&proxy, &key, "market:quote"));
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(call(&proxy, &key, "mail:send"), 200);
    let row = shown(&proxy, &key);
    assert_eq!(row["rate"], json!({"tool:market:*": "2/day"}));
    assert_eq!(row["customer_id"], "acme");
    assert_eq!(row["metadata"], json!({"job": [1, null]}));
    assert_eq!(row["created_by"], "orchestrator");
}

fn route_that_asks_for_a_token_takes_a_key(database: &mut Database) {
    let upstream = Upstream::echo();
    let proxy = setup(database, &upstream)
        .route(
            "svc",
            &upstream.url(),
            "path_prefix = '/svc'\nrequire_token = true",
        )
        .route("open", &upstream.url(), "path_prefix = '/open'")
        .start();
    let key = issue_for_quotes(&proxy, "a");
    let header = key.header();
    let get = |path: &str, headers: &[(&str, &str)]| proxy.client().send("GET", path, headers, b"");
    let with_key = [("authorization", header.as_str())];
    assert_eq!(get("/svc/x", &with_key).status, 200);
    // ati's own key isn't for the upstream.
    assert_eq!(upstream.last().header("authorization"), None);
    // The long way asks for it, too.
    let upgrade = [with_key[0], ("te", "trailers")];
    assert_eq!(get("/svc/x", &upgrade).status, 200);
    for headers in [
        &[][..],
        &[("te", "trailers")],
        &[("authorization", "Bearer x")],
    ] {
        assert_eq!(get("/svc/x", headers).status, 401, "{headers:?}");
    }
    assert_eq!(get("/open/x", &[]).status, 200);
    revoke(&proxy, &key);
    assert_eq!(get("/svc/x", &with_key).status, 401);
}

/// Another process: `ati admin keys` on the database itself.
fn key_revoked_by_another_process_is_refused_within_a_second(database: &mut Database) {
    let upstream = answering();
    let proxy = setup(database, &upstream).start();
    let key = issue_for_quotes(&proxy, "a");
    assert_eq!(call(&proxy, &key, "market:quote"), 200);
    // Revoking what isn't there ends a transaction without a commit, and with it a connection.
    let is_done = AtomicBool::new(false);
    let revoked = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let path = format!("/admin/keys/{}", "0".repeat(64));
                assert_eq!(admin(&proxy, "DELETE", &path, &Value::Null).status, 404);
            }
        });
        let revoked = crate::support::ati::command(proxy.dir.path())
            .args(["admin", "keys", "revoke", &key.hash])
            .env("ATI_DB_URL", database.url())
            .output()
            .unwrap();
        is_done.store(true, Ordering::Relaxed);
        revoked
    });
    let start = std::time::Instant::now();
    assert!(revoked.status.success(), "{revoked:?}");
    assert!(stdout(&revoked).contains("revoked"));
    eventually("the key to be refused", || {
        (call(&proxy, &key, "market:quote") == 401).then_some(())
    });
    assert!(start.elapsed() < std::time::Duration::from_secs(1));
}

fn row_that_cannot_be_read_stops_no_other_key_and_can_be_revoked(database: &mut Database) {
    let upstream = answering();
    let proxy = setup(database, &upstream).start();
    let [bad, good, kept] = ["x-bad", "x-good", "y"].map(|alias| issue_for_quotes(&proxy, alias));
    database.run(&[match database.is_postgres() {
        false => "update ati_keys set tools = 'oops' where key_alias = 'x-bad'",
        true => "update ati_keys set expires_at = 'infinity' where key_alias = 'x-bad'",
    }]);
    assert_eq!(call(&proxy, &bad, "market:quote"), 503);
    assert_eq!(call(&proxy, &good, "market:quote"), 200);
    let prefix = json!({"alias_prefix": "x-"});
    let revoked = admin(&proxy, "POST", "/admin/keys/bulk-revoke", &prefix);
    assert_eq!(revoked.json(), json!({"revoked": 2}), "{}", revoked.text());
    assert_eq!(call(&proxy, &bad, "market:quote"), 401);
    assert_eq!(call(&proxy, &good, "market:quote"), 401);
    assert_eq!(call(&proxy, &kept, "market:quote"), 200);
}

#[test]
fn category_of_a_token_opens_its_tools() {
    let upstream = answering();
    let (signer, public) = tokens::key_pair();
    let proxy = crate::support::ati::Setup::new()
        .jwt(&public)
        .tools(
            "market",
            &upstream.url(),
            "category = 'finance'",
            &tool("market:quote", "endpoint = '/quote'"),
        )
        .start();
    for (scope, status) in [
        ("category:finance", 200),
        ("category:fin*", 200),
        ("category:office", 403),
        ("category:", 403),
        ("category:finance:x", 403),
    ] {
        let mut claims = tokens::claims();
        claims.scope = scope.into();
        let token = tokens::bearer(&signer, &claims);
        let called = proxy.call(Some(&token), "market:quote", json!({}));
        assert_eq!(called.status, status, "{scope}");
    }
}

/// `ati run` takes a key where a token would be.
#[test]
fn session_token_that_is_a_key_is_sent_as_one() {
    let database = Database::sqlite();
    let upstream = answering();
    let (_, public) = tokens::key_pair();
    let proxy = setup(&database, &upstream).jwt(&public).start();
    let key = issue_for_quotes(&proxy, "a");
    let run = |token: &str| {
        crate::support::ati::command(proxy.dir.path())
            .args(["run", "market:quote"])
            .env("ATI_PROXY_URL", format!("http://{}", proxy.edge))
            .env("ATI_SESSION_TOKEN", token)
            .output()
            .unwrap()
    };
    let output = run(&key.raw);
    assert!(output.status.success(), "{output:?}");
    assert!(stdout(&output).contains("{}"));
    assert_eq!(run("ati-key_wrong").status.code(), Some(3));
    let status = |token: &str, format: &str, with_proxy: bool| {
        let mut command = crate::support::ati::command(proxy.dir.path());
        command.args(["--output", format, "auth", "status"]);
        command.env("ATI_SESSION_TOKEN", token);
        if with_proxy {
            command.env("ATI_PROXY_URL", format!("http://{}", proxy.edge));
        }
        command.output().unwrap()
    };
    let known = status(&key.raw, "text", true);
    assert!(stdout(&known).contains("is a virtual key, and the proxy accepts it"));
    let known: serde_json::Value =
        serde_json::from_str(&stdout(&status(&key.raw, "json", true))).unwrap();
    assert_eq!(
        (&known["kind"], &known["accepted"]),
        (&json!("virtual_key"), &json!(true))
    );
    assert_eq!(known["signature_verified"], false);
    let wrong = status("ati-key_wrong", "text", true);
    assert!(stdout(&wrong).contains("the proxy refuses it"), "{wrong:?}");
    assert_eq!(wrong.status.code(), Some(3));
    let alone = status(&key.raw, "text", false);
    assert!(
        crate::support::ati::stderr(&alone).contains("only a proxy can check"),
        "{alone:?}"
    );
    assert_eq!(
        admin(&proxy, "GET", "/admin/keys?user_id=user-1", &json!(null)).status,
        200
    );
}
