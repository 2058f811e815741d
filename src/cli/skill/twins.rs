//! Skills with the same name in two folders. Only one of them could be used, so the second one
//! isn't installed.

use std::collections::HashMap;
use std::path::PathBuf;

use super::place::{self, Staging};
use crate::error::Failure;
use crate::skills::{Installed, folder};

/// The installed folders that give way to the new ones, which have skills of their names. Without
/// `force` none does.
pub fn replaced(staging: &Staging, folders: &[&str], force: bool) -> Result<Vec<PathBuf>, Failure> {
    let mut new: HashMap<String, &str> = HashMap::new();
    for own in folders {
        let skill = folder::read(&staging.path(own));
        let skill = skill.map_err(|fault| Failure::invalid(format!("'{own}': {fault}")))?;
        if let Some(first) = new.get(&skill.name) {
            let message = format!("'{first}' and '{own}' have the same name: '{}'", skill.name);
            return Err(Failure::invalid(message));
        }
        new.insert(skill.name, own);
    }
    let mut replaced = Vec::new();
    let installed = place::all();
    let stays = |one: &&Installed| one.folder_name().is_none_or(|own| !folders.contains(&own));
    for one in installed.iter().filter(stays) {
        // A skill is also found by the name of its folder.
        let names = [
            one.skill.as_ref().ok().map(|skill| skill.name.as_str()),
            one.folder_name(),
        ];
        let Some(name) = names
            .into_iter()
            .flatten()
            .find(|name| new.contains_key(*name))
        else {
            continue;
        };
        if !force {
            let (own, path) = (new[name], one.path.display());
            let message = format!("'{own}' has the name of an installed skill: '{name}' in {path}");
            return Err(Failure::invalid(message).hint("--force replaces that one"));
        }
        replaced.push(one.path.clone());
    }
    Ok(replaced)
}
