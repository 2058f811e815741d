//! `/skills`: the skills that the caller's scopes open. What they are is part of the snapshot;
//! their files are read on a blocking thread when a caller wants them.

use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use url::form_urlencoded;

use super::mcp::http::is_json;
use super::{BodyError, Reply, Request, Services};
use crate::auth::{Identity, Scopes};
use crate::error::{Refusal, SkillRefusal};
use crate::runtime::ComputeError;
use crate::skills::folder::{self, LARGEST};
use crate::skills::registry::Filter;
use crate::skills::{BundleError, Bundled, Skill, Visible};
use crate::snapshot::Snapshot;

/// Skills of one `POST /skills/bundle`.
const MOST_BUNDLES: usize = 50;
/// Bytes of a request's body: names and scopes.
const LONGEST_BODY: usize = 1 << 20;
/// So many skills are listed where the request is: that takes well under a millisecond.
const FEW: usize = 32;
const PATIENCE: Duration = Duration::from_secs(30);
/// Bundles are read whole into memory: so many requests at a time.
static READING: Semaphore = Semaphore::const_new(4);

pub(super) async fn list(
    request: &Request,
    identity: &Arc<Identity>,
    snapshot: &Arc<Snapshot>,
    services: &Services,
) -> Result<Reply, Refusal> {
    let (id, query) = (request.id, request.query().to_owned());
    let rows = move |identity: &Identity, snapshot: &Snapshot| {
        Reply::json(id, &listed(&query, identity, snapshot))
    };
    aside(identity, snapshot, services, rows).await
}

fn listed(query: &str, identity: &Identity, snapshot: &Snapshot) -> Vec<Value> {
    let visible = visible(identity, snapshot);
    let value = |name: &str| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        let found = pairs.find(|(key, value)| key == name && !value.trim().is_empty());
        found.map(|(_, value)| value)
    };
    let (search, category) = (value("search"), value("category"));
    let (provider, tool) = (value("provider"), value("tool"));
    let found = visible.filtered(&Filter {
        search: search.as_deref(),
        category: category.as_deref(),
        provider: provider.as_deref(),
        tool: tool.as_deref(),
    });
    found.into_iter().map(|skill| skill.item()).collect()
}

/// Work that grows with the number of skills and tools, on the threads for long work where there
/// are many: others' calls don't wait for it.
async fn aside(
    identity: &Arc<Identity>,
    snapshot: &Arc<Snapshot>,
    services: &Services,
    work: impl FnOnce(&Identity, &Snapshot) -> Result<Reply, Refusal> + Send + 'static,
) -> Result<Reply, Refusal> {
    if snapshot.skills.len() <= FEW {
        return work(identity, snapshot);
    }
    let (owner, pinned) = (identity.clone(), snapshot.clone());
    let done = services
        .runtime
        .compute
        .run(&identity.subject, PATIENCE, move || work(&owner, &pinned));
    match done.await {
        Ok(reply) => reply,
        Err(ComputeError::Failed) => Err(Refusal::Internal),
        Err(ComputeError::Full | ComputeError::TimedOut) => Err(Refusal::Overloaded),
    }
}

pub(super) async fn one(
    request: &Request,
    identity: &Identity,
    snapshot: &Snapshot,
) -> Result<Reply, Refusal> {
    let (meta, refs) = (flag(request, "meta")?, flag(request, "refs")?);
    let skill = find(request.path().rsplit('/').next(), identity, snapshot)?;
    if meta {
        return Reply::json(request.id, &skill.meta());
    }
    let mut described = json!({
        "name": skill.name,
        "version": skill.version,
        "description": skill.description,
        "content": skill.body,
    });
    if refs {
        let folder = skill.folder.clone();
        let names = blocking(move || folder::references(&folder)).await?;
        described["references"] = json!(names);
    }
    Reply::json(request.id, &described)
}

pub(super) async fn bundle(
    request: &Request,
    identity: &Identity,
    snapshot: &Snapshot,
) -> Result<Reply, Refusal> {
    let path = request.path().trim_end_matches("/bundle");
    let skill = find(path.rsplit('/').next(), identity, snapshot)?.clone();
    let _turn = turn().await?;
    let read = skill.clone();
    let bundled = blocking(move || folder::bundle(&read.folder)).await?;
    let bundled = bundled.map_err(|e| unreadable(&skill.name, &e))?;
    let answer = json!({"name": skill.name, "files": bundled.files});
    Reply::json(request.id, &answer)
}

#[derive(Deserialize)]
struct Names {
    names: Vec<String>,
}

pub(super) async fn bundles(
    request: Request,
    identity: &Identity,
    snapshot: &Snapshot,
) -> Result<Reply, Refusal> {
    let id = request.id;
    let Names { names } = body(request).await?;
    if names.len() > MOST_BUNDLES {
        return Err(refused(SkillRefusal::BatchTooLarge {
            names: names.len(),
            most: MOST_BUNDLES,
        }));
    }
    let visible = visible(identity, snapshot);
    let wanted: Vec<(String, Option<Arc<Skill>>)> = names
        .into_iter()
        .map(|name| {
            let skill = visible.get(&name).cloned();
            (name, skill)
        })
        .collect();
    let _turn = turn().await?;
    let answer = blocking(move || read_all(wanted)).await??;
    Reply::json(id, &answer)
}

