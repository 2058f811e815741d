//! Bad input and bad disks: is the error clear, and is nothing lost?

use std::process::Command;

use ati::keyring::Secret;
use ati::store::{Store, Tables};
use serde_json::{Value, json};

use super::{admin, answering, call, issue, issue_for_quotes, setup, shown};
use crate::support::ati::{Setup, stderr};
use crate::support::database::{Database, on_both_engines};
use crate::support::eventually;
use crate::support::skip::skip;
use crate::support::upstream::Upstream;

on_both_engines!(
    sql_in_every_field_is_a_value,
    longest_and_oddest_values_are_refused_with_a_reason,
);

const SQL: &str = "');delete-from-ati_keys;--$1?1%_\\\"";

fn sql_in_every_field_is_a_value(database: &mut Database) {
    let upstream = answering();
    let proxy = setup(database, &upstream).start();
    let witness = issue_for_quotes(&proxy, "witness");
    let text = "'; drop table ati_keys; -- \u{1F980} $1 ?1 %_ \\ \"";
    // No customer has an id with a backslash.
    let customer = text.replace('\\', "");
    let body = json!({
        "user_id": text, "alias": text, "tools": [SQL], "providers": [SQL],
        "categories": [SQL], "skills": [SQL], "customer_id": customer, "created_by": text,
        "metadata": {text: [text]}, "rate": {SQL: "5/hour"}
    });
    let key = issue(&proxy, body.clone());
    let row = shown(&proxy, &key);
    for field in ["user_id", "tools", "providers", "categories", "skills"] {
        assert_eq!(row[field], body[field], "{field}");
    }
    for field in ["customer_id", "created_by", "metadata", "rate"] {
        assert_eq!(row[field], body[field], "{field}");
    }
    assert_eq!(row["key_alias"], text);
    assert_eq!(call(&proxy, &key, "market:quote"), 403);
    let encoded: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
    let listed = admin(
        &proxy,
        "GET",
        &format!("/admin/keys?user_id={encoded}"),
        &Value::Null,
    );
    assert_eq!(listed.json()["sessions"].as_array().unwrap().len(), 1);
    for filter in [
        json!({"user_id": "' or '1'='1"}),
        json!({"alias_prefix": "%"}),
        json!({"hashes": ["' or '1'='1"]}),
    ] {
        let revoked = admin(&proxy, "POST", "/admin/keys/bulk-revoke", &filter);
        let answer = revoked.json();
        assert!(
            answer == json!({"revoked": 0}) || revoked.status == 400,
            "{answer}"
        );
    }
    let path = format!("/admin/keys/{}?by={encoded}", key.hash);
    assert_eq!(admin(&proxy, "DELETE", &path, &Value::Null).status, 200);
    let odd = admin(&proxy, "GET", "/admin/keys/%27%20or%201%3D1", &Value::Null);
    assert_eq!(odd.status, 404);
    assert_eq!(call(&proxy, &witness, "market:quote"), 200);
}

fn longest_and_oddest_values_are_refused_with_a_reason(database: &mut Database) {
    let upstream = answering();
    let proxy = setup(database, &upstream).start();
    let refused = |body: Value| {
        let response = admin(&proxy, "POST", "/admin/keys/issue", &body);
        assert_eq!(response.status, 400, "{}", response.text());
        response.json()["error"].as_str().unwrap().to_owned()
    };
    let long = "x".repeat(1 << 20);
    assert_eq!(
        refused(json!({"user_id": "u", "alias": long})),
        "key_alias is longer than 256 characters"
    );
    refused(json!({"user_id": "u\u{0}", "alias": "a"}));
    refused(json!({"user_id": "u", "alias": "a", "metadata": {"x": "\u{0}"}}));
    refused(json!({"user_id": "u", "alias": "a", "tools": ["market:quote *"]}));
    refused(json!({"user_id": "u", "alias": "a", "expires_in_secs": i64::MAX}));
    let huge = json!({"user_id": "u", "alias": "y".repeat(3 << 20)});
    assert_eq!(
        admin(&proxy, "POST", "/admin/keys/issue", &huge).status,
        413
    );
    let listed = admin(&proxy, "GET", "/admin/keys?user_id=u", &Value::Null).json();
    assert_eq!(listed["sessions"], json!([]));
    issue_for_quotes(&proxy, "still-works");
}

