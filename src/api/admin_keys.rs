//! `/admin/keys`: virtual keys are issued, looked at and revoked. Admission has checked the admin
//! bearer.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde_json::json;
use url::form_urlencoded;

use super::{Reply, Request, Services, skills};
use crate::auth::virtual_keys::request::{IssueRequest, RevokeRequest, check_name};
use crate::auth::virtual_keys::{RawKey, VirtualKeys, hash_of};
use crate::error::{AdminRefusal, Refusal, Success};
use crate::route::Builtin;
use crate::store::{StoreError, keys};

/// Many keys may be revoked at once.
const BULK_PATIENCE: Duration = Duration::from_secs(25);
/// Of a request: lists of scopes or hashes, and values that are refused with a reason.
pub const LONGEST_BODY: usize = 2 << 20;
/// Who revoked or issued a key, where the request doesn't say.
const ACTOR: &str = "admin";

/// The answer of `issue`: the only time that the key itself is told.
#[derive(Serialize)]
struct Issued<'a> {
    raw_key: &'a str,
    hash: &'a str,
    alias: &'a str,
    expires_at: Option<String>,
}

pub(super) async fn answer(
    builtin: Builtin,
    request: Request,
    services: &Services,
) -> Result<Reply, Refusal> {
    let Some(keys) = &services.keys else {
        return Err(Refusal::AdminStoreMissing);
    };
    match builtin {
        Builtin::AdminKeysIssue => issue(request, keys).await,
        Builtin::AdminKeysBulkRevoke => revoke_all(request, keys).await,
        Builtin::AdminKey if request.parts.method == Method::DELETE => revoke(&request, keys).await,
        Builtin::AdminKey => show(&request, keys).await,
        _ => list(&request, keys).await,
    }
}

async fn issue(request: Request, keys: &Arc<VirtualKeys>) -> Result<Reply, Refusal> {
    let (id, by) = (request.id, named_actor(&request)?);
    let wanted: IssueRequest = skills::body_within(LONGEST_BODY, request).await?;
    let key = RawKey::generate().ok_or(Refusal::Internal)?;
    let row = wanted.into_row(hash_of(&key)).map_err(invalid)?;
    let new = row.clone();
    let actor = by.or_else(|| row.created_by.clone());
    let actor = actor.unwrap_or_else(|| ACTOR.to_owned());
    let issued = keys
        .store()
        .run(|db| async move { keys::issue(&db, &new, &actor).await });
    issued.await.map_err(|e| match e {
        StoreError::Conflict => refused(AdminRefusal::Duplicate),
        other => failed(&other),
    })?;
    keys.forget(&row.token_hash);
    let mut reply = Reply::json(
        id,
        &Issued {
            raw_key: key.reveal(),
            hash: &row.token_hash,
            alias: &row.key_alias,
            expires_at: row.expires_at.map(|end| end.rfc3339()),
        },
    )?;
    reply.status = Success::Created.status();
    Ok(reply)
}

async fn list(request: &Request, keys: &Arc<VirtualKeys>) -> Result<Reply, Refusal> {
    let Some(user) = parameter(request, "user_id").filter(|user| !user.is_empty()) else {
        return Err(invalid("user_id query param required".to_owned()));
    };
    check_name("user_id", &user).map_err(invalid)?;
    let found = keys
        .store()
        .run(|db| async move { keys::of_user(&db, &user).await });
    let found = found.await.map_err(|e| failed(&e))?;
    let sessions: Vec<_> = found.iter().map(keys::KeyRow::to_json).collect();
    Reply::json(request.id, &json!({"sessions": sessions}))
}

async fn show(request: &Request, keys: &Arc<VirtualKeys>) -> Result<Reply, Refusal> {
    let hash = hash(request)?;
    let found = keys
        .store()
        .run(|db| async move { keys::find(&db, &hash).await });
    match found.await.map_err(|e| failed(&e))? {
        Some(key) => Reply::json(request.id, &key.to_json()),
        None => Err(refused(AdminRefusal::NoSuchKey)),
    }
}

async fn revoke(request: &Request, keys: &Arc<VirtualKeys>) -> Result<Reply, Refusal> {
    let (hash, by) = (hash(request)?, actor(request)?);
    let own = hash.clone();
    let revoked = keys
        .store()
        .run(|db| async move { keys::revoke(&db, &own, &by).await });
    let revoked = revoked.await.map_err(|e| failed(&e))?;
    // In any case: an earlier revocation may have come from another process.
    keys.forget(&hash);
    match revoked {
        true => Reply::json(request.id, &json!({"revoked": true})),
        false => Err(refused(AdminRefusal::NoSuchKey)),
    }
}

async fn revoke_all(request: Request, keys: &Arc<VirtualKeys>) -> Result<Reply, Refusal> {
    let (id, by) = (request.id, actor(&request)?);
    let wanted: RevokeRequest = skills::body_within(LONGEST_BODY, request).await?;
    let filter = wanted.into_filter().map_err(invalid)?;
    let revoked = keys.store().run_for(BULK_PATIENCE, |db| async move {
        keys::revoke_all(&db, &filter, &by).await
    });
    let revoked = revoked.await.map_err(|e| failed(&e))?;
    for hash in &revoked {
        keys.forget(hash);
    }
    Reply::json(id, &json!({"revoked": revoked.len()}))
}

/// The last segment of the path. What can be no hash has no key.
fn hash(request: &Request) -> Result<String, Refusal> {
    let segment = request.path().rsplit('/').next().unwrap_or_default();
    let hash = percent_decode_str(segment).decode_utf8_lossy();
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    match is_hash {
        true => Ok(hash.to_ascii_lowercase()),
        false => Err(refused(AdminRefusal::NoSuchKey)),
    }
}

/// Who the audit says it was.
fn actor(request: &Request) -> Result<String, Refusal> {
    Ok(named_actor(request)?.unwrap_or_else(|| ACTOR.to_owned()))
}

/// `?by=`.
fn named_actor(request: &Request) -> Result<Option<String>, Refusal> {
    let by = parameter(request, "by").filter(|by| !by.trim().is_empty());
    if let Some(by) = &by {
        check_name("by", by).map_err(invalid)?;
    }
    Ok(by)
}

fn parameter(request: &Request, name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(request.query().as_bytes());
    let found = pairs.find(|(key, _)| key == name);
    found.map(|(_, value)| value.into_owned())
}

fn invalid(why: String) -> Refusal {
    refused(AdminRefusal::Invalid(Cow::Owned(why)))
}

fn failed(error: &StoreError) -> Refusal {
    let why = error.to_string();
    tracing::warn!(error = %error, "key administration failed in the database");
    refused(match error.is_away() {
        true => AdminRefusal::StoreAway(why),
        false => AdminRefusal::StoreFailed(why),
    })
}

fn refused(refusal: AdminRefusal) -> Refusal {
    Refusal::Administration(Box::new(refusal))
}
