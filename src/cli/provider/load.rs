//! `ati provider load` and `unload`: providers for a limited time, in a cache file instead of a
//! manifest.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};
use tracing::{debug, info};

use super::super::local::Local;
use super::super::{Format, file_failure, output};
use super::add::{self, ServerArgs};
use super::import::{self, auth_summary};
use super::name;
use super::write::save_private;
use crate::catalog::mcp::Listing;
use crate::catalog::openapi::Scheme;
use crate::config::{self, CachedProvider, Environment, HandlerKind};
use crate::credential::Template;
use crate::error::{Code, Failure};
use crate::keyring::{Keyring, Places};
use crate::snapshot::command_keyring;
use crate::telemetry::audit::timestamp;

/// The longest time to live, in seconds: ten years.
const LONGEST_TTL: u64 = 10 * 365 * 86_400;

#[derive(clap::Args)]
pub struct Load {
    /// An OpenAPI document: a file, or an http or https URL
    spec: Option<String>,

    /// Load an MCP server instead of an OpenAPI document
    #[arg(long)]
    mcp: bool,

    /// The provider's name [default: derived from the host of the URL, or from the file's name]
    #[arg(long)]
    name: Option<String>,

    /// Seconds until it is removed
    #[arg(long, default_value_t = 3600)]
    ttl: u64,

    /// Keep it permanently: write a manifest
    #[arg(long)]
    save: bool,

    /// The query parameter that carries the credential, where the document doesn't name it
    #[arg(long)]
    auth_query: Option<String>,

    #[command(flatten)]
    server: ServerArgs,
}

impl Load {
    /// How the credential is sent, where the options say so.
    fn presented(&self) -> Result<Option<Scheme>, Failure> {
        Ok(
            match (
                &self.auth_query,
                &self.server.auth_header,
                self.server.auth.as_str(),
            ) {
                (Some(query), ..) => Some(Scheme::Query(query.clone())),
                (None, Some(header), _) => {
                    http::HeaderName::try_from(header).map_err(|e| {
                        Failure::invalid(format!("'{header}' is not a header name")).because(e)
                    })?;
                    Some(Scheme::Header(header.clone()))
                }
                (None, None, "bearer") => Some(Scheme::Bearer),
                _ => None,
            },
        )
    }
}

pub fn load(args: &Load, asked: Option<Format>) -> Result<u8, Failure> {
    let summary = if args.mcp {
        load_mcp(args, asked)?
    } else {
        load_openapi(args, asked)?
    };
    if let Some(summary) = summary {
        output::value(&summary, asked.unwrap_or(Format::Json));
    }
    Ok(0)
}

fn load_openapi(args: &Load, asked: Option<Format>) -> Result<Option<Value>, Failure> {
    let Some(spec) = &args.spec else {
        return Err(Failure::new(
            Code::MissingArg,
            "OpenAPI mode requires a spec path or URL. For an MCP server, add --mcp.",
        ));
    };
    let imported = import::read(spec, args.name.as_deref(), &[])?;
    let name = imported.name.clone();
    // The options win over the document.
    let chosen = args.presented()?;
    let scheme = chosen.clone();
    let scheme = scheme.unwrap_or_else(|| imported.document.auth().scheme);
    let own = args.server.auth_key.clone();
    let key = own.unwrap_or_else(|| format!("{name}_api_key"));
    if args.save {
        import::import(&import::Import::of(spec, &name, &key, chosen), asked)?;
        return Ok(None);
    }
    let mut needed = Vec::new();
    if scheme != Scheme::None {
        needed.push(key.clone());
    }
    if let Scheme::OAuth2 { .. } = &scheme {
        needed.push(format!("{key}_secret"));
    }
    let keyring = keyring();
    let missing: Vec<&str> = needed
        .iter()
        .map(String::as_str)
        .filter(|name| keyring.get(name).is_none())
        .collect();
    let (header, query) = match &scheme {
        Scheme::Header(name) => (Some(name.clone()), None),
        Scheme::Query(name) => (None, Some(name.clone())),
        _ => (None, None),
    };
    let (secret, token_url) = match &scheme {
        Scheme::OAuth2 { token_url } => (Some(format!("{key}_secret")), Some(token_url.clone())),
        _ => (None, None),
    };
    let cached = CachedProvider {
        name: name.clone(),
        provider_type: HandlerKind::OpenApi,
        base_url: Some(imported.base_url.clone()),
        auth_type: Some(scheme.auth_type().to_owned()),
        auth_key_name: needed.first().cloned(),
        auth_header_name: header,
        auth_query_name: query,
        auth_secret_name: secret,
        oauth2_token_url: token_url,
        spec_content: Some(imported.document.to_json()),
        ..CachedProvider::default()
    };
    let until = store(cached, args.ttl)?;
    let resolved = missing.is_empty();
    Ok(Some(json!({
        "status": if resolved { "ready" } else { "needs_auth" },
        "name": name,
        "provider_type": "openapi",
        "base_url": imported.base_url,
        "tools_count": imported.survey.operations.len(),
        "auth": auth_summary(&scheme, &key, resolved),
        "setup_commands": setup(&missing),
        "cached_until": until,
    })))
}

