//! `[provider.cli_sandbox]`, as a manifest writes it.

use std::path::{Component, Path, PathBuf};

use crate::config::Section;
use crate::process::Sandbox;

pub(super) const KEY: &str = "cli_sandbox";

/// None where the table isn't there.
pub(super) fn read(s: &mut Section<'_>) -> Option<Sandbox> {
    if !s.has(KEY) {
        s.ignore(KEY);
        return None;
    }
    let mut table = s.section(KEY);
    let sandbox = Sandbox {
        read: paths(&mut table, "read"),
        write: paths(&mut table, "write"),
        net: table.take("net").unwrap_or(true),
        cpu_seconds: limit(&mut table, "cpu_seconds"),
        memory_bytes: limit(&mut table, "memory_bytes"),
        processes: limit(&mut table, "processes"),
        file_bytes: limit(&mut table, "file_bytes"),
    };
    // Not leniently: a misspelt key would leave a door open.
    table.finish();
    Some(sandbox)
}

fn paths(table: &mut Section<'_>, key: &'static str) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> = table.take(key).unwrap_or_default();
    let is_plain = |path: &Path| {
        let up = path.components().any(|part| part == Component::ParentDir);
        path.is_absolute() && !up
    };
    let (plain, other): (Vec<PathBuf>, Vec<PathBuf>) =
        paths.into_iter().partition(|path| is_plain(path));
    for path in other {
        let found = path.display();
        let message = format!("expected absolute paths without '..', found '{found}'");
        table.problem(key, message);
    }
    plain
}

fn limit(table: &mut Section<'_>, key: &'static str) -> Option<u64> {
    let limit: Option<u64> = table.take(key);
    if limit == Some(0) {
        table.problem(key, "expected more than 0: a program needs some to start");
    }
    limit
}
