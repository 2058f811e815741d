//! Runfiles, and folders that have one.

use std::path::Path;

use crate::catalog::json_reader::Findings;
use crate::catalog::runfile::{self, FILE};

pub fn knows(path: &Path) -> bool {
    if path.is_dir() {
        return path.join(FILE).is_file();
    }
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name == FILE || name.ends_with(".runfile") || name.ends_with(".run"))
}

pub fn check(path: &Path) -> Findings {
    let mut found = Findings::default();
    let runfile = runfile::load(path, &mut found);
    let is_tool = |one: &std::sync::Arc<runfile::Function>| one.description.is_some();
    if found.problems.is_empty() && !runfile.functions.iter().any(is_tool) {
        let message = "no function has '# @desc', so that there are no tools";
        found
            .warnings
            .push(crate::error::Problem::new(message).file(path));
    }
    found
}
