//! What the registry is asked: its catalogue, files of skills, and what files there are.

use std::collections::{BTreeMap, HashMap};

use futures::{StreamExt as _, TryStreamExt as _};
use tracing::{debug, warn};

use super::catalogue::{Catalogue, Entry, Origin, Skill, read_index};
use super::path::resolve;
use super::proxy::Proxy;
use super::store::{Got, Listed, Object, Store};
use crate::error::RemoteSkillError;
use crate::skills::{self, DOCUMENT, METADATA, is_skill_name};

/// Documents that are read at the same time where there is no index.
const CONCURRENT_READS: usize = 24;
const LARGEST_INDEX: usize = 64 << 20;
/// One file of a skill.
pub const LARGEST_FILE: usize = 16 << 20;
/// An index that is longer is parsed on a thread for that.
const SMALL_INDEX: usize = 128 << 10;

pub enum Source {
    Store {
        store: Store,
        index_objects: Vec<String>,
        report: Report,
    },
    Proxy(Proxy),
}

/// Who learns what can't be used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// The log of the server.
    Operator,
    /// None at the usual level: a command that succeeds writes nothing but its result.
    Verbose,
}

impl Report {
    fn tell(self, place: &str, error: &dyn std::fmt::Display, what: &str) {
        match self {
            Report::Operator => warn!(place, %error, "{what}"),
            Report::Verbose => debug!(place, %error, "{what}"),
        }
    }
}

impl Source {
    /// The catalogue, or None where it is still the old one.
    pub async fn catalogue(
        &self,
        old: Option<&Catalogue>,
    ) -> Result<Option<Catalogue>, RemoteSkillError> {
        let (store, index_objects, report) = match self {
            Source::Proxy(proxy) => return proxy.catalogue(old).await,
            Source::Store {
                store,
                index_objects,
                report,
            } => (store, index_objects, *report),
        };
        for object in index_objects {
            let known = match old.map(|old| &old.origin) {
                Some(Origin::Index { object: used, tag }) if used == object => tag.as_deref(),
                _ => None,
            };
            match store.get(object, known, LARGEST_INDEX).await? {
                Got::Unchanged => return Ok(None),
                Got::Missing => {}
                Got::Found(found) => match from_index(object, found, report).await {
                    Ok(catalogue) => return Ok(Some(catalogue)),
                    Err(error) => report.tell(object, &error, "an index of skills can't be used"),
                },
            }
        }
        from_listing(store, old, report).await
    }

    /// A file. What SKILL.md of a proxy gives is without its front matter.
    pub async fn file(
        &self,
        skill: &str,
        path: &str,
        known: Option<&str>,
    ) -> Result<Got, RemoteSkillError> {
        match self {
            Source::Proxy(proxy) => proxy.file(skill, path).await,
            Source::Store { store, .. } => {
                let name = format!("{skill}/{path}");
                store.get(&name, known, LARGEST_FILE).await
            }
        }
    }

    /// The files of a skill, without SKILL.md and skill.toml.
    pub async fn resources(&self, skill: &str) -> Result<Vec<String>, RemoteSkillError> {
        match self {
            Source::Proxy(proxy) => proxy.resources(skill).await,
            Source::Store { store, .. } => {
                let prefix = format!("{skill}/");
                let Some(listed) = store.list(&prefix).await? else {
                    let what = "it can't be listed, and its index doesn't name the files";
                    return Err(RemoteSkillError::Upstream(what.to_owned()));
                };
                if listed.is_empty() {
                    return Err(RemoteSkillError::NoSuchSkill(skill.to_owned()));
                }
                let paths = listed
                    .iter()
                    .filter_map(|one| one.name.strip_prefix(&prefix));
                Ok(paths.filter_map(resource).collect())
            }
        }
    }
}

/// The path of a file that is listed: not the two that describe the skill, and nothing hidden.
fn resource(path: &str) -> Option<String> {
    let place = resolve("x", path).ok()?;
    let is_file = place.path == path && path != DOCUMENT && path != METADATA;
    is_file.then_some(place.path)
}

async fn from_index(
    object: &str,
    found: Object,
    report: Report,
) -> Result<Catalogue, &'static str> {
    let Object { content, tag } = found;
    let (skills, unusable) = match content.len() <= SMALL_INDEX {
        true => read_index(&content)?,
        false => tokio::task::spawn_blocking(move || read_index(&content))
            .await
            .map_err(|_| "reading it was given up")??,
    };
    if unusable > 0 {
        let error = format!("{unusable} of them have no usable name or form");
        report.tell(object, &error, "skills of the index are skipped");
    }
    let object = object.to_owned();
    Ok(Catalogue::new(skills, Origin::Index { object, tag }))
}