#[test]
fn file_that_is_no_database_stops_the_start_and_stays_as_it_is() {
    let database = Database::sqlite();
    let text = "this is a letter to my grandmother, and not a database\n".repeat(100);
    std::fs::write(database.file(), &text).unwrap();
    for flags in [&[][..], &["--migrate"]] {
        let setup = Setup::new().env("ATI_DB_URL", database.url());
        let output = flags.iter().fold(setup, |s, flag| s.arg(flag)).output();
        assert!(!output.status.success());
        for part in ["not a database", "ATI_DB_URL", "ati proxy --migrate"] {
            assert!(stderr(&output).contains(part), "{}", stderr(&output));
        }
    }
    assert_eq!(std::fs::read_to_string(database.file()).unwrap(), text);
}

/// A small file system in memory, which is unmounted at the end.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={size}"))
            .args(["tmpfs", folder.path().to_str().unwrap()])
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Mount(folder)),
            _ => {
                skip("no file system can be mounted");
                None
            }
        }
    }

    fn url(&self) -> String {
        format!("sqlite:{}/store.db", self.0.path().display())
    }

    fn make_read_only(&self) {
        let path = self.0.path();
        // A store that was dropped closes its files a moment later.
        eventually("the file system to be read-only", || {
            let mut command = Command::new("mount");
            let made = command.args(["-o", "remount,ro"]).arg(path).output();
            made.unwrap().status.success().then_some(())
        });
    }

    fn fill(&self) {
        let _ = std::fs::write(self.0.path().join("filler"), vec![0; 64 << 20]);
    }

    fn make_room(&self) {
        std::fs::remove_file(self.0.path().join("filler")).unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn on_mount(mount: &Mount, upstream: &Upstream) -> Setup {
    let database = Database::sqlite();
    setup(&database, upstream).env("ATI_DB_URL", mount.url())
}

#[test]
fn full_disk_refuses_new_keys_and_loses_none() {
    let Some(mount) = Mount::new("4m") else {
        return;
    };
    let upstream = answering();
    let proxy = on_mount(&mount, &upstream).start();
    let key = issue_for_quotes(&proxy, "before");
    assert_eq!(call(&proxy, &key, "market:quote"), 200);
    mount.fill();
    let mut refused = None;
    for at in 0..2000 {
        let body = json!({
            "user_id": "u", "alias": format!("a{at}"), "metadata": {"x": "y".repeat(60_000)}
        });
        let response = admin(&proxy, "POST", "/admin/keys/issue", &body);
        if response.status != 201 {
            refused = Some(response);
            break;
        }
    }
    let refused = refused.expect("the disk was never full");
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("full"), "{}", refused.text());
    assert_eq!(call(&proxy, &key, "market:quote"), 200);
    assert_eq!(shown(&proxy, &key)["key_alias"], "before");
    mount.make_room();
    super::revoke(&proxy, &key);
    assert_eq!(call(&proxy, &key, "market:quote"), 401);
    issue_for_quotes(&proxy, "after");
}

#[test]
fn read_only_file_stops_the_start_with_the_reason() {
    let Some(mount) = Mount::new("4m") else {
        return;
    };
    let url = Secret::new(mount.url().as_bytes()).unwrap();
    drop(Store::open(&url, Tables::Migrate).unwrap());
    mount.make_read_only();
    let upstream = answering();
    let output = on_mount(&mount, &upstream).output();
    assert!(!output.status.success());
    let text = stderr(&output);
    assert!(
        text.contains("can't be written") || text.contains("readonly"),
        "{text}"
    );
}