/// The bundles of several skills. They have no more bytes together than one may have.
fn read_all(wanted: Vec<(String, Option<Arc<Skill>>)>) -> Result<Value, Refusal> {
    let (mut skills, mut missing, mut bytes) = (Map::new(), Vec::new(), 0);
    for (name, skill) in wanted {
        if skills.contains_key(&name) {
            continue;
        }
        let bundled = match skill.map(|skill| folder::bundle(&skill.folder)) {
            None | Some(Err(BundleError::Gone)) => {
                missing.push(name);
                continue;
            }
            Some(Ok(Bundled { files, bytes: more })) => {
                bytes += more;
                files
            }
            Some(Err(e)) => return Err(unreadable(&name, &e)),
        };
        if bytes > LARGEST {
            return Err(refused(SkillRefusal::Unreadable {
                name,
                why: "all skills together have too many bytes; ask for fewer".to_owned(),
            }));
        }
        skills.insert(name, json!({"files": bundled}));
    }
    Ok(json!({"skills": skills, "missing": missing}))
}

#[derive(Deserialize)]
struct Wanted {
    scopes: Vec<String>,
    #[serde(default)]
    include_content: bool,
}

pub(super) async fn resolve(
    request: Request,
    identity: &Arc<Identity>,
    snapshot: &Arc<Snapshot>,
    services: &Services,
) -> Result<Reply, Refusal> {
    let id = request.id;
    let wanted: Wanted = body(request).await?;
    let rows = move |identity: &Identity, snapshot: &Snapshot| {
        Reply::json(id, &resolved(&wanted, identity, snapshot))
    };
    aside(identity, snapshot, services, rows).await
}

fn resolved(wanted: &Wanted, identity: &Identity, snapshot: &Snapshot) -> Vec<Value> {
    let scopes = Scopes::parse(&wanted.scopes.join(" "));
    let visible = visible(identity, snapshot);
    let resolved = snapshot.skills.resolve(&scopes, &snapshot.catalog);
    let seen = resolved.into_iter().filter(|skill| visible.contains(skill));
    let items = seen.map(|skill| {
        let mut item = skill.item();
        if let Some(item) = item.as_object_mut() {
            item.shift_remove("hint");
        }
        if wanted.include_content {
            item["content"] = json!(skill.body);
        }
        item
    });
    items.collect()
}

fn visible<'a>(identity: &Identity, snapshot: &'a Snapshot) -> Visible<'a> {
    let catalog = &snapshot.catalog;
    snapshot.skills.visible(&identity.scopes, catalog)
}

/// The skill that a segment of a path names.
fn find<'a>(
    segment: Option<&str>,
    identity: &Identity,
    snapshot: &'a Snapshot,
) -> Result<&'a Arc<Skill>, Refusal> {
    let name = percent_decode_str(segment.unwrap_or_default()).decode_utf8_lossy();
    let found = visible(identity, snapshot).get(&name);
    found.ok_or_else(|| refused(SkillRefusal::NotFound(name.chars().take(256).collect())))
}

/// A parameter that is `true` or `false`.
fn flag(request: &Request, name: &str) -> Result<bool, Refusal> {
    let mut pairs = form_urlencoded::parse(request.query().as_bytes());
    let value = pairs.find(|(key, _)| key == name);
    match value.as_ref().map(|(_, value)| value.as_ref()) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => {
            let why = format!("{name}: provided string was not `true` or `false`");
            Err(refused(SkillRefusal::BadQuery(why)))
        }
    }
}

/// A JSON body of this shape.
pub(super) async fn body<T: DeserializeOwned>(request: Request) -> Result<T, Refusal> {
    body_within(LONGEST_BODY, request).await
}

pub(super) async fn body_within<T: DeserializeOwned>(
    longest: usize,
    request: Request,
) -> Result<T, Refusal> {
    if !is_json(&request.parts.headers) {
        return Err(Refusal::NotJson);
    }
    let text = request.body.read_all(longest, PATIENCE).await;
    let text = text.map_err(|e| match e {
        BodyError::TooLarge(_) => Refusal::TooLarge,
        _ => Refusal::BadRequest,
    })?;
    // Serde would take a list of the members' values for an object, too.
    if text.trim_ascii_start().starts_with(b"[")
        && serde_json::from_slice::<IgnoredAny>(&text).is_ok()
    {
        let why = "invalid type: a list, expected an object";
        return Err(refused(SkillRefusal::WrongShape(why.to_owned())));
    }
    serde_json::from_slice(&text).map_err(|e| {
        refused(match e.is_data() {
            true => SkillRefusal::WrongShape(e.to_string()),
            false => SkillRefusal::BadJson(e.to_string()),
        })
    })
}

async fn turn() -> Result<tokio::sync::SemaphorePermit<'static>, Refusal> {
    let turn = tokio::time::timeout(PATIENCE, READING.acquire()).await;
    let turn = turn.map_err(|_| Refusal::Overloaded)?;
    turn.map_err(|_| Refusal::Internal)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Refusal::Internal)
}

fn unreadable(name: &str, error: &BundleError) -> Refusal {
    if let BundleError::Gone = error {
        return refused(SkillRefusal::NotFound(name.to_owned()));
    }
    refused(SkillRefusal::Unreadable {
        name: name.to_owned(),
        why: error.to_string(),
    })
}

fn refused(refusal: SkillRefusal) -> Refusal {
    Refusal::Skill(Box::new(refusal))
}
