//! `ati provider list`, `info` and `remove`.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::info;

use super::super::local::Local;
use super::super::skill::registry_here;
use super::super::{Format, file_failure, output};
use super::name;
use super::write::manifest_path;
use crate::config::{self, HandlerKind, ManifestFile, Origin};
use crate::error::{Code, Failure};
use crate::exec::mcp::McpError;
use crate::skills::declared_name;

/// The fields of a manifest that are shown, as they are written there. The compiled provider has
/// not all of them, and there is none for a provider that can't be used.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Shown {
    description: String,
    category: String,
    internal: bool,
    base_url: String,
    auth_type: String,
    skills: Option<Value>,
    #[serde(flatten)]
    program: ShownProgram,
    #[serde(flatten)]
    server: ShownServer,
}

/// Fields of a command-line program.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct ShownProgram {
    cli_command: Option<Value>,
    cli_default_args: Option<Value>,
    cli_timeout_secs: Option<Value>,
}

/// Fields of an MCP server.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct ShownServer {
    #[serde(skip_serializing_if = "Option::is_none")]
    mcp_transport: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mcp_url: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mcp_command: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mcp_args: Option<Value>,
}

impl Shown {
    fn of(manifest: &ManifestFile) -> Self {
        let table = manifest.provider.clone();
        table.try_into().unwrap_or_default()
    }

    fn auth(&self) -> &str {
        match self.auth_type.as_str() {
            "" => "none",
            auth => auth,
        }
    }

    /// The `type` of a row.
    fn kind(&self, handler: &HandlerKind) -> String {
        match handler {
            HandlerKind::Mcp => {
                let transport = self.server.mcp_transport.as_ref().and_then(Value::as_str);
                let transport = transport.filter(|text| !text.is_empty());
                format!("mcp/{}", transport.unwrap_or("stdio"))
            }
            HandlerKind::OpenApi | HandlerKind::Cli | HandlerKind::Atip => {
                handler.name().to_owned()
            }
            _ => "http".to_owned(),
        }
    }
}

fn manifests() -> Result<Vec<ManifestFile>, Failure> {
    let mut problems = Vec::new();
    let found = config::read_manifests(&config::ati_dir(), &mut problems);
    if problems.is_empty() {
        Ok(found)
    } else {
        Err(Failure::from_problems("the manifests", &problems))
    }
}

