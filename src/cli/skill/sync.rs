//! `ati skill diff` and `update`: an installed skill, and what its source has now.

use serde_json::{Value, json};

use super::super::interrupt::{Ended, interruptible};
use super::super::{Format, output, runtime};
use super::copy::{self, Contents};
use super::diff::lines;
use super::install::{self, Found, NewSkill, Options};
use super::source::Source;
use super::{not_found, place};
use crate::error::{Code, Failure};
use crate::skills::integrity::{Change, Integrity, without_section};
use crate::skills::{METADATA, Skill};

#[derive(clap::Args)]
pub struct Update {
    /// The skill's name
    name: String,

    /// Let a manifest in the skill start programs or open routes
    #[arg(long)]
    allow_provider: bool,

    /// Also where the skill was changed since it was installed
    #[arg(long)]
    force: bool,
}

/// An installed skill next to its source.
struct Pair {
    skill: Skill,
    source: Source,
    here: Contents,
    there: Contents,
}

/// A file that differs.
struct Difference {
    change: Change,
    path: String,
    /// It was changed here, since it was installed.
    is_own: bool,
}

pub fn diff(name: &str, asked: Option<Format>) -> Result<u8, Failure> {
    let pair = match open(name)? {
        Ended::Done((pair, _)) => pair,
        Ended::Interrupted(code) => return Ok(code),
    };
    let differences = pair.differences()?;
    let source = pair.source.recorded();
    output::lines_or_value(
        asked,
        || {
            if differences.is_empty() {
                output::line(&format!("No differences between '{name}' and {source}"));
            }
            for one in &differences {
                one.print("");
                for line in pair.changed_lines(&one.path) {
                    output::line(&output::printable(&line));
                }
            }
        },
        || json!({"name": pair.skill.name, "source": source, "files": rows(&differences)}),
    );
    Ok(0)
}

pub fn update(args: &Update, asked: Option<Format>) -> Result<u8, Failure> {
    let name = args.name.as_str();
    let (pair, found) = match open(name)? {
        Ended::Done(opened) => opened,
        Ended::Interrupted(code) => return Ok(code),
    };
    let differences = pair.differences()?;
    let mut installed = Vec::new();
    if !differences.is_empty() {
        let options = Options {
            name: folder_name(&pair.skill),
            all: false,
            allow_provider: args.allow_provider,
            force: args.force,
            generate: None,
        };
        installed = match install::put(found, options)? {
            Ended::Done(installed) => installed,
            Ended::Interrupted(code) => return Ok(code),
        };
    }
    let (status, source) = match differences.is_empty() {
        true => ("up to date", pair.source.recorded()),
        false => ("updated", pair.source.recorded()),
    };
    output::lines_or_value(
        asked,
        || match differences.is_empty() {
            true => output::line(&format!("'{name}' is up to date.")),
            false => {
                output::line(&format!("Updated '{name}' from {source}"));
                differences.iter().for_each(|one| one.print("  "));
                installed.iter().for_each(NewSkill::print_provider);
            }
        },
        || {
            let mut updated = json!({
                "status": status,
                "name": pair.skill.name,
                "source": source,
                "files": rows(&differences),
            });
            if let Some(provider) = installed.first().and_then(NewSkill::provider) {
                updated["provider"] = provider;
            }
            updated
        },
    );
    Ok(0)
}

/// The name of its folder below `skills/`.
fn folder_name(skill: &Skill) -> Option<String> {
    let name = skill.folder.file_name()?;
    Some(name.to_str()?.to_owned())
}

fn open(name: &str) -> Result<Ended<(Pair, Found)>, Failure> {
    let installed = place::find(name).ok_or_else(|| not_found(name))?;
    let skill = installed.skill.map_err(|fault| {
        let path = installed.path.display();
        Failure::invalid(format!("{path}: {fault}"))
    })?;
    let recorded = skill.integrity.source_url.clone().ok_or_else(|| {
        let message = format!("nothing is known about where '{name}' came from");
        Failure::invalid(message).hint("'ati skill install' records it")
    })?;
    let mut source = Source::parse(&recorded, false)?;
    if let Source::Git(git) = &mut source {
        git.pin = skill.integrity.pinned_sha.clone();
    }
    let fetched = runtime()?.block_on(interruptible(install::fetch(source.clone())))?;
    let fetched = match fetched {
        Ended::Done(fetched) => fetched,
        Ended::Interrupted(code) => return Ok(Ended::Interrupted(code)),
    };
    let found = fetched.only()?;
    let here = copy::read(&skill.folder);
    let here = here.map_err(|e| Failure::from_error(Code::ExecutionFailed, e))?;
    let pair = Pair {
        skill,
        source,
        here: comparable(here),
        there: comparable(found.contents.clone()),
    };
    Ok(Ended::Done((pair, found)))
}

/// Without what ati itself has written into `skill.toml`.
fn comparable(mut contents: Contents) -> Contents {
    if let Some((text, executable)) = contents.remove(METADATA) {
        let own = without_section(&String::from_utf8_lossy(&text));
        if !own.trim().is_empty() {
            contents.insert(METADATA.to_owned(), (own.into_bytes(), executable));
        }
    }
    contents
}

impl Pair {
    /// The files that would change, in the order of their paths.
    fn differences(&self) -> Result<Vec<Difference>, Failure> {
        let now = Integrity::measure(&self.skill.folder);
        let now = now.map_err(|e| Failure::from_error(Code::ExecutionFailed, e))?;
        let own = self.skill.integrity.changes(&now);
        let mut paths: Vec<&String> = self.here.keys().chain(self.there.keys()).collect();
        paths.sort();
        paths.dedup();
        let differing = paths.into_iter().filter_map(|path| {
            let change = match (self.here.get(path), self.there.get(path)) {
                (Some(here), Some(there)) if here.0 == there.0 => return None,
                (Some(_), Some(_)) => Change::Modified,
                (None, _) => Change::Added,
                (_, None) => Change::Removed,
            };
            Some(Difference {
                change,
                is_own: own.iter().any(|(_, changed)| changed == path),
                path: path.clone(),
            })
        });
        Ok(differing.collect())
    }

    /// The lines that would change, where both are texts.
    fn changed_lines(&self, path: &str) -> Vec<String> {
        let text = |contents: &Contents| match contents.get(path) {
            None => Some(String::new()),
            Some((bytes, _)) => String::from_utf8(bytes.clone()).ok(),
        };
        match (text(&self.here), text(&self.there)) {
            (Some(here), Some(there)) => lines(&here, &there),
            _ => vec!["  (not text)".to_owned()],
        }
    }
}

impl Difference {
    fn print(&self, indent: &str) {
        let own = match self.is_own {
            true => " (changed here since it was installed)",
            false => "",
        };
        let (letter, path) = (self.change.letter(), output::printable(&self.path));
        output::line(&format!("{indent}{letter} {path}{own}"));
    }
}

fn rows(differences: &[Difference]) -> Vec<Value> {
    let row = |one: &Difference| {
        json!({
            "path": one.path,
            "change": one.change.letter().to_string(),
            "changed_here": one.is_own,
        })
    };
    differences.iter().map(row).collect()
}
