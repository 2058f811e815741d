//! A command of a tool that describes itself: from arguments to words, or to the MCP server that
//! executes it.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Call, over_mcp as call_server, program};
use crate::catalog::atip::{AtipInvocation, Hash};
use crate::catalog::cli::Cli;
use crate::catalog::{Invocation, Tool};
use crate::error::{CallError, ExecError};
use crate::exec::Answer;
use crate::exec::cli::CliError;
use crate::process::{self, binary};

/// The tool of the MCP provider that executes this command, if there is one now.
pub fn delegate<'a>(call: &Call<'a>, command: &AtipInvocation) -> Option<&'a Arc<Tool>> {
    let provider = command.mcp.as_ref()?;
    let catalog = call.context.catalog;
    let tools = catalog.tools().iter();
    let mut tools = tools.filter(|tool| tool.provider.name == *provider);
    tools.find(|tool| {
        matches!(&tool.invocation, Invocation::Mcp(remote) if remote.remote_name == command.own_name)
    })
}

/// Executed by a server, with that server's own credentials.
pub async fn over_mcp(
    call: &Call<'_>,
    tool: &Arc<Tool>,
    args: Map<String, Value>,
    size: usize,
) -> Result<Answer, CallError> {
    let Invocation::Mcp(remote) = &tool.invocation else {
        return Err(CallError::Internal(
            "a command is executed by a tool of MCP",
        ));
    };
    let inner = Call {
        provider: &tool.provider,
        tool: Some(tool),
        identity: call.identity,
        lookup: call.lookup,
        upstream_override: None,
        request_id: call.request_id,
        trail: call.trail,
        secrets: call.secrets,
        native: false,
        context: call.context,
    };
    call_server(&inner, remote, args, size).await
}

/// Executed as a program, directly.
pub async fn run(
    call: &Call<'_>,
    command: &AtipInvocation,
    args: &Map<String, Value>,
) -> Result<Answer, CallError> {
    if let Some(why) = command.refusal {
        let tool = call.tool_name().to_owned();
        return Err(ExecError::from(CliError::Interactive { tool, why }).into());
    }
    let words = command.argv.words(args);
    let words = words.map_err(|unsendable| CallError::InvalidArgument {
        name: unsendable.name,
        what: unsendable.what,
        missing: false,
    })?;
    program::check(&words)?;
    match &command.hash {
        None => program::run_program(call, &command.cli, words).await,
        Some(hash) => {
            let verified = verified(&command.cli, hash).await;
            let cli = verified.map_err(ExecError::from)?;
            program::run_program(call, &cli, words).await
        }
    }
}

/// The program by its path, once its file is known to be the one with this hash.
async fn verified(cli: &Cli, hash: &Hash) -> Result<Cli, CliError> {
    let refused = |why: String| CliError::Unverified {
        command: cli.command.clone(),
        why,
    };
    let path = process::find_program(&cli.command, &cli.plain_env());
    let path = path.map_err(|error| CliError::Spawn {
        command: cli.command.clone(),
        why: error.to_string(),
    })?;
    let path = std::path::absolute(path).map_err(|e| refused(e.to_string()))?;
    let file = path.clone();
    let found = tokio::task::spawn_blocking(move || binary::sha256(&file)).await;
    let found = found.map_err(|e| refused(e.to_string()))?;
    let found = found.map_err(|e| refused(format!("it can't be read: {e}")))?;
    if found != hash.0 {
        let why = "its SHA-256 is not the one that its metadata was written for";
        return Err(refused(why.to_owned()));
    }
    let command = path.into_os_string().into_string();
    let command = command.map_err(|_| refused("its path is not UTF-8".to_owned()))?;
    // By its path: the file that was hashed is the one that runs.
    Ok(cli.with_command(command))
}