fn load_mcp(args: &Load, asked: Option<Format>) -> Result<Option<Value>, Failure> {
    let server = &args.server.complete();
    server.check()?;
    let source = server.url.as_deref().or(server.command.as_deref());
    let name = match &args.name {
        Some(name) => name::check(name)?.to_owned(),
        None => name::derive(source.unwrap_or_default()),
    };
    if args.save {
        add::save_server(&name, server, asked)?;
        return Ok(None);
    }
    let env = server.environment()?;
    let keyring = keyring();
    let has = |name: &str| keyring.get(name).is_some();
    let mut variables = Map::new();
    let mut missing: Vec<String> = Vec::new();
    for (variable, value) in &env {
        let template = Template::parse(value);
        for key in template.keys() {
            let entry = json!({"keyring_ref": key, "resolved": has(key)});
            variables.insert(variable.clone(), entry);
            if !has(key) {
                missing.push(key.to_owned());
            }
        }
    }
    let key = server.auth_key.as_deref().filter(|_| server.auth != "none");
    let needs_auth = key.is_some_and(|key| !has(key));
    let until = store(cached_server(&name, server, env), args.ttl)?;
    let status = match (needs_auth, missing.is_empty()) {
        (true, _) => "needs_auth",
        (false, false) => "needs_keys",
        (false, true) => "ready",
    };
    missing.extend(key.filter(|_| needs_auth).map(str::to_owned));
    let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
    let mut summary = json!({
        "status": status,
        "name": name,
        "provider_type": "mcp",
        "transport": server.transport,
        "url": server.url,
        "command": server.command,
        "setup_commands": setup(&missing),
        "cached_until": until,
    });
    match probe(&name) {
        Ok(listing) => {
            let named = listing.named(&name);
            let tools: Vec<&String> = named.iter().map(|(name, _)| name).collect();
            summary["probe"] = json!("ok");
            summary["tools_count"] = json!(tools.len());
            summary["tools"] = json!(tools);
        }
        Err(failure) => {
            summary["probe"] = json!("failed");
            summary["probe_error"] = json!(failure.one_line());
        }
    }
    if let Some(key) = key {
        summary["auth"] = json!({"type": server.auth, "key_name": key, "resolved": !needs_auth});
    }
    if !variables.is_empty() {
        summary["env_vars"] = Value::Object(variables);
    }
    Ok(Some(summary))
}

fn cached_server(name: &str, server: &ServerArgs, env: Vec<(String, String)>) -> CachedProvider {
    CachedProvider {
        name: name.to_owned(),
        provider_type: HandlerKind::Mcp,
        auth_type: Some(server.auth.clone()),
        auth_key_name: server.auth_key.clone(),
        auth_header_name: server.auth_header.clone(),
        mcp_transport: Some(server.transport.clone()),
        mcp_url: server.url.clone(),
        mcp_command: server.command.clone(),
        mcp_args: Some(server.args.clone()),
        mcp_env: Some(env.into_iter().collect()),
        ..CachedProvider::default()
    }
}

/// List the tools of the server now, and keep the list in the listing cache.
fn probe(name: &str) -> Result<Listing, Failure> {
    let local = Local::load()?;
    local.probe(local.provider(name)?)
}

/// Write the cache file. Returns the time until which it is valid.
fn store(cached: CachedProvider, ttl: u64) -> Result<String, Failure> {
    let now = SystemTime::now();
    let ttl = ttl.min(LONGEST_TTL);
    let path = config::cached_provider(&config::ati_dir(), &cached.name);
    let cached = CachedProvider {
        created_at: timestamp(now),
        ttl_seconds: ttl,
        ..cached
    };
    // Private: values of --env may be secret.
    let text =
        serde_json::to_vec(&cached).map_err(|e| Failure::from_error(Code::ExecutionFailed, e))?;
    save_private(&path, &text)?;
    let until = now.checked_add(Duration::from_secs(ttl)).unwrap_or(now);
    Ok(timestamp(until))
}

/// The commands that store the missing credentials.
fn setup(missing: &[&str]) -> Vec<String> {
    missing
        .iter()
        .map(|key| format!("ati key set {key} <your-api-key>"))
        .collect()
}

/// The keyring of this machine. A one-shot key is left for the server. A keyring that can't be
/// loaded counts as empty: every credential is then reported as missing.
fn keyring() -> Keyring {
    let env = Environment::read();
    let places = Places {
        dir: env.ati_dir,
        one_shot: env.key_file,
        consume: false,
    };
    match command_keyring(&places) {
        Ok(loaded) => loaded.keyring,
        Err(problem) => {
            debug!("{problem}");
            Keyring::empty()
        }
    }
}

pub fn unload(name: &str, asked: Option<Format>) -> Result<u8, Failure> {
    let path = config::cached_provider(&config::ati_dir(), name::check(name)?);
    match std::fs::remove_file(&path) {
        Ok(()) => {
            info!("unloaded cached provider {name}");
            output::done(asked, || json!({"status": "unloaded", "name": name}));
            Ok(0)
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(Failure::new(
            Code::ProviderNotFound,
            format!("No cached provider '{name}' found."),
        )),
        Err(e) => Err(file_failure(Code::ExecutionFailed, &path, e)),
    }
}
