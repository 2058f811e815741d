//! ATIP: metadata, shims and patterns, and a whole folder `agent-tools` of them.

use std::path::{Path, PathBuf};

use crate::catalog::atip::{self, folders};
use crate::catalog::json_reader::Findings;
use crate::error::Problem;

/// JSON with `atip` or `patterns` in it, or with a mistake in it where such files are; and the
/// folder of them.
pub fn knows(path: &Path) -> bool {
    if path.is_dir() {
        return folders::PARTS.iter().any(|part| path.join(part).is_dir());
    }
    if path.extension().is_none_or(|extension| extension != "json") {
        return false;
    }
    let text = crate::files::read_text(path).unwrap_or_default();
    match serde_json::from_str::<serde_json::Value>(&text) {
        Ok(document) => {
            let is_ours = document.get("atip").is_some() || document.get("patterns").is_some();
            is_ours || in_known_folder(path)
        }
        Err(_) => text.contains("\"atip\"") || in_known_folder(path),
    }
}

fn in_known_folder(path: &Path) -> bool {
    let mut above = path.components().rev().skip(1).take(2);
    above.any(|part| {
        folders::PARTS
            .iter()
            .any(|known| part.as_os_str() == *known)
    })
}

pub fn check(path: &Path) -> Findings {
    if !path.is_dir() {
        return check_file(path);
    }
    let mut all = Findings::default();
    let mut files: Vec<PathBuf> = folders::documents(path).collect();
    files.sort();
    for file in files {
        let found = check_file(&file);
        all.problems.extend(found.problems);
        all.warnings.extend(found.warnings);
    }
    all
}

fn check_file(path: &Path) -> Findings {
    let text = match crate::files::read_text(path) {
        Ok(text) => text,
        Err(error) => {
            return Findings {
                problems: vec![Problem::new(error.to_string()).file(path)],
                warnings: Vec::new(),
            };
        }
    };
    atip::check(path, &text)
}
