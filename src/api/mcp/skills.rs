//! Skills over MCP (SEP-2640): `skills/list`, `skills/get`, and the files of skills as resources.
//! Only for clients that say that they know the extension; others find no such methods.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{percent_decode_str, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{Exchange, ResultText, complete};
use crate::api::skillati;
use crate::credential::UNRESERVED;
use crate::error::RpcError;
use crate::exec::files::content_type;
use crate::mcp::{ClientRequest, Era, cursor_after, read_cursor, text_of};
use crate::skills::remote::{Skill as RemoteSkill, Viewer};
use crate::skills::served::{MOST_BYTES, SkillFiles};
use crate::skills::{DOCUMENT, Skill, folder};

/// How long clients may use what they were told. Skills may change at any time.
const TTL_MS: u64 = 30_000;
const SCHEME: &str = "skill://";
/// Skills on a page.
const PAGE: usize = 100;
/// Files are read into memory, and hashed: so many requests at a time.
static READING: Semaphore = Semaphore::const_new(4);

/// A skill as it is served: where its files are, and what is known about them.
#[derive(Clone)]
enum Served {
    Installed(Arc<Skill>, Arc<SkillFiles>),
    Remote(Arc<SkillFiles>),
}

impl Served {
    fn files(&self) -> &SkillFiles {
        match self {
            Served::Installed(_, files) | Served::Remote(files) => files,
        }
    }
}

/// The answer to a method of this extension. None: it is none of them.
pub async fn respond(
    request: &ClientRequest,
    exchange: &Exchange,
) -> Option<Result<ResultText, RpcError>> {
    Some(match request.method.as_str() {
        "skills/list" => list(request, exchange).await,
        "skills/get" => get(request, exchange).await,
        "resources/list" => list_resources(request, exchange).await,
        "resources/templates/list" => Ok(finish(json!({"resourceTemplates": []}), request.era)),
        "resources/read" => read(request, exchange).await,
        _ => return None,
    })
}

async fn list(request: &ClientRequest, exchange: &Exchange) -> Result<ResultText, RpcError> {
    let (page, next) = page(request, exchange).await?;
    let skills: Vec<Value> = page
        .iter()
        .map(|(name, served)| entry(name, served.files()))
        .collect();
    let mut result = json!({"skills": skills});
    if let Some(next) = next {
        result["nextCursor"] = next.into();
    }
    Ok(finish_skills(result))
}

async fn get(request: &ClientRequest, exchange: &Exchange) -> Result<ResultText, RpcError> {
    let uri = wanted_uri(request)?;
    let none = || RpcError::Params(format!("No skill is served at {}", clipped(uri)));
    let (name, path) = parse(uri).ok_or_else(none)?;
    if path != DOCUMENT {
        return Err(none());
    }
    let served = find(&name, exchange).await?.ok_or_else(none)?;
    Ok(finish_skills(
        json!({"skill": entry(&name, served.files())}),
    ))
}

fn wanted_uri(request: &ClientRequest) -> Result<&str, RpcError> {
    let uri = request.uri.as_deref().filter(|uri| !uri.is_empty());
    let example = "skill://<name>/SKILL.md";
    uri.ok_or_else(|| RpcError::Params(format!("The parameter 'uri' is missing: {example}")))
}

async fn list_resources(
    request: &ClientRequest,
    exchange: &Exchange,
) -> Result<ResultText, RpcError> {
    let (page, next) = page(request, exchange).await?;
    let resources: Vec<Value> = page
        .iter()
        .flat_map(|(name, served)| {
            let files = served.files();
            let paths = files.digests.iter();
            paths.map(move |(path, digest)| {
                let mut resource = json!({
                    "uri": uri(name, path),
                    "name": path.rsplit('/').next(),
                    "mimeType": media_type(path),
                    "size": digest.size,
                });
                if path == DOCUMENT {
                    resource["name"] = json!(name);
                    resource["description"] = json!(files.frontmatter.get("description"));
                }
                resource
            })
        })
        .collect();
    let mut result = json!({"resources": resources});
    if let Some(next) = next {
        result["nextCursor"] = next.into();
    }
    Ok(finish(result, request.era))
}

