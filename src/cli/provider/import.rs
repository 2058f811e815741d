//! `ati provider import-openapi`.

use std::path::PathBuf;

use serde_json::json;
use tracing::{debug, info, warn};

use super::super::{Format, output};
use super::download::{self, Fetched};
use super::name;
use super::write::{Manifest, manifest_path, save};
use crate::catalog::openapi::{Document, Scheme, Selection, Survey};
use crate::config;
use crate::error::Failure;

/// Operations that are listed without --verbose.
const LISTED: usize = 20;

#[derive(clap::Args)]
pub struct Import {
    /// The OpenAPI document: a file, or an http or https URL
    spec: String,

    /// The provider's name [default: derived from the host of the URL, or from the file's name]
    #[arg(long)]
    name: Option<String>,

    /// The credential's name in the keyring [default: <NAME>_api_key]
    #[arg(long)]
    auth_key: Option<String>,

    /// Only operations with this tag; repeatable
    #[arg(long)]
    include_tags: Vec<String>,

    /// Print what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,

    /// How the credential is sent, where `provider load --save` was told so.
    #[arg(skip)]
    presented: Option<Scheme>,
}

impl Import {
    /// The import that `provider load --save` does.
    pub fn of(spec: &str, name: &str, auth_key: &str, presented: Option<Scheme>) -> Self {
        Import {
            spec: spec.to_owned(),
            name: Some(name.to_owned()),
            auth_key: Some(auth_key.to_owned()),
            include_tags: Vec::new(),
            dry_run: false,
            presented,
        }
    }
}

/// A document, and the provider that it gives.
pub struct Imported {
    pub document: Document,
    pub name: String,
    pub base_url: String,
    pub survey: Survey,
}

pub fn read(
    spec: &str,
    chosen: Option<&str>,
    include_tags: &[String],
) -> Result<Imported, Failure> {
    let Fetched { text, url } = download::read(spec)?;
    let document = Document::parse(&text).map_err(|e| Failure::invalid(spec).because(e))?;
    let name = match chosen {
        Some(name) => name::check(name)?.to_owned(),
        None => name::derive(spec),
    };
    let base_url = document.base_url(url.as_ref());
    let selection = Selection {
        include_tags: include_tags.to_vec(),
        ..Selection::default()
    };
    let survey = document.survey(&name, &base_url).select(&selection);
    Ok(Imported {
        document,
        name,
        base_url,
        survey,
    })
}

pub fn import(args: &Import, asked: Option<Format>) -> Result<u8, Failure> {
    let imported = read(&args.spec, args.name.as_deref(), &args.include_tags)?;
    let name = &imported.name;
    let key = args
        .auth_key
        .clone()
        .unwrap_or_else(|| format!("{name}_api_key"));
    let scheme = args.presented.clone();
    let scheme = scheme.unwrap_or_else(|| imported.document.auth().scheme);
    let manifest = manifest(&imported, &scheme, &key, &args.include_tags).render();
    let (title, count) = (imported.document.title(), imported.survey.operations.len());
    let spec = config::ati_dir().join("specs").join(format!("{name}.json"));
    let summary = |status: &str| {
        json!({
            "status": status,
            "name": name,
            "manifest": manifest_path(name),
            "spec": spec,
            "title": title,
            "operations": count,
        })
    };
    if args.dry_run {
        let lines = || {
            output::line(&format!("--- Generated manifest ({name}.toml) ---"));
            output::line(manifest.trim_end());
            let title = output::printable(title);
            output::line(&format!("\n--- Spec: {title} ({count} operations) ---"));
            output::line(&format!("Would save spec to: ~/.ati/specs/{name}.json"));
            output::line(&format!(
                "Would save manifest to: ~/.ati/manifests/{name}.toml"
            ));
            // Scripts know the two lines above as they are.
            if let Some(dir) = other_ati_dir() {
                output::line(&format!("~/.ati stands for {} here", dir.display()));
            }
        };
        output::lines_or_value(asked, lines, || {
            let mut summary = summary("dry run");
            summary["generated"] = json!(manifest);
            summary
        });
        return Ok(0);
    }
    // The document first: a manifest without one would be a provider without tools.
    save(&spec, imported.document.to_json().as_bytes())?;
    save(&manifest_path(name), manifest.as_bytes())?;
    info!("saved spec {}", spec.display());
    info!("saved manifest {}", manifest_path(name).display());
    report(&imported.survey);
    if !imported.base_url.contains("://") {
        warn!("the document doesn't say where its API is: set base_url in the manifest");
    }
    if scheme != Scheme::None {
        info!("store the credential: ati key set {key} <your-api-key>");
    }
    if let Scheme::OAuth2 { .. } = scheme {
        info!("and its secret: ati key set {key}_secret <your-client-secret>");
    }
    output::done(asked, || summary("saved"));
    Ok(0)
}

