//! What callers get: the bodies of `/skillati`, which commands print too.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::catalogue::{Catalogue, Skill, directory};
use super::path::{invalid, is_prefix, resolve};
use super::reader::Reader;
use super::slot::Served;
use super::substitute::substitute;
use crate::error::RemoteSkillError;
use crate::skills::{self, DOCUMENT, Grants, REFERENCES, Visible, is_skill_name};

/// A JSON body, and how old what it tells is.
pub struct Answer {
    pub body: Vec<u8>,
    pub age: Duration,
    /// The registry couldn't be asked again.
    pub stale: bool,
}

impl Answer {
    fn new<T>(body: &Value, served: &Served<T>) -> Self {
        Answer {
            body: body.to_string().into_bytes(),
            age: served.age,
            stale: served.stale,
        }
    }

    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// What a caller may see.
pub struct Viewer<'a> {
    pub grants: Grants<'a>,
    /// The skills of this machine that it sees: their names open those of the catalogue too.
    pub installed: Visible<'a>,
}

impl Viewer<'_> {
    /// One that the catalogue doesn't list must be named by a scope.
    pub fn sees(&self, name: &str, skill: Option<&Skill>) -> bool {
        let open = match skill {
            Some(skill) => self.grants.open(name, &skill.bindings),
            None => self.grants.names(name),
        };
        open || self.installed.get(name).is_some_and(|own| own.name == name)
    }
}

impl Reader {
    /// The skills that a caller sees.
    pub async fn catalog(
        &self,
        viewer: &Viewer<'_>,
        search: Option<&str>,
    ) -> Result<Answer, RemoteSkillError> {
        let served = self.catalogue().await?;
        let catalogue = &served.value;
        let is_visible = |skill: &Skill| viewer.sees(&skill.entry.name, Some(skill));
        let found: Vec<&Skill> = match search.filter(|words| !words.trim().is_empty()) {
            Some(words) => catalogue.search(words, is_visible),
            None => {
                let all = catalogue.skills.iter();
                all.filter(|skill| is_visible(skill)).collect()
            }
        };
        let texts: Vec<&str> = found.iter().map(|skill| &*skill.text).collect();
        Ok(Answer {
            body: format!("{{\"skills\":[{}]}}", texts.join(",")).into_bytes(),
            age: served.age,
            stale: served.stale,
        })
    }

    /// A skill as an agent activates it.
    pub async fn read(&self, viewer: &Viewer<'_>, name: &str) -> Result<Answer, RemoteSkillError> {
        let catalogue = self.visible(viewer, name).await?;
        let served = self
            .file(name, DOCUMENT)
            .await
            .map_err(|e| no_skill(e, name))?;
        let text = String::from_utf8_lossy(&served.value.content);
        // Front matter that can't be read is a part of the text.
        let parsed = skills::Skill::parse(name, Some(text.as_bytes()), None).ok();
        let body = parsed.as_ref().map_or(&*text, |parsed| &parsed.body);
        let is_known = |other: &str| catalogue.value.find(other).is_some();
        let listed = catalogue.value.find(name);
        let listed = listed.map(|skill| skill.entry.description.as_str());
        let own = parsed.as_ref().map(|parsed| parsed.description.as_str());
        let description = listed.filter(|text| !text.is_empty()).or(own);
        let body = json!({
            "name": name,
            "description": description.unwrap_or_default(),
            "skill_directory": directory(name),
            "content": substitute(body, name, is_known),
        });
        Ok(Answer::new(&body, &served))
    }

    pub async fn resources(
        &self,
        viewer: &Viewer<'_>,
        name: &str,
        prefix: Option<&str>,
    ) -> Result<Answer, RemoteSkillError> {
        let wanted = prefix.unwrap_or_default().trim_start_matches("./");
        if !is_prefix(wanted) {
            return Err(invalid(wanted));
        }
        let catalogue = self.visible(viewer, name).await?;
        let mut resources = self.paths(name, &catalogue.value).await?;
        resources.retain(|path| path.starts_with(wanted));
        let body = json!({"name": name, "prefix": prefix, "resources": resources});
        Ok(Answer::new(&body, &catalogue))
    }

