//! The demo's store: a SQLite file with one virtual key.

use std::net::SocketAddr;
use std::path::Path;

use http::HeaderName;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use zeroize::Zeroizing;

use super::{Step, broken};
use crate::auth::keys::generate_secret;
use crate::auth::virtual_keys::request::IssueRequest;
use crate::auth::virtual_keys::{RawKey, hash_of};
use crate::cli::runtime;
use crate::error::Failure;
use crate::keyring::Secret;
use crate::store::{Store, Tables, keys};

pub struct DemoStore {
    pub url: Secret,
    admin: Zeroizing<String>,
    key: RawKey,
}

impl DemoStore {
    pub fn create(dir: &Path) -> Result<Self, Failure> {
        let url = format!("sqlite:{}", dir.join("store.db").display());
        let url = Secret::new(url.as_bytes()).map_err(broken)?;
        let store = Store::open_for_command(&url, Tables::Migrate).map_err(broken)?;
        let key = RawKey::generate().ok_or_else(|| broken("no random numbers"))?;
        let wanted = IssueRequest {
            user_id: "demo-user".into(),
            alias: "demo".into(),
            tools: vec!["demo_greet".into()],
            ..IssueRequest::default()
        };
        let row = wanted.into_row(hash_of(&key)).map_err(broken)?;
        let issued = store.run(|db| async move { keys::issue(&db, &row, "demo").await });
        runtime()?.block_on(issued).map_err(broken)?;
        let admin = generate_secret().map_err(broken)?;
        Ok(DemoStore { url, admin, key })
    }

    pub fn admin_token(&self) -> Option<Secret> {
        Secret::new(self.admin.as_bytes()).ok()
    }

    /// A call with the key, its revocation, and the same call again. `signed` signs the call.
    pub fn steps(&self, edge: SocketAddr, signed: impl Fn() -> (HeaderName, String)) -> [Step; 3] {
        let call = |title, status, shows| Step {
            title,
            address: edge,
            path: "/call",
            headers: vec![
                signed(),
                (AUTHORIZATION, format!("Ati-Key {}", self.key.reveal())),
            ],
            body: Some(r#"{"tool_name":"demo_greet","args":{"name":"Bob"}}"#),
            status,
            shows,
        };
        [
            call(
                "A virtual key opens a tool as a token does",
                200,
                "/greet?name=Bob",
            ),
            Step {
                title: "The operator revokes all keys of a user",
                address: edge,
                path: "/admin/keys/bulk-revoke",
                headers: vec![
                    (AUTHORIZATION, format!("Bearer {}", self.admin.as_str())),
                    (CONTENT_TYPE, "application/json".to_owned()),
                ],
                body: Some(r#"{"user_id":"demo-user"}"#),
                status: 200,
                shows: "{\"revoked\":1}",
            },
            call("From then on the key is refused", 401, ""),
        ]
    }
}
