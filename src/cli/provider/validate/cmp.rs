//! CMP: the folder of a tool, a folder of such folders, or one of a tool's two files.

use std::path::{Path, PathBuf};

use crate::catalog::cmp::{self, CmpTool, TOOL_FOLDERS};
use crate::catalog::json_reader::Findings;
use crate::error::Problem;
use crate::process;

pub fn knows(path: &Path) -> bool {
    !folders(path).is_empty()
}

/// The folders of the tools that a path means.
fn folders(path: &Path) -> Vec<PathBuf> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let is_description = |folder: &Path| {
        TOOL_FOLDERS
            .iter()
            .any(|name| folder.ends_with(Path::new(name)))
    };
    let above = |path: &Path| path.parent().map(Path::to_owned);
    let is_file_of_cmp = ["manifest.json", "capability.json"]
        .iter()
        .any(|name| path.ends_with(Path::new(name)));
    let tool = match path.parent() {
        Some(folder) if is_file_of_cmp && is_description(folder) => above(folder),
        _ if is_description(&path) => above(&path).filter(|folder| cmp::is_tool(folder)),
        _ => None,
    };
    match tool {
        Some(tool) => vec![tool],
        None if path.is_dir() => cmp::find(&path).unwrap_or_default(),
        None => Vec::new(),
    }
}

pub fn check(path: &Path) -> Findings {
    let mut found = Findings::default();
    for folder in folders(path) {
        if let Some(tool) = cmp::read(&folder, &mut found) {
            found.warnings.extend(missing_programs(&tool));
        }
    }
    found
}

/// Programs that this machine doesn't have. It may be another machine that needs them.
fn missing_programs(tool: &CmpTool) -> Vec<Problem> {
    let own = tool.bin();
    let is_there = |name: &str| {
        let own = own.as_ref().is_some_and(|bin| bin.join(name).is_file());
        own || process::find_program(name, &[]).is_ok()
    };
    let named = tool.binary.iter().chain(&tool.requires).chain(&tool.wraps);
    let run = tool.intents.iter().map(|intent| intent.command.program());
    let mut names: Vec<&str> = named.map(String::as_str).chain(run).collect();
    names.sort_unstable();
    names.dedup();
    let missing = names.into_iter().filter(|name| !is_there(name));
    missing
        .map(|name| {
            let message = format!("the program '{name}' is neither in its bin/ nor in PATH");
            Problem::new(message).file(&tool.folder)
        })
        .collect()
}
