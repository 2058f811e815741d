//! The store: the same questions on SQLite and on PostgreSQL.

mod admin;
mod call_log;
mod edges;
mod hostile;
mod keys;
mod shared;
mod start;
mod statements;
mod takeover;
mod tls;

use serde_json::{Value, json};

use crate::support::ati::{Proxy, Setup, tool};
use crate::support::database::Database;
use crate::support::http::{Client, Response};
use crate::support::upstream::Upstream;

const ADMIN: &str = "planted-admin-token";

/// A proxy with the database's tables made, the admin bearer, and two tools of two categories.
fn setup(database: &Database, upstream: &Upstream) -> Setup {
    Setup::new()
        .env("ATI_DB_URL", database.url())
        .env("ATI_ADMIN_TOKEN", ADMIN)
        .arg("--migrate")
        .tools(
            "market",
            &upstream.url(),
            "category = 'finance'",
            &tool("market:quote", "endpoint = '/quote'"),
        )
        .tools(
            "mail",
            &upstream.url(),
            "category = 'office'",
            &tool("mail:send", "endpoint = '/send'"),
        )
}

/// An upstream that answers every request with an empty object.
fn answering() -> Upstream {
    Upstream::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
}

/// A request of an administrator.
fn admin(proxy: &Proxy, method: &str, path: &str, body: &Value) -> Response {
    admin_at(&mut proxy.client(), method, path, body)
}

fn admin_at(client: &mut Client, method: &str, path: &str, body: &Value) -> Response {
    let bearer = format!("Bearer {ADMIN}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    client.send(method, path, &headers, body.as_bytes())
}

/// A key as its user has it, and its hash.
struct Key {
    raw: String,
    hash: String,
}

impl Key {
    /// The value of its `Authorization` header.
    fn header(&self) -> String {
        format!("Ati-Key {}", self.raw)
    }
}

fn issue(proxy: &Proxy, body: Value) -> Key {
    let response = admin(proxy, "POST", "/admin/keys/issue", &body);
    assert_eq!(response.status, 201, "{}", response.text());
    let issued = response.json();
    Key {
        raw: issued["raw_key"].as_str().unwrap().to_owned(),
        hash: issued["hash"].as_str().unwrap().to_owned(),
    }
}

/// A key for the tool `market:quote`.
fn issue_for_quotes(proxy: &Proxy, alias: &str) -> Key {
    let body = json!({"user_id": "user-1", "alias": alias, "tools": ["market:quote"]});
    issue(proxy, body)
}

fn revoke(proxy: &Proxy, key: &Key) {
    let path = format!("/admin/keys/{}", key.hash);
    assert_eq!(admin(proxy, "DELETE", &path, &Value::Null).status, 200);
}

/// The status of a call with a key.
fn call(proxy: &Proxy, key: &Key, tool: &str) -> u16 {
    proxy.call(Some(&key.header()), tool, json!({})).status
}

fn shown(proxy: &Proxy, key: &Key) -> Value {
    let path = format!("/admin/keys/{}", key.hash);
    admin(proxy, "GET", &path, &Value::Null).json()
}