async fn read(request: &ClientRequest, exchange: &Exchange) -> Result<ResultText, RpcError> {
    let uri = wanted_uri(request)?;
    let none = || RpcError::Params(format!("Resource not found: {}", clipped(uri)));
    let (name, path) = parse(uri).ok_or_else(none)?;
    let served = find(&name, exchange).await?.ok_or_else(none)?;
    if !served.files().digests.contains_key(&path) {
        return Err(none());
    }
    let content = match served {
        Served::Installed(skill, _) => {
            let path = path.clone();
            let read = move || folder::content(&skill.folder, &path, MOST_BYTES);
            blocking(read).await?.map_err(|_| none())?
        }
        Served::Remote(_) => {
            let reader = skillati::reader(&exchange.snapshot, &exchange.services);
            let reader = reader.map_err(|_| none())?;
            let content = reader.content(&name, &path).await;
            content.map_err(|error| {
                tracing::warn!(%error, "a file of a remote skill can't be read");
                RpcError::Internal
            })?
        }
    };
    let mut contents = json!({"uri": uri, "mimeType": media_type(&path)});
    match String::from_utf8(content) {
        Ok(text) => contents["text"] = text.into(),
        Err(e) => contents["blob"] = STANDARD.encode(e.as_bytes()).into(),
    }
    Ok(finish(json!({"contents": [contents]}), request.era))
}

/// The skills of one page in the order of names, and the cursor of the next.
async fn page(
    request: &ClientRequest,
    exchange: &Exchange,
) -> Result<(Vec<(String, Served)>, Option<String>), RpcError> {
    let after = match &request.cursor {
        None => None,
        Some(cursor) if cursor.get() == "null" => None,
        Some(cursor) => Some(read_cursor(&text_of(cursor).unwrap_or_default())?),
    };
    let mut names = candidates(exchange).await;
    if let Some(after) = &after {
        names = names.split_off(after);
        names.remove(after);
    }
    let (mut found, mut next) = (Vec::new(), None);
    let mut left = names.into_iter().peekable();
    while let Some((name, candidate)) = left.next() {
        let at_end = left.peek().is_none();
        if let Some(served) = load(candidate, exchange).await? {
            found.push((name.clone(), served));
        }
        if found.len() == PAGE && !at_end {
            next = Some(cursor_after(&name));
            break;
        }
    }
    Ok((found, next))
}

/// A skill that the caller sees, before its files are looked at.
enum Candidate {
    Installed(Arc<Skill>),
    Remote(Arc<SkillFiles>),
}

/// Every skill that the caller sees. One that is installed goes before one of the catalogue.
async fn candidates(exchange: &Exchange) -> BTreeMap<String, Candidate> {
    let (snapshot, identity) = (&exchange.snapshot, &exchange.identity);
    let mut found = BTreeMap::new();
    if let Ok(reader) = skillati::reader(snapshot, &exchange.services) {
        let catalogue = reader.catalogue().await;
        if let Ok(catalogue) = catalogue {
            let viewer = skillati::viewer(identity, snapshot);
            for skill in &catalogue.value.skills {
                if let Some(files) = remote_files(skill, &viewer) {
                    found.insert(skill.entry.name.clone(), Candidate::Remote(files));
                }
            }
        }
    }
    let visible = snapshot.skills.visible(&identity.scopes, &snapshot.catalog);
    for skill in visible.iter() {
        found.insert(skill.name.clone(), Candidate::Installed(skill.clone()));
    }
    found
}

async fn find(name: &str, exchange: &Exchange) -> Result<Option<Served>, RpcError> {
    let (snapshot, identity) = (&exchange.snapshot, &exchange.identity);
    let visible = snapshot.skills.visible(&identity.scopes, &snapshot.catalog);
    let installed = visible.get(name).filter(|skill| skill.name == name);
    if let Some(skill) = installed {
        return load(Candidate::Installed(skill.clone()), exchange).await;
    }
    let Ok(reader) = skillati::reader(snapshot, &exchange.services) else {
        return Ok(None);
    };
    let Ok(catalogue) = reader.catalogue().await else {
        return Ok(None);
    };
    let viewer = skillati::viewer(identity, snapshot);
    let skill = catalogue.value.find(name);
    let files = skill.and_then(|skill| remote_files(skill, &viewer));
    Ok(files.map(Served::Remote))
}

