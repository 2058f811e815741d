//! The failure of a name that no tool has, with the names that may have been meant.

use crate::catalog::nearest::suggestion;
use crate::cli::local::Local;
use crate::cli::remote::Remote;
use crate::config;
use crate::error::{Code, Failure};

/// For a tool of this machine. Only tools that the caller may use are suggested.
pub fn unknown_tool(name: &str) -> Failure {
    let provider = name.split(':').next().unwrap_or_default();
    if let Some(absence) = absence(provider) {
        let message = format!("Unknown tool: '{name}'. Provider '{provider}': {absence}");
        return Failure::new(Code::ToolNotFound, message);
    }
    let mut message =
        format!("Unknown tool: '{name}'. Run 'ati tool list' to see available tools.");
    // The call read what its own tool needs; another provider may be meant.
    if let Ok(local) = Local::load() {
        let visible = local.catalog().visible(&local.identity.scopes);
        message += &suggestion(name, visible.map(|tool| tool.name.as_str()));
    }
    Failure::new(Code::ToolNotFound, message)
}

/// Why a provider of this machine has no tools, where its handler isn't built in.
fn absence(provider: &str) -> Option<String> {
    let manifests = config::read_manifests(&config::ati_dir(), &mut Vec::new());
    let mut named = manifests.iter().filter(|it| it.name == provider);
    named.find_map(|manifest| manifest.handler.absence())
}

/// Adds suggestions to the failure of a tool that the proxy doesn't have. The proxy is asked for
/// the tools that the caller may use; without its answer the failure stays as it is.
pub fn of_remote(remote: &Remote, name: &str, mut failure: Failure) -> Failure {
    if failure.code != Code::ToolNotFound {
        return failure;
    }
    let listed = remote.get("tools", &[]).unwrap_or_default();
    let tools = listed.as_array().map(Vec::as_slice).unwrap_or_default();
    let names = tools.iter().filter_map(|tool| tool["name"].as_str());
    let suggested = suggestion(name, names);
    if !suggested.is_empty() && !failure.message.ends_with('.') {
        failure.message.push('.');
    }
    failure.message += &suggested;
    failure
}
