//! `ati skill verify`: an installed skill, and the digests of its installation.

use serde_json::{Value, json};

use super::super::{Format, output};
use super::{not_found, place};
use crate::error::{Code, Failure};
use crate::skills::Installed;
use crate::skills::integrity::{Change, Integrity};

/// What is known about one skill.
struct Verified {
    name: String,
    /// None: no digest was recorded.
    hash: Option<String>,
    changes: Vec<(Change, String)>,
}

pub fn run(name: Option<&str>, asked: Option<Format>) -> Result<u8, Failure> {
    let installed = match name {
        Some(name) => vec![place::find(name).ok_or_else(|| not_found(name))?],
        None => place::all(),
    };
    let mut verified = Vec::new();
    for one in &installed {
        match verify(one) {
            Ok(mut found) => {
                // Of two skills with the same name, the one that isn't used has its folder's.
                if one.shadowed_by(&installed).is_some() {
                    found.name = one.folder_name().unwrap_or_default().to_owned();
                }
                verified.push(found);
            }
            Err(failure) if name.is_some() => return Err(failure),
            // A folder that is no skill was never installed.
            Err(_) => {}
        }
    }
    let failed: Vec<&Verified> = verified
        .iter()
        .filter(|one| !one.changes.is_empty())
        .collect();
    if failed.is_empty() {
        output::lines_or_value(
            asked,
            || verified.iter().for_each(|one| output::line(&one.line())),
            || match (name, verified.as_slice()) {
                (Some(_), [one]) => one.as_json(),
                _ => verified.iter().map(Verified::as_json).collect(),
            },
        );
        return Ok(0);
    }
    let names: Vec<String> = failed.iter().map(|one| format!("'{}'", one.name)).collect();
    let changes = failed.iter().flat_map(|one| &one.changes);
    let changes: Vec<String> = changes.map(|(change, path)| told(*change, path)).collect();
    let message = format!("Integrity check failed for {}", names.join(", "));
    let failure = Failure::new(Code::ExecutionFailed, message).because(changes.join(", "));
    Err(failure
        .hint("'ati skill diff' shows the difference, 'ati skill update --force' restores it"))
}

fn told(change: Change, path: &str) -> String {
    let path = output::printable(path);
    match change {
        Change::Modified => format!("{path} was changed"),
        Change::Added => format!("{path} was added"),
        Change::Removed => format!("{path} is missing"),
    }
}

fn verify(installed: &Installed) -> Result<Verified, Failure> {
    let skill = installed.skill.as_ref().map_err(|fault| {
        let path = installed.path.display();
        Failure::invalid(format!("{path}: {fault}"))
    })?;
    let recorded = &skill.integrity;
    let is_recorded = recorded.content_hash.is_some() || !recorded.files.is_empty();
    let changes = match is_recorded {
        false => Vec::new(),
        true => {
            let now = Integrity::measure(&skill.folder);
            let now = now.map_err(|e| Failure::from_error(Code::ExecutionFailed, e))?;
            recorded.changes(&now)
        }
    };
    let first = recorded.files.values().next();
    Ok(Verified {
        name: skill.name.clone(),
        hash: recorded.content_hash.as_ref().or(first).cloned(),
        changes,
    })
}

impl Verified {
    fn line(&self) -> String {
        let name = &self.name;
        match &self.hash {
            None => format!("'{name}' has no recorded hash: it was not installed by ati"),
            Some(hash) => {
                let begin = crate::text::clip(hash, 16);
                format!("VERIFIED — '{name}' integrity OK (SHA-256: {begin}...)")
            }
        }
    }

    fn as_json(&self) -> Value {
        json!({
            "name": self.name,
            "status": if self.hash.is_some() { "verified" } else { "no hash" },
            "content_hash": self.hash,
        })
    }
}
