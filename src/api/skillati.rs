//! `/skillati`: skills of the remote catalogue that the caller's scopes open.

use http::header::{AGE, CACHE_CONTROL, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;
use sha2::{Digest as _, Sha256};
use url::form_urlencoded;

use super::{Reply, ReplyBody, Request, Services};
use crate::auth::Identity;
use crate::error::{Refusal, RemoteSkillError, Success};
use crate::route::Builtin;
use crate::skills::Grants;
use crate::skills::remote::{Access, Answer, Reader, Viewer};
use crate::snapshot::Snapshot;

/// Seconds since the registry confirmed what is answered, where it can't be asked now.
const STALE: HeaderName = HeaderName::from_static("x-ati-stale");

pub(super) async fn answer(
    builtin: Builtin,
    request: &Request,
    identity: &Identity,
    snapshot: &Snapshot,
    services: &Services,
) -> Result<Reply, Refusal> {
    let answered = read(builtin, request, identity, snapshot, services).await;
    let answer = answered.map_err(|error| {
        if let RemoteSkillError::Upstream(_) = &error {
            tracing::warn!(request_id = %request.id, %error, "the skill registry failed");
        }
        Refusal::RemoteSkill(Box::new(error))
    })?;
    Ok(reply(answer, &request.parts.headers))
}

async fn read(
    builtin: Builtin,
    request: &Request,
    identity: &Identity,
    snapshot: &Snapshot,
    services: &Services,
) -> Result<Answer, RemoteSkillError> {
    let reader = reader(snapshot, services)?;
    let viewer = viewer(identity, snapshot);
    // `/skillati/{name}/ref/{reference}`, and the reference may have slashes.
    let mut segments = request.path().splitn(5, '/').skip(2).map(|segment| {
        let decoded = percent_decode_str(segment).decode_utf8_lossy();
        decoded.into_owned()
    });
    let name = segments.next().unwrap_or_default();
    match builtin {
        Builtin::RemoteCatalog => {
            let search = parameter(request, "search");
            reader.catalog(&viewer, search.as_deref()).await
        }
        Builtin::RemoteResources => {
            let prefix = parameter(request, "prefix");
            reader.resources(&viewer, &name, prefix.as_deref()).await
        }
        Builtin::RemoteFile => {
            let path = parameter(request, "path").unwrap_or_default();
            reader.file_at(&viewer, &name, &path).await
        }
        Builtin::RemoteReferences => reader.references(&viewer, &name).await,
        Builtin::RemoteReference => {
            let reference = segments.nth(1).unwrap_or_default();
            reader.reference(&viewer, &name, &reference).await
        }
        // The other endpoints aren't answered here.
        _ => reader.read(&viewer, &name).await,
    }
}

/// The registry of the settings. An error where there is none.
pub(super) fn reader(snapshot: &Snapshot, services: &Services) -> Result<Reader, RemoteSkillError> {
    let find = |name: &str| snapshot.keyring.get(name).cloned();
    let access = Access::new(&snapshot.settings.skill_registry, &snapshot.clients, find)?;
    Ok(services.remote_skills.reader(access))
}

pub(super) fn viewer<'a>(identity: &'a Identity, snapshot: &'a Snapshot) -> Viewer<'a> {
    let (scopes, catalog) = (&identity.scopes, &snapshot.catalog);
    Viewer {
        grants: Grants::to_see(scopes, catalog),
        installed: snapshot.skills.visible(scopes, catalog),
    }
}

fn parameter(request: &Request, name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(request.query().as_bytes());
    let found = pairs.find(|(key, _)| key == name);
    found.map(|(_, value)| value.into_owned())
}

/// With a tag, so that a caller who has it already gets no body.
fn reply(answer: Answer, headers: &HeaderMap) -> Reply {
    let tag = format!("\"{}\"", hex::encode(&Sha256::digest(&answer.body)[..16]));
    let known = headers.get_all(IF_NONE_MATCH).iter();
    let mut known = known.filter_map(|value| value.to_str().ok());
    let is_known = known.any(|list| {
        let mut tags = list.split(',').map(str::trim);
        tags.any(|one| one == "*" || one.trim_start_matches("W/") == tag)
    });
    let mut reply = Reply::from_json(answer.body.into());
    if is_known {
        reply = Reply {
            status: Success::NotModified.status(),
            headers: Vec::new(),
            body: ReplyBody::Whole(bytes::Bytes::new()),
        };
    }
    // It depends on the caller's token.
    let private = HeaderValue::from_static("private, no-cache");
    reply.headers.push((CACHE_CONTROL, private));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        reply.headers.push((ETAG, tag));
    }
    let age = HeaderValue::from(answer.age.as_secs());
    if answer.stale {
        reply.headers.push((STALE, age.clone()));
    }
    reply.headers.push((AGE, age));
    reply
}
