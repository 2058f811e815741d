//! `ati provider scan --cmp`: a manifest for each tool in CMP's folders that has none yet.

use std::path::Path;

use serde_json::{Value, json};
use tracing::warn;

use super::super::{Format, output};
use super::write::{self, Manifest};
use crate::catalog::cmp::{self, CmpTool};
use crate::catalog::json_reader::Findings;
use crate::config::{self, HandlerKind, is_provider_name};
use crate::error::Failure;

pub fn scan(asked: Option<Format>) -> Result<u8, Failure> {
    let mut rows = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for place in config::cmp_folders() {
        for folder in cmp::find(&place).unwrap_or_default() {
            let mut found = Findings::default();
            let tool = cmp::read(&folder, &mut found);
            for problem in found.problems.iter().chain(&found.warnings) {
                warn!("{problem}");
            }
            let Some(tool) = tool else {
                continue;
            };
            let name = provider_name(&tool, &folder);
            // Of two places with a tool of the same name the first counts.
            if names.contains(&name) {
                continue;
            }
            let state = add(&name, &tool, &folder)?;
            rows.push(json!({
                "name": name,
                "domain": tool.domain,
                "folder": folder,
                "intents": tool.intents.len(),
                "manifest": state,
            }));
            names.push(name);
        }
    }
    let places = config::cmp_folders();
    if rows.is_empty() {
        let places: Vec<String> = places.iter().map(|one| one.display().to_string()).collect();
        warn!("No CMP tools in {}", places.join(", "));
    }
    output::value(&Value::Array(rows), asked.unwrap_or(Format::Json));
    Ok(0)
}

/// The tool's own name, or else its folder's.
fn provider_name(tool: &CmpTool, folder: &Path) -> String {
    let own = Some(tool.name.clone()).filter(|name| is_provider_name(name));
    own.unwrap_or_else(|| {
        let folder = folder.file_name().unwrap_or_default().to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        folder
            .chars()
            .map(|c| if plain(c) { c } else { '_' })
            .take(config::LONGEST_PROVIDER_NAME)
            .collect()
    })
}

/// Writes a manifest, unless there is one of the name: that stays as it is.
fn add(name: &str, tool: &CmpTool, folder: &Path) -> Result<&'static str, Failure> {
    let path = write::manifest_path(name);
    if path.exists() {
        let is_ours = config::read_manifest(&path).is_ok_and(|manifest| {
            let known = manifest
                .provider
                .get("cmp_path")
                .and_then(toml::Value::as_str);
            manifest.handler == HandlerKind::Cmp && known.map(Path::new) == Some(folder)
        });
        return Ok(match is_ours {
            true => "unchanged",
            false => "kept: another manifest has this name",
        });
    }
    let mut manifest = Manifest::new(name, &tool.summary, "cmp");
    let category = Some(tool.domain.as_str()).filter(|domain| !domain.is_empty());
    manifest
        .optional("category", category)
        .text("cmp_path", &folder.to_string_lossy());
    write::save(&path, manifest.render().as_bytes())?;
    Ok("written")
}
