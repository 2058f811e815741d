//! What a process that begins to serve says: its log record and its ready file.

use std::collections::BTreeMap;
use std::path::Path;

use tracing::{error, info, warn};

use crate::error::{Failure, Problem, Weight};
use crate::files;
use crate::server::listen::bind::Addresses;
use crate::snapshot::Snapshot;

/// What is wrong with the settings, and doesn't keep the process from serving.
pub fn log_warnings(warnings: &[Problem]) {
    for warning in warnings {
        match warning.weight {
            Weight::Grave => error!("{warning}"),
            Weight::Normal | Weight::Tolerated => warn!("{warning}"),
        }
    }
}

pub fn log_start(snapshot: &Snapshot, addresses: &Addresses, has_store: bool) {
    let settings = &snapshot.settings;
    let providers_with_handler = |name: &str| {
        let providers = snapshot.catalog.providers().iter();
        providers.filter(|p| p.handler_name() == name).count()
    };
    info!(
        version = env!("CARGO_PKG_VERSION"),
        addr = %addresses.edge,
        admin = addresses.admin.map(|addr| addr.to_string()),
        others = (!addresses.others.is_empty()).then(|| other_addresses(addresses)),
        auth = if snapshot.verifier.is_some() { "JWT" } else { "DISABLED (no JWT keys configured)" },
        ati_dir = %settings.ati_dir.display(),
        tools = snapshot.catalog.public_count(),
        providers = snapshot.catalog.providers().len(),
        mcp = providers_with_handler("mcp"),
        openapi = providers_with_handler("openapi"),
        skills = snapshot.skills.len(),
        keyring = snapshot.keyring.source().as_str(),
        db = if has_store { "connected" } else { "disabled" },
        passthrough = snapshot.routes.len(),
        sig_verify_mode = settings.signature.mode.as_str(),
        sig_verify_secret = snapshot.signing.is_some(),
        workers = settings.workers,
        pid = std::process::id(),
        "ATI proxy server starting"
    );
}

fn other_addresses(addresses: &Addresses) -> String {
    let each = addresses.others.iter();
    let each: Vec<String> = each
        .map(|other| format!("{}={}", other.name, other.address))
        .collect();
    each.join(" ")
}

pub fn write_ready_file(path: &Path, addresses: &Addresses) -> Result<(), Failure> {
    let others = addresses.others.iter();
    let others: BTreeMap<_, _> = others.map(|other| (&other.name, &other.address)).collect();
    let text = serde_json::json!({
        "pid": std::process::id(),
        "edge": addresses.edge.to_string(),
        "admin": addresses.admin.map(|addr| addr.to_string()),
        "listeners": others,
    })
    .to_string();
    files::write_atomic(path, text.as_bytes(), 0o644).map_err(|e| {
        let message = format!("--ready-file {}: can't be written", path.display());
        Failure::invalid(message).because(e)
    })
}