/// The files of one skill in a listing.
#[derive(Default)]
struct Folder {
    has_document: bool,
    has_metadata: bool,
    resources: Vec<String>,
}

/// Reads every document of the registry, except for those that haven't changed.
async fn from_listing(
    store: &Store,
    old: Option<&Catalogue>,
    report: Report,
) -> Result<Option<Catalogue>, RemoteSkillError> {
    let Some(listed) = store.list("").await? else {
        let what = "it has no index that can be used, and can't be listed";
        return Err(RemoteSkillError::Upstream(what.to_owned()));
    };
    let tags: HashMap<String, String> = listed
        .iter()
        .filter_map(|one| Some((one.name.clone(), one.tag.clone()?)))
        .collect();
    let all_tagged = tags.len() == listed.len();
    let before = old.and_then(|old| match &old.origin {
        Origin::Listing { tags } => Some((old, tags)),
        Origin::Index { .. } => None,
    });
    if before.is_some_and(|(_, before)| all_tagged && *before == tags) {
        return Ok(None);
    }
    let same = |name: &str| {
        let (now, before) = (tags.get(name), before.and_then(|(_, tags)| tags.get(name)));
        now.is_some() && now == before
    };
    let reads = folders(&listed).into_iter().map(|(name, folder)| {
        let document_same = same(&format!("{name}/{DOCUMENT}"));
        let metadata_same = !folder.has_metadata || same(&format!("{name}/{METADATA}"));
        let known = before.and_then(|(old, _)| old.find(&name));
        let known = known.filter(|_| document_same && metadata_same).cloned();
        read(store, name, folder, known, report)
    });
    let skills = futures::stream::iter(reads).buffer_unordered(CONCURRENT_READS);
    let skills: Vec<Option<Skill>> = skills.try_collect().await?;
    let skills = skills.into_iter().flatten().collect();
    Ok(Some(Catalogue::new(skills, Origin::Listing { tags })))
}

fn folders(listed: &[Listed]) -> BTreeMap<String, Folder> {
    let mut folders: BTreeMap<String, Folder> = BTreeMap::new();
    for one in listed {
        let Some((name, path)) = one.name.split_once('/') else {
            continue;
        };
        if !is_skill_name(name) {
            continue;
        }
        let folder = folders.entry(name.to_owned()).or_default();
        match path {
            DOCUMENT => folder.has_document = true,
            METADATA => folder.has_metadata = true,
            other => folder.resources.extend(resource(other)),
        }
    }
    folders.retain(|_, folder| folder.has_document);
    folders
}

async fn read(
    store: &Store,
    name: String,
    mut folder: Folder,
    known: Option<Skill>,
    report: Report,
) -> Result<Option<Skill>, RemoteSkillError> {
    folder.resources.sort();
    if let Some(known) = known {
        return Ok(Some(Skill {
            resources: Some(folder.resources),
            ..known
        }));
    }
    let document = content(store, &format!("{name}/{DOCUMENT}")).await?;
    let metadata = match folder.has_metadata {
        true => content(store, &format!("{name}/{METADATA}")).await?,
        false => None,
    };
    let Some(document) = document else {
        return Ok(None);
    };
    let metadata = metadata.map(|text| String::from_utf8_lossy(&text).into_owned());
    let parsed = skills::Skill::parse(&name, Some(&document), metadata.as_deref());
    match parsed {
        Ok(parsed) => {
            let entry = entry(name, parsed);
            Ok(Some(Skill::new(entry, Some(folder.resources), None)))
        }
        Err(fault) => {
            report.tell(&name, &fault, "a skill of the registry is skipped");
            Ok(None)
        }
    }
}

async fn content(store: &Store, name: &str) -> Result<Option<Vec<u8>>, RemoteSkillError> {
    Ok(match store.get(name, None, LARGEST_FILE).await? {
        Got::Found(object) => Some(object.content),
        Got::Unchanged | Got::Missing => None,
    })
}

/// The line of the catalogue. Its name is that of the folder: files are found under it.
pub fn entry(name: String, skill: skills::Skill) -> Entry {
    Entry {
        name,
        description: skill.description,
        skill_directory: String::new(),
        when_to_use: skill.when_to_use,
        keywords: skill.keywords,
        tools: skill.bindings.tools,
        providers: skill.bindings.providers,
        categories: skill.bindings.categories,
    }
}
