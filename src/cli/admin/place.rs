//! Where keys are administered: a running proxy, or the database itself.

use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::auth::virtual_keys::request::{IssueRequest, RevokeRequest};
use crate::auth::virtual_keys::{RawKey, hash_of};
use crate::cli::remote::Remote;
use crate::cli::runtime;
use crate::config::Environment;
use crate::error::{Code, Failure, SAME_ALIAS};
use crate::store::{Db, Store, StoreError, Tables, keys};

const NO_SUCH_KEY: &str = "no such key";
const LIST_HINT: &str = "'ati admin keys list USER' shows the hashes of a user's keys";

pub enum Place {
    Proxy(Box<Remote>),
    Database(Store),
}

/// A key that was just issued. The raw key is told once.
pub struct Issued {
    pub raw: String,
    pub hash: String,
    pub alias: String,
    pub expires_at: Option<String>,
}

impl Place {
    /// The proxy, unless only the database is named, or `direct` asks for it.
    pub fn find(direct: bool) -> Result<Self, Failure> {
        let env = Environment::read();
        if !direct && let Some(remote) = Remote::from_environment()? {
            let Some(token) = &env.admin_token else {
                return Err(Failure::new(
                    Code::MissingKey,
                    "ATI_ADMIN_TOKEN isn't set: the proxy asks for it",
                ));
            };
            let token = String::from_utf8_lossy(token.expose()).trim().to_owned();
            return Ok(Place::Proxy(Box::new(remote.with_token(token))));
        }
        let Some(database) = &env.database_url else {
            let failure = Failure::new(Code::MissingArg, "there is no place where keys are kept");
            return Err(failure.hint(
                "set ATI_PROXY_URL and ATI_ADMIN_TOKEN, for a running proxy, or ATI_DB_URL, for \
                 the database",
            ));
        };
        Store::open_for_command(database, Tables::Check)
            .map(Place::Database)
            .map_err(|e| failed(&e))
    }

    pub fn issue(&self, wanted: IssueRequest, by: &str) -> Result<Issued, Failure> {
        match self {
            Place::Proxy(remote) => {
                let body = serde_json::to_value(&wanted).map_err(not_json)?;
                let query = [("by", by)];
                let answer = ask(remote, Method::POST, "admin/keys/issue", &query, Some(body))?;
                let text = |name: &str| answer[name].as_str().map(str::to_owned);
                let unknown = || Failure::new(Code::UpstreamError, "the proxy told no key");
                Ok(Issued {
                    raw: text("raw_key").ok_or_else(unknown)?,
                    hash: text("hash").ok_or_else(unknown)?,
                    alias: text("alias").unwrap_or_default(),
                    expires_at: text("expires_at"),
                })
            }
            Place::Database(store) => {
                let key = RawKey::generate().ok_or_else(|| {
                    Failure::new(Code::ExecutionFailed, "the system gives no random numbers")
                })?;
                let row = wanted.into_row(hash_of(&key)).map_err(Failure::invalid)?;
                let (new, by) = (row.clone(), by.to_owned());
                run(store, |db| async move { keys::issue(&db, &new, &by).await })?;
                Ok(Issued {
                    raw: key.reveal().to_owned(),
                    hash: row.token_hash,
                    alias: row.key_alias,
                    expires_at: row.expires_at.map(|end| end.rfc3339()),
                })
            }
        }
    }

    pub fn list(&self, user: &str) -> Result<Vec<Value>, Failure> {
        match self {
            Place::Proxy(remote) => {
                let answer = ask(
                    remote,
                    Method::GET,
                    "admin/keys",
                    &[("user_id", user)],
                    None,
                )?;
                Ok(answer["sessions"].as_array().cloned().unwrap_or_default())
            }
            Place::Database(_) if user.is_empty() => Err(Failure::invalid("the user has no name")),
            Place::Database(store) => {
                let user = user.to_owned();
                let found = run(store, |db| async move { keys::of_user(&db, &user).await })?;
                Ok(found.iter().map(keys::KeyRow::to_json).collect())
            }
        }
    }

    pub fn show(&self, hash: &str) -> Result<Value, Failure> {
        match self {
            Place::Proxy(remote) => ask(remote, Method::GET, &path_of(hash), &[], None),
            Place::Database(store) => {
                let own = hash.to_owned();
                let found = run(store, |db| async move { keys::find(&db, &own).await })?;
                found.map(|key| key.to_json()).ok_or_else(no_such_key)
            }
        }
    }

