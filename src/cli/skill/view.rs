//! The skills that a caller may see: of this machine, or of the proxy.

use std::path::Path;

use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::local::Local;
use super::super::remote::{Remote, not_ati};
use super::not_found;
use crate::auth::session::{self, SESSION_TOKEN};
use crate::auth::{Scopes, token};
use crate::config;
use crate::error::{Failure, Problem};
use crate::skills::{REFERENCES, Registry, Skill, folder, registry};

pub enum View {
    Here(Box<Here>),
    Proxy(Box<Remote>),
}

/// This machine: its skills, and the tools that they are bound to.
pub struct Here {
    local: Local,
    skills: Registry,
}

/// A skill with its text.
pub struct Text {
    pub name: String,
    pub version: String,
    pub description: String,
    pub content: String,
}

/// The skills of this machine. Bad ones are skipped; `ati skill validate` and `ati doctor` tell
/// which, and a script that reads stderr sees nothing of it.
pub fn registry_here() -> Registry {
    let mut warnings: Vec<Problem> = Vec::new();
    let skills = Registry::load(&config::ati_dir(), &mut warnings);
    for warning in warnings {
        tracing::debug!("{warning}");
    }
    skills
}

impl View {
    pub fn open() -> Result<Self, Failure> {
        match Remote::from_environment()? {
            Some(remote) => Ok(View::Proxy(Box::new(remote))),
            None => Ok(View::Here(Box::new(Here {
                local: Local::load()?,
                skills: registry_here(),
            }))),
        }
    }

    /// Rows of a list, as `/skills` has them.
    pub fn rows(&self, filter: &registry::Filter<'_>) -> Result<Vec<Value>, Failure> {
        match self {
            View::Here(here) => {
                let found = here.visible().filtered(filter);
                Ok(found.into_iter().map(|skill| skill.item()).collect())
            }
            View::Proxy(remote) => list(remote.get("skills", &filter.pairs())?),
        }
    }

    /// What is known about a skill.
    pub fn meta(&self, name: &str) -> Result<Value, Failure> {
        match self {
            View::Here(here) => {
                let skill = here.find(name)?;
                let mut meta = skill.meta();
                meta["directory"] = json!(skill.folder);
                Ok(meta)
            }
            View::Proxy(remote) => object(one(remote, name, "", &[("meta", "true")])?),
        }
    }

    pub fn text(&self, name: &str) -> Result<Text, Failure> {
        match self {
            View::Here(here) => {
                let skill = here.find(name)?;
                Ok(Text {
                    name: skill.name.clone(),
                    version: skill.version.clone(),
                    description: skill.description.clone(),
                    content: skill.body.clone(),
                })
            }
            View::Proxy(remote) => {
                let answer = one(remote, name, "", &[])?;
                let text = |key: &str| answer[key].as_str().map(str::to_owned);
                Ok(Text {
                    name: text("name").ok_or_else(not_ati)?,
                    version: text("version").unwrap_or_default(),
                    description: text("description").unwrap_or_default(),
                    content: text("content").ok_or_else(not_ati)?,
                })
            }
        }
    }

    /// The names of its reference documents.
    pub fn references(&self, name: &str) -> Result<Vec<String>, Failure> {
        match self {
            View::Here(here) => Ok(folder::references(&here.find(name)?.folder)),
            View::Proxy(remote) => {
                let answer = one(remote, name, "", &[("refs", "true")])?;
                let names = answer["references"].as_array().into_iter().flatten();
                Ok(names.filter_map(Value::as_str).map(str::to_owned).collect())
            }
        }
    }

    /// Its reference documents with their texts. One that is no text is left out.
    pub fn reference_texts(&self, name: &str) -> Result<Vec<(String, String)>, Failure> {
        let files: Map<String, Value> = match self {
            View::Here(here) => {
                let bundled = folder::bundle(&here.find(name)?.folder);
                bundled.map_err(|e| unreadable(name, e))?.files
            }
            View::Proxy(remote) => match one(remote, name, "/bundle", &[])?["files"].take() {
                Value::Object(files) => files,
                _ => return Err(not_ati()),
            },
        };
        let below = format!("{REFERENCES}/");
        let texts = files.into_iter().filter_map(|(path, content)| {
            let path = path.strip_prefix(&below)?.to_owned();
            Some((path, content.as_str()?.to_owned()))
        });
        Ok(texts.collect())
    }

