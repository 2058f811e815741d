//! `ati provider validate` and `schema`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::super::{Format, output};
use crate::catalog::{Catalog, Specs};
use crate::config::{self, fields};
use crate::egress;
use crate::error::{Code, Failure, Problem};
use crate::keyring::Keyring;
use crate::route::Table;

/// Check each file on its own: its fields, and the documents that it refers to.
pub fn validate(files: &[PathBuf], strict: bool, format: Format) -> Result<u8, Failure> {
    let mut all_good = true;
    let mut report = Vec::new();
    for file in files {
        let (problems, warnings) = check(file);
        let good = problems.is_empty() && (warnings.is_empty() || !strict);
        all_good &= good;
        let texts = |list: &[Problem]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        report.push(json!({
            "file": file,
            "ok": good,
            "problems": texts(&problems),
            "warnings": texts(&warnings),
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

fn check(file: &Path) -> (Vec<Problem>, Vec<Problem>) {
    let (mut problems, mut warnings) = (Vec::new(), Vec::new());
    let manifest = match config::read_manifest(file) {
        Ok(manifest) => manifest,
        Err(problem) => return (vec![problem], warnings),
    };
    // Of the folder above the one that holds the manifest.
    let above = file.parent().and_then(Path::parent);
    let specs = above.map_or_else(|| Specs::of(&config::ati_dir()), Specs::of);
    let mut manifests = [manifest];
    let catalog = Catalog::build(&mut manifests, &specs, None, &mut problems, &mut warnings);
    catalog.compile_schemas(&mut warnings);
    // The keyring is usually on another machine: a key that is missing here is no finding.
    let mut missing = Vec::new();
    Table::build(
        &manifests,
        true,
        &Keyring::empty(),
        &egress::Settings::default(),
        &mut problems,
        &mut missing,
    );
    // Named egress addresses are configured there too.
    problems.retain(|problem| problem.key.as_deref() != Some("egress"));
    warnings.extend(
        missing
            .into_iter()
            .filter(|problem| problem.missing_credential.is_none()),
    );
    config::add_lines(&mut problems);
    config::add_lines(&mut warnings);
    (problems, warnings)
}

pub fn schema() -> Result<u8, Failure> {
    let schema: Value = fields::json_schema();
    output::pretty(&schema);
    Ok(0)
}
