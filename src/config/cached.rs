//! Providers that were loaded for a while: `<ati_dir>/cache/providers/<name>.json`.

use std::path::{Path, PathBuf};

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use toml::Table;
use tracing::debug;

use super::manifest::{ManifestFile, Origin, is_provider_name};
use crate::clock::unix_now;

/// What of a cached provider is a field of a manifest.
const FIELDS: [&str; 15] = [
    "base_url",
    "auth_type",
    "auth_key_name",
    "auth_header_name",
    "auth_query_name",
    "auth_secret_name",
    "oauth2_token_url",
    "mcp_transport",
    "mcp_url",
    "mcp_command",
    "mcp_args",
    "mcp_env",
    "cli_command",
    "cli_default_args",
    "cli_env",
];

pub fn path(ati_dir: &Path, name: &str) -> PathBuf {
    folder(ati_dir).join(format!("{name}.json"))
}

fn folder(ati_dir: &Path) -> PathBuf {
    ati_dir.join("cache").join("providers")
}

/// Those whose time isn't over; the others are removed. One that can't be read is nobody's problem but its own.
pub fn read(ati_dir: &Path) -> Vec<ManifestFile> {
    let Ok(entries) = std::fs::read_dir(folder(ati_dir)) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
        .collect();
    files.sort();
    files.iter().filter_map(|path| read_one(path)).collect()
}

fn read_one(path: &Path) -> Option<ManifestFile> {
    // Commands are silent where they succeed; the server says so too, at its debug level.
    let unusable = |why: &str| debug!("cached provider {}: {why}", path.display());
    let text = std::fs::read(path).ok()?;
    let Ok(cached) = serde_json::from_slice::<Value>(&text) else {
        unusable("not JSON");
        return None;
    };
    let said = |key: &str| cached[key].as_str().filter(|text| !text.is_empty());
    let (Some(name), Some(handler), Some(created)) =
        (said("name"), said("provider_type"), said("created_at"))
    else {
        unusable("it lacks a name, a type or a date");
        return None;
    };
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    if stem != Some(name) || !is_provider_name(name) || !matches!(handler, "openapi" | "mcp") {
        unusable("its name is not its file's, or its type is not one that can be loaded");
        return None;
    }
    let Some(remaining_seconds) = remaining(created, cached["ttl_seconds"].as_u64().unwrap_or(0))
    else {
        // Another process may have been quicker.
        let _ = std::fs::remove_file(path);
        return None;
    };
    let mut provider = Table::new();
    let mut set = |key: &str, value: toml::Value| drop(provider.insert(key.to_owned(), value));
    set("name", name.into());
    set("handler", handler.into());
    set("description", format!("{name} (loaded for a while)").into());
    for key in FIELDS {
        let value = &cached[key];
        if !value.is_null()
            && let Ok(value) = toml::Value::try_from(value)
        {
            set(key, value);
        }
    }
    Some(ManifestFile {
        path: path.to_path_buf(),
        name: name.to_owned(),
        handler: handler.to_owned(),
        provider,
        tools: Vec::new(),
        unknown: Vec::new(),
        origin: Origin::Cached { remaining_seconds },
        spec: said("spec_content").map(str::to_owned),
    })
}

fn remaining(created: &str, ttl: u64) -> Option<u64> {
    let created = OffsetDateTime::parse(created, &Rfc3339).ok()?;
    let end = u64::try_from(created.unix_timestamp())
        .ok()?
        .saturating_add(ttl);
    end.checked_sub(unix_now()).filter(|left| *left > 0)
}
