//! Does `/admin/keys` answer as documented?

use serde_json::{Value, json};

use super::{ADMIN, admin, admin_at, answering, call, issue, issue_for_quotes, setup, shown};
use crate::support::database::{Database, on_both_engines, rows};
use crate::support::http::Client;

on_both_engines!(
    key_is_issued_shown_listed_and_revoked,
    bulk_revocation_follows_its_filters,
    hashes_are_read_in_any_case_and_ones_that_fit_nothing_are_told,
    database_has_the_hash_of_a_key_and_never_the_key,
    mistakes_get_the_documented_statuses,
    keys_of_the_admin_listener_alone,
);

fn key_is_issued_shown_listed_and_revoked(database: &mut Database) {
    let upstream = answering();
    let proxy = setup(database, &upstream).start();
    let body = json!({
        "user_id": "u", "alias": "first", "tools": ["a"], "expires_in_secs": 3600,
        "created_by": "me"
    });
    let issued = admin(&proxy, "POST", "/admin/keys/issue", &body);
    assert_eq!(issued.status, 201);
    let issued = issued.json();
    let raw = issued["raw_key"].as_str().unwrap();
    assert_eq!(raw.strip_prefix("ati-key_").unwrap().len(), 22);
    assert_eq!(issued["alias"], "first");
    assert!(issued["expires_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(issued.as_object().unwrap().len(), 4);
    let never = json!({"user_id": "u", "alias": "second"});
    let second = issue(&proxy, never.clone());

    let duplicate = admin(&proxy, "POST", "/admin/keys/issue", &never);
    assert_eq!(duplicate.status, 409, "{}", duplicate.text());

    let hash = issued["hash"].as_str().unwrap();
    let path = format!("/admin/keys/{hash}");
    let row = admin(&proxy, "GET", &path, &Value::Null).json();
    for (field, value) in [
        ("token_hash", json!(hash)),
        ("key_alias", json!("first")),
        ("user_id", json!("u")),
        ("blocked", json!(false)),
        ("tools", json!(["a"])),
        ("providers", json!([])),
        ("request_count", json!(0)),
        ("error_count", json!(0)),
        ("last_used_at", json!(null)),
        ("metadata", json!(null)),
        ("created_by", json!("me")),
    ] {
        assert_eq!(row[field], value, "{field}");
    }
    assert_eq!(shown(&proxy, &second)["expires_at"], Value::Null);

    let listed = admin(&proxy, "GET", "/admin/keys?user_id=u", &Value::Null).json();
    let aliases = listed["sessions"].as_array().unwrap().iter();
    let aliases: Vec<_> = aliases.map(|key| key["key_alias"].clone()).collect();
    assert_eq!(aliases, ["second", "first"]);

    let revoked = admin(
        &proxy,
        "DELETE",
        &format!("{path}?by=night-shift"),
        &Value::Null,
    );
    assert_eq!(
        (revoked.status, revoked.json()),
        (200, json!({"revoked": true}))
    );
    let again = admin(&proxy, "DELETE", &path, &Value::Null);
    assert_eq!(
        (again.status, again.json()),
        (404, json!({"error": "no such key"}))
    );
    let gone = admin(&proxy, "GET", &path, &Value::Null);
    assert_eq!(
        (gone.status, gone.json()),
        (404, json!({"error": "no such key"}))
    );
    // The alias is free again.
    let again = admin(&proxy, "POST", "/admin/keys/issue?by=carol", &body);
    assert_eq!(again.status, 201, "{}", again.text());

    let store = database.migrated();
    let audit = ati::store::sql("select * from ati_audit_log order by id");
    let audit: Vec<(String, String)> = rows(&store, audit)
        .iter()
        .map(|row| (row.text("action").unwrap(), row.text("actor").unwrap()))
        .collect();
    let expected = [
        ("key.issue", "me"),
        ("key.issue", "admin"),
        ("key.revoke", "night-shift"),
        ("key.issue", "carol"),
    ];
    assert_eq!(audit, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    let deleted = rows(&store, ati::store::sql("select * from ati_deleted_keys"));
    let snapshot = deleted[0].json("snapshot").unwrap().unwrap();
    assert_eq!(snapshot["key_alias"], "first");
    assert_eq!(deleted[0].text("deleted_by").unwrap(), "night-shift");
}

/// On the command line, through a proxy and without one.
fn hashes_are_read_in_any_case_and_ones_that_fit_nothing_are_told(database: &mut Database) {
    let upstream = answering();
    let proxy = setup(database, &upstream).start();
    for through_proxy in [true, false] {
        let keys = ["a", "b", "c"].map(|alias| issue_for_quotes(&proxy, alias));
        let [one, two, three] = keys.each_ref().map(|key| key.hash.to_uppercase());
        let ati = |args: &[&str]| {
            let mut command = crate::support::ati::command(proxy.dir.path());
            command.args(["admin", "keys"]).args(args);
            command.env("ATI_ADMIN_TOKEN", ADMIN);
            match through_proxy {
                true => command.env("ATI_PROXY_URL", format!("http://{}", proxy.edge)),
                false => command.env("ATI_DB_URL", database.url()),
            };
            command.output().unwrap().status.code()
        };
        assert_eq!(ati(&["show", &one]), Some(0));
        assert_eq!(ati(&["revoke", &one]), Some(0));
        assert_eq!(ati(&["revoke", &one]), Some(1));
        // Of two, one isn't there any more.
        assert_eq!(ati(&["revoke", &one, &two]), Some(1));
        assert_eq!(ati(&["revoke", "nonsense", &three]), Some(2));
        let taken = ["issue", "user-1", "c", "--tool", "market:quote"];
        assert_eq!(ati(&taken), Some(2));
        let past = ["issue", "user-1", "d", "--expires-in", "-5"];
        assert_eq!(ati(&past), Some(2));
        assert_eq!(ati(&["revoke", &three, &three.to_lowercase()]), Some(0));
        assert_eq!(
            keys.each_ref().map(|key| call(&proxy, key, "market:quote")),
            [401; 3]
        );
    }
}

fn bulk_revocation_follows_its_filters(database: &mut Database) {
    let upstream = answering();
    let proxy = setup(database, &upstream).start();
    let of = |user: &str, alias: &str| {
        let body = json!({"user_id": user, "alias": alias, "tools": ["*"]});
        issue(&proxy, body)
    };
    let (job1, job2) = (of("u", "job%_1"), of("u", "job%_2"));
    let (other, same_user) = (of("v", "job%_1"), of("u", "jobXX1"));
    let bulk = |body: Value| {
        let response = admin(&proxy, "POST", "/admin/keys/bulk-revoke?by=x", &body);
        (response.status, response.json())
    };
    let used = [&job1, &job2, &other, &same_user].map(|key| call(&proxy, key, "market:quote"));
    assert_eq!(used, [200; 4]);
    // `%` and `_` mean themselves, and filters have to fit together.
    let filter = json!({"user_id": "u", "alias_prefix": "job%_"});
    assert_eq!(bulk(filter), (200, json!({"revoked": 2})));
    let used = [&job1, &job2, &other, &same_user].map(|key| call(&proxy, key, "market:quote"));
    assert_eq!(used, [401, 401, 200, 200]);
    // Hashes may be written in capitals.
    let hashes = json!({"hashes": [other.hash.to_uppercase(), job1.hash, "nonsense"]});
    assert_eq!(bulk(hashes), (200, json!({"revoked": 1})));
    let nothing = json!({"error": "bulk_revoke requires at least one filter field"});
    for empty in [json!({}), json!({"user_id": "", "hashes": []})] {
        assert_eq!(bulk(empty), (400, nothing.clone()));
    }
    assert_eq!(call(&proxy, &same_user, "market:quote"), 200);
}

fn database_has_the_hash_of_a_key_and_never_the_key(database: &mut Database) {
    let upstream = answering();
    let proxy = setup(database, &upstream).start();
    let key = issue_for_quotes(&proxy, "a");
    assert_eq!(call(&proxy, &key, "market:quote"), 200);
    let revoked = issue_for_quotes(&proxy, "b");
    super::revoke(&proxy, &revoked);
    let dump = database.dump();
    let holds = |text: &str| memchr::memmem::find(&dump, text.as_bytes()).is_some();
    assert!(holds(&key.hash) && holds(&revoked.hash));
    for raw in [&key.raw, &revoked.raw] {
        let random = raw.strip_prefix("ati-key_").unwrap();
        assert!(!holds(random));
    }
}

fn mistakes_get_the_documented_statuses(database: &mut Database) {
    let upstream = answering();
    let proxy = setup(database, &upstream).start();
    let issue = |body: &Value| {
        let response = admin(&proxy, "POST", "/admin/keys/issue", body);
        (response.status, response.text())
    };
    let (status, text) = issue(&json!({"user_id": " ", "alias": "a"}));
    assert_eq!(
        (status, text.as_str()),
        (400, r#"{"error":"user_id is required"}"#)
    );
    let (status, text) = issue(&json!({"user_id": "u", "alias": ""}));
    assert_eq!(
        (status, text.as_str()),
        (400, r#"{"error":"key_alias is required"}"#)
    );
    assert_eq!(issue(&json!({"user_id": 7, "alias": "a"})).0, 422);
    assert_eq!(issue(&json!({"alias": "a"})).0, 422);
    let list = admin(&proxy, "GET", "/admin/keys", &Value::Null);
    assert_eq!(list.status, 400);
    assert_eq!(
        list.json(),
        json!({"error": "user_id query param required"})
    );
    let bearer = format!("Bearer {ADMIN}");
    let post = |headers: &[(&str, &str)], body: &[u8]| {
        let mut client = proxy.client();
        client
            .send("POST", "/admin/keys/issue", headers, body)
            .status
    };
    let json = ("content-type", "application/json");
    let admin = ("authorization", bearer.as_str());
    assert_eq!(post(&[admin, json], b"{"), 400);
    assert_eq!(post(&[admin], b"{}"), 415);
    assert_eq!(post(&[json], b"{}"), 401);
    assert_eq!(post(&[("authorization", "Bearer wrong"), json], b"{}"), 401);
    let put = proxy
        .client()
        .send("PUT", "/admin/keys/issue", &[admin], b"");
    assert_eq!((put.status, put.header("allow")), (405, Some("POST")));
}

fn keys_of_the_admin_listener_alone(database: &mut Database) {
    let upstream = answering();
    let proxy = setup(database, &upstream)
        .conf("[admin]\nkeys_on_edge = false\n")
        .start();
    assert_eq!(
        admin(&proxy, "GET", "/admin/keys?user_id=u", &Value::Null).status,
        404
    );
    let mut listener = Client::connect(proxy.admin);
    let body = json!({"user_id": "u", "alias": "a", "tools": ["market:quote"]});
    let issued = admin_at(&mut listener, "POST", "/admin/keys/issue", &body);
    assert_eq!(issued.status, 201, "{}", issued.text());
    let key = super::Key {
        raw: issued.json()["raw_key"].as_str().unwrap().to_owned(),
        hash: issued.json()["hash"].as_str().unwrap().to_owned(),
    };
    assert_eq!(call(&proxy, &key, "market:quote"), 200);
    let path = format!("/admin/keys/{}", key.hash);
    assert_eq!(
        admin_at(&mut listener, "DELETE", &path, &Value::Null).status,
        200
    );
    assert_eq!(call(&proxy, &key, "market:quote"), 401);
    let unknown = listener.send("GET", &path, &[("authorization", "Bearer no")], b"");
    assert_eq!(unknown.status, 401);
    assert_eq!(listener.get("/healthz").status, 200);
}
