//! MCP servers, as `ati check` and `ati doctor` look at them: no server is started or contacted.

use std::sync::Arc;

use url::Url;

use crate::call;
use crate::catalog::Provider;
use crate::error::Problem;
use crate::exec::mcp::{McpError, ServerSpec};
use crate::process;
use crate::snapshot::Snapshot;

/// A server that can't work.
pub struct Fault {
    pub provider: Arc<Provider>,
    /// The field of the manifest.
    pub key: &'static str,
    pub message: String,
    pub fix: String,
}

impl Fault {
    pub fn problem(&self) -> Problem {
        Problem::new(&self.message)
            .file(&self.provider.file)
            .key(self.key)
    }
}

/// What is wrong with the servers of a snapshot. A field or a credential that is missing is no part
/// of it: loading reports those.
pub fn faults(snapshot: &Snapshot) -> Vec<Fault> {
    let all = servers(snapshot);
    all.filter_map(|(provider, server)| fault(provider, server))
        .collect()
}

/// The servers that are behind a URL.
pub fn urls(snapshot: &Snapshot) -> impl Iterator<Item = (&Arc<Provider>, Url)> {
    servers(snapshot).filter_map(|(provider, server)| match server {
        Ok(ServerSpec::Endpoint(url)) => Some((provider, url)),
        Ok(ServerSpec::Program { .. }) | Err(_) => None,
    })
}

pub fn servers(
    snapshot: &Snapshot,
) -> impl Iterator<Item = (&Arc<Provider>, Result<ServerSpec, McpError>)> {
    let providers = snapshot.catalog.providers().iter();
    providers.filter_map(|provider| {
        let server = call::mcp_server(provider, &snapshot.keyring)?;
        Some((provider, server))
    })
}

fn fault(provider: &Arc<Provider>, server: Result<ServerSpec, McpError>) -> Option<Fault> {
    let file = provider.file.display();
    let (key, message, fix) = match server {
        Ok(ServerSpec::Program {
            run_as: Some(run_as),
            ..
        }) if run_as.resolve().is_err() => {
            let error = run_as.resolve().err()?;
            let fix = format!(
                "name a user of this machine in run_as of {file}, and run ati as root or with \
                 CAP_SETUID and CAP_SETGID: docs/mcp.md"
            );
            ("provider.run_as", error.to_string(), fix)
        }
        Ok(ServerSpec::Program { program, env, .. }) if !program.is_empty() => {
            let error = process::find_program(&program, &env).err()?;
            let message = format!("'{program}': {error}");
            let fix = format!(
                "install '{program}', or write its path into mcp_command of {file}; a service has \
                 a PATH of its own"
            );
            ("provider.mcp_command", message, fix)
        }
        Err(McpError::Egress(error)) if !provider.url_text().is_empty() => {
            let fix = format!("write a URL like https://host/mcp into mcp_url of {file}");
            ("provider.mcp_url", error.to_string(), fix)
        }
        Ok(_) | Err(_) => return None,
    };
    Some(Fault {
        provider: provider.clone(),
        key,
        message,
        fix,
    })
}