/// The ATI folder, where it isn't `~/.ati`.
fn other_ati_dir() -> Option<PathBuf> {
    let usual = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".ati"));
    Some(config::ati_dir()).filter(|dir| usual.as_ref() != Some(dir))
}

/// Log how many operations became tools, and why the others didn't.
fn report(survey: &Survey) {
    let (registered, left_out) = (survey.operations.len(), survey.left_out.len());
    if left_out == 0 {
        info!("{registered} operations registered");
        return;
    }
    info!("{registered} operations registered, {left_out} left out:");
    for (n, operation) in survey.left_out.iter().enumerate() {
        let line = format!(
            "  {} {}: {}",
            operation.method, operation.path, operation.reason
        );
        let line = output::printable(&line);
        if n < LISTED {
            info!("{line}");
        } else {
            debug!("{line}");
        }
    }
    if left_out > LISTED {
        info!("  and {} more: --verbose lists them", left_out - LISTED);
    }
}

fn manifest(imported: &Imported, scheme: &Scheme, key: &str, include_tags: &[String]) -> Manifest {
    let Imported {
        document,
        name,
        base_url,
        ..
    } = imported;
    let detected = document.auth();
    let title = match document.title() {
        "" => name,
        title => title,
    };
    let mut manifest = Manifest::new(name, title, "openapi");
    if !detected.others.is_empty() {
        manifest.comment("The document also offers:");
        for other in &detected.others {
            manifest.comment(&format!("  {other}"));
        }
    }
    manifest
        .text("base_url", base_url)
        .text("openapi_spec", &format!("{name}.json"))
        .text("auth_type", scheme.auth_type());
    if *scheme != Scheme::None {
        manifest.text("auth_key_name", key);
    }
    match scheme {
        Scheme::Header(header) => {
            manifest.text("auth_header_name", header);
        }
        Scheme::Query(query) => {
            manifest.text("auth_query_name", query);
        }
        Scheme::OAuth2 { token_url } => {
            manifest
                .text("auth_secret_name", &format!("{key}_secret"))
                .text("oauth2_token_url", token_url);
        }
        Scheme::None | Scheme::Bearer | Scheme::Basic => {}
    }
    manifest.list("openapi_include_tags", include_tags);
    manifest
}

/// The `auth` object of `provider load`: the credential that the provider needs.
pub fn auth_summary(scheme: &Scheme, key: &str, resolved: bool) -> serde_json::Value {
    let mut auth = json!({
        "type": scheme.auth_type(),
        "key_name": (*scheme != Scheme::None).then_some(key),
        "description": match scheme {
            Scheme::None => "no credential".to_owned(),
            Scheme::Bearer => "a bearer token".to_owned(),
            Scheme::Basic => "a user name".to_owned(),
            Scheme::Header(name) => format!("an API key in the header {name}"),
            Scheme::Query(name) => format!("an API key in the query parameter {name}"),
            Scheme::OAuth2 { .. } => "an OAuth2 client".to_owned(),
        },
        "resolved": resolved,
    });
    match scheme {
        Scheme::Header(name) => auth["header_name"] = json!(name),
        Scheme::Query(name) => auth["query_name"] = json!(name),
        _ => {}
    }
    auth
}