    pub fn revoke(&self, hash: &str, by: &str) -> Result<(), Failure> {
        match self {
            Place::Proxy(remote) => {
                let path = path_of(hash);
                ask(remote, Method::DELETE, &path, &[("by", by)], None).map(|_| ())
            }
            Place::Database(store) => {
                let (own, by) = (hash.to_owned(), by.to_owned());
                let revoked = run(
                    store,
                    |db| async move { keys::revoke(&db, &own, &by).await },
                )?;
                revoked.then_some(()).ok_or_else(no_such_key)
            }
        }
    }

    pub fn revoke_all(&self, wanted: RevokeRequest, by: &str) -> Result<u64, Failure> {
        match self {
            Place::Proxy(remote) => {
                let body = serde_json::to_value(&wanted).map_err(not_json)?;
                let query = [("by", by)];
                let answer = ask(
                    remote,
                    Method::POST,
                    "admin/keys/bulk-revoke",
                    &query,
                    Some(body),
                )?;
                Ok(answer["revoked"].as_u64().unwrap_or_default())
            }
            Place::Database(store) => {
                let filter = wanted.into_filter().map_err(Failure::invalid)?;
                let by = by.to_owned();
                let revoked = run(store, |db| async move {
                    keys::revoke_all(&db, &filter, &by).await
                })?;
                Ok(revoked.len() as u64)
            }
        }
    }
}

/// A hash is what was typed: it must not lead to another path.
fn path_of(hash: &str) -> String {
    format!("admin/keys/{}", utf8_percent_encode(hash, NON_ALPHANUMERIC))
}

fn ask(
    remote: &Remote,
    method: Method,
    path: &str,
    query: &[(&str, &str)],
    body: Option<Value>,
) -> Result<Value, Failure> {
    let answer = remote.ask(method, path, query, body.map(|body| body.to_string()))?;
    if answer.status == 401 {
        let message = "the proxy doesn't accept ATI_ADMIN_TOKEN: it has another value there";
        return Err(Failure::new(Code::InvalidToken, message));
    }
    if !(200..300).contains(&answer.status) {
        return Err(refused(answer.status, answer.failure(remote.caller())));
    }
    serde_json::from_str(&answer.body).map_err(not_json)
}

/// For other commands these statuses are about tools.
fn refused(status: u16, failure: Failure) -> Failure {
    // As where the database is used without a proxy.
    if matches!(status, 400 | 409) {
        return Failure {
            code: Code::InvalidValue,
            hint: None,
            ..failure
        };
    }
    if status != 404 {
        return failure;
    }
    let hint = match failure.message.ends_with(NO_SUCH_KEY) {
        true => LIST_HINT,
        false => {
            "is ATI_PROXY_URL the address where the proxy has its administration of keys? It may \
             be its admin listener's"
        }
    };
    Failure {
        code: Code::ExecutionFailed,
        ..failure
    }
    .hint(hint)
}

fn run<T, F>(store: &Store, work: impl FnOnce(Db) -> F) -> Result<T, Failure>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
{
    runtime()?
        .block_on(store.run_for(std::time::Duration::from_secs(30), work))
        .map_err(|e| failed(&e))
}

fn failed(error: &StoreError) -> Failure {
    match error {
        StoreError::Conflict => Failure::invalid(SAME_ALIAS),
        other => Failure::new(Code::ExecutionFailed, other.to_string()),
    }
}

fn not_json(error: serde_json::Error) -> Failure {
    Failure::new(Code::UpstreamError, "the proxy's answer is not JSON").because(error)
}

fn no_such_key() -> Failure {
    Failure::new(Code::ExecutionFailed, NO_SUCH_KEY).hint(LIST_HINT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_that_is_not_there_has_nothing_to_do_with_tools() {
        let answered = |message: &str| {
            let failure = Failure::new(Code::ToolNotFound, message).hint("'ati tool list'");
            refused(404, failure)
        };
        let unknown = answered("Proxy error (404): no such key");
        assert_eq!(unknown.code, Code::ExecutionFailed);
        assert_eq!(unknown.hint.as_deref(), Some(LIST_HINT));
        let other_address = answered("Proxy error (404): not found");
        assert!(other_address.hint.unwrap().contains("ATI_PROXY_URL"));
        let taken = refused(409, Failure::new(Code::UpstreamError, SAME_ALIAS));
        assert_eq!(taken.code, failed(&StoreError::Conflict).code);
        let other = refused(500, Failure::new(Code::UpstreamError, "x"));
        assert_eq!((other.code, other.hint), (Code::UpstreamError, None));
        assert_eq!(path_of("../x?y"), "admin/keys/%2E%2E%2Fx%3Fy");
    }
}
