//! `ati provider validate` and `schema`. One validator for every kind of file that tools come from.

mod atip;
mod cmp;
mod manifest;
mod runfile;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::super::{Format, output};
use crate::catalog::json_reader::Findings;
use crate::config::fields;
use crate::error::{Code, Failure, Problem};

/// A kind of file or folder that can be checked.
struct Kind {
    name: &'static str,
    /// Whether a path is of this kind, by its name and by what it looks like.
    knows: fn(&Path) -> bool,
    check: fn(&Path) -> Findings,
}

/// The first that knows a path checks it. What none knows is taken for a manifest.
const KINDS: &[Kind] = &[
    Kind {
        name: "atip",
        knows: atip::knows,
        check: atip::check,
    },
    Kind {
        name: "cmp",
        knows: cmp::knows,
        check: cmp::check,
    },
    Kind {
        name: "runfile",
        knows: runfile::knows,
        check: runfile::check,
    },
    Kind {
        name: "manifest",
        knows: |_| true,
        check: manifest::check,
    },
];

/// Check each file on its own: its fields, and the documents that it refers to.
pub fn validate(files: &[PathBuf], strict: bool, format: Format) -> Result<u8, Failure> {
    let mut all_good = true;
    let mut report = Vec::new();
    for file in files {
        let kind = KINDS.iter().find(|kind| (kind.knows)(file));
        let (name, found) = match kind {
            _ if !file.exists() => ("", missing(file)),
            Some(kind) => (kind.name, (kind.check)(file)),
            None => ("", Findings::default()),
        };
        let good = found.problems.is_empty() && (found.warnings.is_empty() || !strict);
        all_good &= good;
        let texts = |list: &[Problem]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        report.push(json!({
            "file": file,
            "kind": name,
            "ok": good,
            "problems": texts(&found.problems),
            "warnings": texts(&found.warnings),
        }));
    }
    if format == Format::Json {
        output::pretty(&report);
    } else {
        for entry in &report {
            let word = if entry["ok"] == true { "ok" } else { "not ok" };
            output::line(&format!(
                "{}: {word}",
                entry["file"].as_str().unwrap_or_default()
            ));
            for (label, key) in [("problem", "problems"), ("warning", "warnings")] {
                for text in entry[key].as_array().into_iter().flatten() {
                    output::line(&format!("  {label}: {}", text.as_str().unwrap_or_default()));
                }
            }
        }
    }
    Ok(if all_good {
        0
    } else {
        Code::InvalidValue.exit_code()
    })
}

fn missing(file: &Path) -> Findings {
    Findings {
        problems: vec![Problem::new("there is no such file or folder").file(file)],
        warnings: Vec::new(),
    }
}

pub fn schema() -> Result<u8, Failure> {
    let schema: Value = fields::json_schema();
    output::pretty(&schema);
    Ok(0)
}