/// `live`: connect to MCP servers, and show whether they answer.
pub fn list(live: bool, asked: Option<Format>) -> Result<u8, Failure> {
    let manifests = manifests()?;
    if manifests.is_empty() && asked != Some(Format::Json) {
        output::line(
            "No providers configured. Run `ati provider import-openapi`, `add-mcp` or `add-cli` \
             to add one.",
        );
        return Ok(0);
    }
    let states = match live {
        true => Local::load()?.survey()?,
        false => BTreeMap::new(),
    };
    let catalog = Local::load_catalog()?;
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for tool in catalog.tools() {
        *counts.entry(&tool.provider.name).or_default() += 1;
    }
    let rows: Vec<Value> = manifests
        .iter()
        .map(|manifest| {
            let name = manifest.name.as_str();
            let mut row = row(manifest, counts.get(name).copied());
            if let Some(listing) = catalog.listing(name) {
                row["listed"] = json!(output::ago(listing.at));
            }
            if let Some(state) = states.get(name) {
                add_state(&mut row, state);
            }
            row
        })
        .collect();
    if matches!(asked, None | Some(Format::Json)) {
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

/// `tools`: how many the catalogue has of this provider; none where an MCP server was never listed.
fn row(manifest: &ManifestFile, tools: Option<usize>) -> Value {
    let shown = Shown::of(manifest);
    let tools = match (&manifest.handler, tools) {
        (HandlerKind::Mcp, None) => "auto".to_owned(),
        (HandlerKind::Cli, _) if manifest.tools.is_empty() => "1".to_owned(),
        (_, tools) => tools.unwrap_or(0).to_string(),
    };
    let mut row = json!({
        "name": manifest.name,
        "type": shown.kind(&manifest.handler),
        "description": shown.description,
        "auth": shown.auth(),
        "tools": tools,
        "internal": shown.internal,
        "source": "permanent",
    });
    if let Origin::Cached { remaining_seconds } = manifest.origin {
        row["source"] = json!("cached");
        row["remaining_seconds"] = json!(remaining_seconds);
    }
    row
}

fn add_state(row: &mut Value, state: &Result<usize, McpError>) {
    row["state"] = json!(if state.is_ok() { "ready" } else { "down" });
    if let Err(error) = state {
        row["error"] = json!(error.for_operators());
    }
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
    let shown = Shown::of(manifest);
    let mut info = json!({
        "name": manifest.name,
        "description": shown.description,
        "handler": manifest.handler.name(),
        "base_url": shown.base_url,
        "auth_type": shown.auth(),
        "category": (!shown.category.is_empty()).then_some(&shown.category),
        "internal": shown.internal,
    });
    let mut add = |fields: Value| {
        if let (Value::Object(info), Value::Object(fields)) = (&mut info, fields) {
            info.extend(fields);
        }
    };
    match &manifest.handler {
        HandlerKind::Cli => add(json!(shown.program)),
        HandlerKind::Mcp => {
            add(json!(shown.server));
            add(json!({ "server": server_state(name) }));
        }
        _ => {}
    }
    if let Some(skills) = shown.skills.filter(|skills| *skills != json!([])) {
        add_skills(&mut info, name, &skills);
    }
    output::value(&info, format);
    Ok(0)
}

/// The skills that the manifest names, those of them that are installed, and all that belong to
/// the provider.
fn add_skills(info: &mut Value, provider: &str, declared: &Value) {
    let registry = registry_here();
    let named = declared.as_array().into_iter().flatten();
    let mut names: Vec<&str> = named.filter_map(Value::as_str).map(declared_name).collect();
    let installed = names.iter().filter(|name| registry.get(name).is_some());
    info["skills_declared"] = declared.clone();
    info["skills_installed"] = installed.map(|name| json!(name)).collect();
    let bound = registry.bound_to_provider(provider);
    for skill in bound.map(|skill| skill.name.as_str()) {
        if !names.contains(&skill) {
            names.push(skill);
        }
    }
    info["skills"] = json!(names);
}

/// Whether an MCP server answers now. Where it doesn't, the cached listing is shown.
fn server_state(name: &str) -> Value {
    let down = |failure: Failure| json!({"state": "down", "error": failure.one_line()});
    let local = match Local::load() {
        Ok(local) => local,
        Err(failure) => return down(failure),
    };
    let provider = match local.provider(name) {
        Ok(provider) => provider,
        Err(failure) => return down(failure),
    };
    match local.probe(provider) {
        Ok(listing) => json!({
            "state": "ready",
            "protocol": listing.protocol,
            "tools": listing.tools.len(),
        }),
        Err(failure) => {
            let cached = local.catalog().listing(name);
            json!({
                "state": "down",
                "error": failure.one_line(),
                "tools": cached.map(|listing| listing.tools.len()),
                "listed": cached.map(|listing| output::ago(listing.at)),
            })
        }
    }
}

/// Remove a manifest by the name of its file, as `add` and `import` write it.
pub fn remove(name: &str, asked: Option<Format>) -> Result<u8, Failure> {
    let path = manifest_path(name::check(name)?);
    match std::fs::remove_file(&path) {
        Ok(()) => {
            info!("removed manifest {}", path.display());
            output::done(
                asked,
                || json!({"status": "removed", "name": name, "manifest": path}),
            );
            Ok(0)
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(Failure::new(
            Code::ProviderNotFound,
            format!("Manifest not found: {}", path.display()),
        )),
        Err(e) => Err(file_failure(Code::ExecutionFailed, &path, e)),
    }
}