/// The files of a skill of the catalogue, if the caller sees it and its client can load it.
fn remote_files(skill: &RemoteSkill, viewer: &Viewer<'_>) -> Option<Arc<SkillFiles>> {
    let name = &skill.entry.name;
    let files = skill.files.as_ref();
    let files = files.filter(|files| viewer.sees(name, Some(skill)) && files.is_loadable(name));
    files.cloned()
}

async fn load(candidate: Candidate, exchange: &Exchange) -> Result<Option<Served>, RpcError> {
    let skill = match candidate {
        Candidate::Remote(files) => return Ok(Some(Served::Remote(files))),
        Candidate::Installed(skill) => skill,
    };
    let (services, read) = (exchange.services.clone(), skill.clone());
    let files = blocking(move || services.skill_files.of(&read)).await?;
    Ok(files.map(|files| Served::Installed(skill, files)))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RpcError> {
    let _turn = READING.acquire().await.map_err(|_| RpcError::Internal)?;
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| RpcError::Internal)
}

fn entry(name: &str, files: &SkillFiles) -> Value {
    let resources: Vec<Value> = files
        .digests
        .iter()
        .map(|(path, file)| {
            json!({
                "uri": uri(name, path),
                "digest": format!("sha256:{}", file.sha256),
                "size": file.size,
            })
        })
        .collect();
    json!({
        "uri": uri(name, DOCUMENT),
        "frontmatter": files.frontmatter,
        "resources": resources,
    })
}

fn uri(name: &str, path: &str) -> String {
    let parts = path.split('/');
    let parts: Vec<String> = parts
        .map(|part| utf8_percent_encode(part, UNRESERVED).to_string())
        .collect();
    format!("{SCHEME}{name}/{}", parts.join("/"))
}

/// The skill and the path of a URI, if it is written as [`uri`] writes it: no other spelling leads
/// to a file.
fn parse(text: &str) -> Option<(String, String)> {
    let (name, encoded) = text.strip_prefix(SCHEME)?.split_once('/')?;
    let path = percent_decode_str(encoded).decode_utf8().ok()?;
    (uri(name, &path) == text).then(|| (name.to_owned(), path.into_owned()))
}

fn media_type(path: &str) -> &'static str {
    content_type::guess(path)
}

fn clipped(uri: &str) -> &str {
    &uri[..uri.floor_char_boundary(200)]
}

/// What the extension wants in its own results, in either era.
fn finish_skills(mut result: Value) -> ResultText {
    result["resultType"] = "complete".into();
    result["ttlMs"] = TTL_MS.into();
    result["cacheScope"] = "private".into();
    ResultText::of(&result)
}

fn finish(mut result: Value, era: Era) -> ResultText {
    if era == Era::Stateless {
        result["ttlMs"] = TTL_MS.into();
        result["cacheScope"] = "private".into();
    }
    complete(result, era)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uri_leads_to_one_path_in_one_spelling() {
        assert_eq!(
            uri("foo", "references/a b.md"),
            "skill://foo/references/a%20b.md"
        );
        let parsed = parse("skill://foo/references/a%20b.md");
        assert_eq!(parsed, Some(("foo".into(), "references/a b.md".into())));
        for other in [
            "skill://foo",
            "skill:/foo/SKILL.md",
            "skillati://foo/SKILL.md",
            "skill://foo/a b.md",
            "skill://foo/%53KILL.md",
            "skill://foo/a%2fb",
            "skill://foo/%2e%2e/bar/SKILL.md",
            "SKILL://foo/SKILL.md",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
        // It parses, and no skill has such a file.
        assert!(parse("skill://foo/../bar/SKILL.md").is_some());
    }
}
