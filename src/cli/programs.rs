//! Programs as tools, as `ati check` and `ati doctor` look at them: none is started.

use std::sync::Arc;

use super::mcp_servers::Fault;
use crate::catalog::Provider;
use crate::catalog::cli::Cli;
use crate::process;
use crate::snapshot::Snapshot;

/// Each program with its provider.
pub fn programs(snapshot: &Snapshot) -> impl Iterator<Item = (&Arc<Provider>, &Cli)> {
    let providers = snapshot.catalog.providers().iter();
    providers.filter_map(|provider| Some((provider, provider.cli()?)))
}

/// What is wrong with the programs of a snapshot. A field or a credential that is missing is no
/// part of it: loading reports those.
pub fn faults(snapshot: &Snapshot) -> Vec<Fault> {
    programs(snapshot)
        .flat_map(|(provider, cli)| [program(provider, cli), folder(provider, cli)])
        .flatten()
        .collect()
}

fn program(provider: &Arc<Provider>, cli: &Cli) -> Option<Fault> {
    let (command, field) = (&cli.command, cli.command_field());
    let error = process::find_program(command, &cli.plain_env()).err()?;
    let file = provider.file.display();
    Some(Fault {
        provider: provider.clone(),
        key: match cli.command_field() {
            "atip_command" => "provider.atip_command",
            _ => "provider.cli_command",
        },
        message: format!("'{command}': {error}"),
        fix: format!(
            "install '{command}', or write its path into {field} of {file}; a service has a \
             PATH of its own"
        ),
    })
}

fn folder(provider: &Arc<Provider>, cli: &Cli) -> Option<Fault> {
    let folder = cli.folder.as_ref().filter(|folder| !folder.is_dir())?;
    let file = provider.file.display();
    Some(Fault {
        provider: provider.clone(),
        key: "provider.cli_cwd",
        message: format!("'{}': no such folder", folder.display()),
        fix: format!("make the folder, or take cli_cwd out of {file}"),
    })
}