    pub async fn file_at(
        &self,
        viewer: &Viewer<'_>,
        name: &str,
        path: &str,
    ) -> Result<Answer, RemoteSkillError> {
        self.visible(viewer, name).await?;
        let place = resolve(name, path)?;
        // A sibling is as visible from here as it is by its own name.
        if place.skill != name {
            self.visible(viewer, &place.skill).await?;
        }
        let served = self.file(&place.skill, &place.path).await?;
        let mut body = json!({
            "requested_skill": name,
            "resolved_skill": place.skill,
            "path": place.path,
        });
        match std::str::from_utf8(&served.value.content) {
            Ok(text) => {
                body["kind"] = "text".into();
                body["content"] = text.into();
            }
            Err(_) => {
                body["kind"] = "binary".into();
                body["encoding"] = "base64".into();
                body["content"] = STANDARD.encode(&served.value.content).into();
            }
        }
        Ok(Answer::new(&body, &served))
    }

    pub async fn references(
        &self,
        viewer: &Viewer<'_>,
        name: &str,
    ) -> Result<Answer, RemoteSkillError> {
        let catalogue = self.visible(viewer, name).await?;
        let paths = self.paths(name, &catalogue.value).await?;
        let names = paths.iter().filter_map(|path| {
            let (folder, name) = path.split_once('/')?;
            (folder == REFERENCES).then_some(name)
        });
        let names: Vec<&str> = names.collect();
        let body = json!({"name": name, "references": names});
        Ok(Answer::new(&body, &catalogue))
    }

    pub async fn reference(
        &self,
        viewer: &Viewer<'_>,
        name: &str,
        reference: &str,
    ) -> Result<Answer, RemoteSkillError> {
        self.visible(viewer, name).await?;
        let path = format!("{REFERENCES}/{reference}");
        let place = resolve(name, &path).ok().filter(|place| place.path == path);
        if reference.is_empty() || place.is_none() {
            return Err(invalid(reference));
        }
        let served = self.file(name, &path).await?;
        let mut body = json!({"name": name, "reference": reference});
        match std::str::from_utf8(&served.value.content) {
            Ok(text) => body["content"] = text.into(),
            Err(_) => {
                body["content"] = STANDARD.encode(&served.value.content).into();
                body["encoding"] = "base64".into();
            }
        }
        Ok(Answer::new(&body, &served))
    }

    /// A file of a skill that the caller was found to see.
    pub async fn content(&self, name: &str, path: &str) -> Result<Vec<u8>, RemoteSkillError> {
        let served = self.file(name, path).await?;
        Ok(served.value.content.clone())
    }

    /// The catalogue, if the caller sees this skill. One that is hidden and one that doesn't exist
    /// are the same to it.
    async fn visible(
        &self,
        viewer: &Viewer<'_>,
        name: &str,
    ) -> Result<Served<Catalogue>, RemoteSkillError> {
        let hidden = || {
            let end = name.floor_char_boundary(100);
            RemoteSkillError::NoSuchSkill(name[..end].escape_default().to_string())
        };
        if !is_skill_name(name) {
            return Err(hidden());
        }
        let catalogue = self.catalogue().await?;
        match viewer.sees(name, catalogue.value.find(name)) {
            true => Ok(catalogue),
            false => Err(hidden()),
        }
    }

    async fn paths(
        &self,
        name: &str,
        catalogue: &Catalogue,
    ) -> Result<Vec<String>, RemoteSkillError> {
        match catalogue
            .find(name)
            .and_then(|skill| skill.resources.clone())
        {
            Some(resources) => Ok(resources),
            None => self.listed(name).await,
        }
    }
}

fn no_skill(error: RemoteSkillError, name: &str) -> RemoteSkillError {
    match error {
        RemoteSkillError::NoSuchPath { .. } => RemoteSkillError::NoSuchSkill(name.to_owned()),
        other => other,
    }
}
