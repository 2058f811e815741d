use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};
use tracing::info;

use super::super::local::{Local, ago};
use super::super::{Format, output};
use super::name;
use super::write::manifest_path;
use crate::catalog::listing_cache;
use crate::config::{self, HandlerKind, ManifestFile, Origin};
use crate::error::{Code, Failure};

/// What there is, on this machine.
fn manifests() -> Result<Vec<ManifestFile>, Failure> {
    let mut problems = Vec::new();
    let found = config::read_manifests(&config::ati_dir(), &mut problems);
    if problems.is_empty() {
        Ok(found)
    } else {
        Err(Failure::from_problems("the manifests", &problems))
    }
}

fn text<'a>(manifest: &'a ManifestFile, key: &str) -> &'a str {
    manifest
        .provider
        .get(key)
        .and_then(toml::Value::as_str)
        .unwrap_or_default()
}

fn is_internal(manifest: &ManifestFile) -> bool {
    let internal = manifest.provider.get("internal");
    internal.and_then(toml::Value::as_bool).unwrap_or(false)
}

fn kind(manifest: &ManifestFile) -> String {
    match &manifest.handler {
        HandlerKind::Mcp => match text(manifest, "mcp_transport") {
            "" => "mcp/stdio".to_owned(),
            transport => format!("mcp/{transport}"),
        },
        handler @ (HandlerKind::OpenApi | HandlerKind::Cli) => handler.name().to_owned(),
        _ => "http".to_owned(),
    }
}

fn auth(manifest: &ManifestFile) -> &str {
    match text(manifest, "auth_type") {
        "" => "none",
        auth => auth,
    }
}

/// `live`: MCP servers are asked how they are.
pub fn list(live: bool, format: Format) -> Result<u8, Failure> {
    let manifests = manifests()?;
    if manifests.is_empty() {
        output::line(
            "No providers configured. Run `ati provider import-openapi`, `add-mcp` or `add-cli` to add one.",
        );
        return Ok(0);
    }
    let states = match live {
        true => Local::load()?.survey()?,
        false => BTreeMap::new(),
    };
    let catalog = Local::catalogue()?;
    let mut counts: HashMap<String, usize> = HashMap::new();
    for tool in catalog.tools() {
        *counts.entry(tool.provider.name.clone()).or_default() += 1;
    }
    let rows: Vec<Value> = manifests
        .iter()
        .map(|manifest| {
            let tools = match &manifest.handler {
                // As of the last time that its server was asked.
                HandlerKind::Mcp => match counts.get(&manifest.name) {
                    None => "auto".to_owned(),
                    Some(count) => count.to_string(),
                },
                HandlerKind::Cli if manifest.tools.is_empty() => "1".to_owned(),
                _ => counts.get(&manifest.name).copied().unwrap_or(0).to_string(),
            };
            let mut row = json!({
                "name": manifest.name,
                "type": kind(manifest),
                "description": text(manifest, "description"),
                "auth": auth(manifest),
                "tools": tools,
                "internal": is_internal(manifest),
                "source": "permanent",
            });
            if let Origin::Cached { remaining_seconds } = manifest.origin {
                row["source"] = json!("cached");
                row["remaining_seconds"] = json!(remaining_seconds);
            }
            if let Some(listing) = catalog.listing(&manifest.name) {
                row["listed"] = json!(ago(listing.at));
            }
            if let Some(state) = states.get(&manifest.name) {
                row["state"] = json!(if state.is_ok() { "ready" } else { "down" });
                if let Err(error) = state {
                    row["error"] = json!(error.to_string());
                }
            }
            row
        })
        .collect();
    if format == Format::Json {
        output::pretty(&rows);
        return Ok(0);
    }
    let mut columns = vec!["auth", "description", "name", "tools", "type"];
    if live {
        columns.insert(3, "state");
    }
    let cell = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let cells = rows
        .iter()
        .map(|row| columns.iter().map(|key| cell(row, key)).collect());
    let heads: Vec<String> = columns.iter().map(|key| key.to_uppercase()).collect();
    output::table(&heads, cells);
    Ok(0)
}

pub fn info(name: &str, format: Format) -> Result<u8, Failure> {
    let manifests = manifests()?;
    let manifest = manifests
        .iter()
        .find(|manifest| manifest.name == name)
        .ok_or_else(|| {
            Failure::new(
                Code::ProviderNotFound,
                format!(
                    "Provider '{name}' not found. Run 'ati provider list' to see what there is."
                ),
            )
        })?;
    let category = text(manifest, "category");
    let mut info = json!({
        "name": manifest.name,
        "description": text(manifest, "description"),
        "handler": manifest.handler.name(),
        "base_url": text(manifest, "base_url"),
        "auth_type": auth(manifest),
        "category": (!category.is_empty()).then_some(category),
        "internal": is_internal(manifest),
    });
    if manifest.handler == HandlerKind::Cli {
        for key in ["cli_command", "cli_default_args", "cli_timeout_secs"] {
            info[key] = json!(manifest.provider.get(key));
        }
    }
    if manifest.handler == HandlerKind::Mcp {
        for key in ["mcp_transport", "mcp_url", "mcp_command", "mcp_args"] {
            if let Some(value) = manifest.provider.get(key) {
                info[key] = json!(value);
            }
        }
        info["server"] = server(name);
    }
    if let Some(skills) = manifest.provider.get("skills") {
        info["skills"] = json!(skills);
    }
    output::value(&info, format);
    Ok(0)
}

/// How a server is, asked now; where it doesn't answer, what is known of it.
fn server(name: &str) -> Value {
    let asked = Local::load().and_then(|mut local| {
        let provider = local.provider(name);
        let gone = || Failure::new(Code::ProviderNotFound, format!("'{name}' can't be used"));
        let provider = provider.ok_or_else(gone)?;
        let known = listing_cache::load(&config::ati_dir(), &provider);
        Ok((local.probe(&provider), known))
    });
    match asked {
        Err(failure) => json!({"state": "down", "error": failure.to_string()}),
        Ok((Ok(listing), _)) => json!({
            "state": "ready",
            "protocol": listing.protocol,
            "tools": listing.tools.len(),
        }),
        Ok((Err(failure), known)) => json!({
            "state": "down",
            "error": failure.to_string(),
            "tools": known.as_ref().map(|known| known.tools.len()),
            "listed": known.map(|known| ago(known.at)),
        }),
    }
}

/// By the file's name, which is what `add` and `import` made.
pub fn remove(name: &str) -> Result<u8, Failure> {
    let path = manifest_path(name::check(name)?);
    match std::fs::remove_file(&path) {
        Ok(()) => {
            info!(name, "removed manifest {}", path.display());
            Ok(0)
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(Failure::new(
            Code::ProviderNotFound,
            format!("Manifest not found: {}", path.display()),
        )),
        Err(e) => Err(Failure::new(
            Code::ExecutionFailed,
            format!("{}: {e}", path.display()),
        )),
    }
}
