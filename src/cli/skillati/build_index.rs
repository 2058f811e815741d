use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::cli::{Format, file_failure, output};
use crate::error::{Code, Failure};
use crate::files;
use crate::skills::remote::build_index::build;

/// Where the index is looked for first.
const RECOMMENDED: &str = "_skillati/catalog.v1.json";

#[derive(clap::Args)]
pub struct Args {
    /// The folder: one with a folder for each skill, or that of one skill
    #[arg(value_name = "FOLDER", required_unless_present = "source_dir")]
    source: Option<PathBuf>,

    /// The same
    #[arg(long, value_name = "FOLDER", conflicts_with = "source")]
    source_dir: Option<PathBuf>,

    /// Write the index to this file instead of printing it
    #[arg(long, value_name = "FILE")]
    output_file: Option<PathBuf>,
}

pub fn run(args: &Args, format: Format) -> Result<u8, Failure> {
    let folder = args.source.as_ref().or(args.source_dir.as_ref());
    let folder: &Path = folder.map_or(Path::new("."), PathBuf::as_path);
    let now = OffsetDateTime::now_utc();
    let now = now.replace_nanosecond(0).unwrap_or(now);
    let built = build(folder, &now.format(&Rfc3339).unwrap_or_default());
    let mut built = built.map_err(|e| file_failure(Code::InvalidValue, folder, e))?;
    let skipped: Vec<Value> = built
        .warnings
        .iter()
        .map(|warning| json!(warning.to_string()))
        .collect();
    let Some(path) = &args.output_file else {
        if !skipped.is_empty() {
            built.index["skipped"] = skipped.into();
        }
        output::pretty(&built.index);
        return Ok(0);
    };
    let text = serde_json::to_string_pretty(&built.index)
        .map_err(|e| Failure::new(Code::ExecutionFailed, "the index").because(e))?;
    files::write_atomic(path, (text + "\n").as_bytes(), 0o644)
        .map_err(|e| file_failure(Code::InvalidValue, path, e))?;
    let shown = path.display().to_string();
    output::lines_or_value(
        Some(format),
        || {
            output::line(&format!("Wrote {shown} ({} skills)", built.count));
            for warning in &built.warnings {
                output::line(&format!("Skipped: {warning}"));
            }
            output::line(&format!("Upload it as {RECOMMENDED}"));
        },
        || {
            let mut value = json!({
                "output": shown,
                "skills": built.count,
                "recommended_object": RECOMMENDED,
            });
            if !skipped.is_empty() {
                value["skipped"] = skipped.clone().into();
            }
            value
        },
    );
    Ok(0)
}