    /// The names of the skills of a tool: those that are bound to it, then those of its provider.
    pub fn of_tool(&self, tool: &str) -> Result<Vec<String>, Failure> {
        match self {
            View::Here(here) => {
                let visible = here.visible();
                let names = match here.local.catalog().find(tool) {
                    Some(tool) => here.skills.names_for(tool),
                    None => {
                        let bound = here.skills.bound_to_tool(tool);
                        bound.map(|skill| skill.name.as_str()).collect()
                    }
                };
                let seen = names.into_iter().filter(|name| visible.get(name).is_some());
                Ok(seen.map(str::to_owned).collect())
            }
            View::Proxy(remote) => {
                let answer = match remote.tool(tool) {
                    Ok(tool) => tool["skills"].clone(),
                    // A tool that this caller may not see can have skills that it may.
                    Err(_) => json!([]),
                };
                let named = answer.as_array().into_iter().flatten();
                let mut names: Vec<String> =
                    named.filter_map(Value::as_str).map(str::to_owned).collect();
                let bound = list(remote.get("skills", &[("tool", tool)])?)?;
                for row in &bound {
                    let name = row["name"].as_str().unwrap_or_default();
                    if !names.iter().any(|known| known == name) {
                        names.push(name.to_owned());
                    }
                }
                let all = list(remote.get("skills", &[])?)?;
                names.retain(|name| all.iter().any(|row| row["name"] == name.as_str()));
                Ok(names)
            }
        }
    }

    /// The skills that scopes load by themselves: those of a file, or the caller's own.
    pub fn resolve(&self, file: Option<&Path>) -> Result<Vec<Value>, Failure> {
        let scopes = match file {
            Some(file) => Some(scopes_of(file)?),
            None => None,
        };
        match self {
            View::Here(here) => {
                let scopes = match scopes {
                    Some(scopes) => Scopes::parse(&scopes.join(" ")),
                    None => here.own_scopes(),
                };
                let resolved = here.skills.resolve(&scopes, here.local.catalog());
                let visible = here.visible();
                let seen = resolved.into_iter().filter(|skill| visible.contains(skill));
                Ok(seen.map(|skill| skill.item()).collect())
            }
            View::Proxy(remote) => {
                let scopes = scopes.unwrap_or_else(|| {
                    let own = remote.caller().token.as_deref().and_then(claimed);
                    let own = own.unwrap_or_else(|| "*".to_owned());
                    own.split_ascii_whitespace().map(str::to_owned).collect()
                });
                let body = json!({"scopes": scopes}).to_string();
                let answer = remote.ask(Method::POST, "skills/resolve", &[], Some(body))?;
                if answer.status != 200 {
                    return Err(answer.failure(remote.caller()));
                }
                let answer = serde_json::from_str(&answer.body).map_err(|_| not_ati())?;
                list(answer)
            }
        }
    }
}

impl Here {
    fn visible(&self) -> registry::Visible<'_> {
        let scopes = &self.local.identity.scopes;
        self.skills.visible(scopes, self.local.catalog())
    }

    fn find(&self, name: &str) -> Result<&Skill, Failure> {
        let found = self.visible().get(name);
        found.map(AsRef::as_ref).ok_or_else(|| not_found(name))
    }

    /// Where no token keys are configured, what the token says is taken as it is.
    fn own_scopes(&self) -> Scopes {
        let checked = self.local.identity.expires.is_some();
        let token = session::resolve(SESSION_TOKEN).ok().flatten();
        match token.as_deref().and_then(claimed) {
            Some(claimed) if !checked => Scopes::parse(&claimed),
            _ => self.local.identity.scopes.clone(),
        }
    }
}

/// The scopes that a token claims.
fn claimed(token: &str) -> Option<String> {
    let claims = token::inspect(token)?;
    Some(claims.get("scope")?.as_str()?.to_owned())
}

#[derive(Deserialize)]
struct ScopesFile {
    scopes: Vec<String>,
}

fn scopes_of(file: &Path) -> Result<Vec<String>, Failure> {
    let failed = |e: &dyn std::fmt::Display| {
        let shown = file.display();
        Failure::invalid(format!("--scopes {shown}: {e}"))
            .hint("it has the scopes as JSON: {\"scopes\": [\"skill:x\", \"tool:y\"]}")
    };
    let text = crate::files::read_text(file).map_err(|e| failed(&e))?;
    let read: ScopesFile = serde_json::from_str(&text).map_err(|e| failed(&e))?;
    Ok(read.scopes)
}

fn unreadable(name: &str, error: crate::skills::BundleError) -> Failure {
    Failure::from_error(crate::error::Code::ExecutionFailed, error)
        .hint(format!("'ati skill validate {name}' checks it"))
}

/// An answer of `/skills/{name}` or below it.
fn one(remote: &Remote, name: &str, below: &str, query: &[(&str, &str)]) -> Result<Value, Failure> {
    let segment = utf8_percent_encode(name, NON_ALPHANUMERIC);
    let path = format!("skills/{segment}{below}");
    let answer = remote.ask(Method::GET, &path, query, None)?;
    match answer.status {
        200 => serde_json::from_str(&answer.body).map_err(|_| not_ati()),
        404 if answer.body.contains("Skill '") => Err(not_found(name)),
        _ => Err(answer.failure(remote.caller())),
    }
}

fn object(value: Value) -> Result<Value, Failure> {
    match value.is_object() {
        true => Ok(value),
        false => Err(not_ati()),
    }
}

fn list(value: Value) -> Result<Vec<Value>, Failure> {
    match value {
        Value::Array(rows) if rows.iter().all(|row| row["name"].is_string()) => Ok(rows),
        _ => Err(not_ati()),
    }
}
