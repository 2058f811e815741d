//! Tools of the other conventions for local programs: an intent of CMP, a function of a Runfile.
//! The arguments are checked already; here they become the words of a program.

use std::time::Duration;

use serde_json::{Map, Value};

use super::Call;
use super::program::{self, Extras};
use crate::catalog::captures::CaptureRules;
use crate::catalog::cli::Cli;
use crate::catalog::cmp::CmpInvocation;
use crate::catalog::runfile::RunfileInvocation;
use crate::error::CallError;
use crate::exec::cli::Ran;
use crate::process;

/// Tells a program that an agent calls it.
const AGENT: &str = "CMP_AGENT";

pub async fn intent(
    call: &Call<'_>,
    invocation: &CmpInvocation,
    args: &Map<String, Value>,
) -> Result<Ran, CallError> {
    let command = &invocation.intent.command;
    let words = command.fill(args, &invocation.intent.parameters);
    let words = words.map_err(|unfit| unusable(unfit.name, unfit.what, unfit.missing))?;
    let terms = terms(call)?;
    let mut extras = Extras {
        env: vec![(AGENT.to_owned(), "1".to_owned())],
        readable: Vec::new(),
    };
    if let Some(bin) = &invocation.bin {
        let path = process::program_environment();
        let path = path.iter().rev().find(|(name, _)| name == "PATH");
        let rest = path.map_or("", |(_, value)| value.as_str());
        let path = format!("{}:{rest}", bin.display());
        extras.env.push(("PATH".to_owned(), path));
        // What a native tool is made of.
        extras.readable.extend(bin.parent().map(ToOwned::to_owned));
    }
    let cli = terms.for_program(command.program(), None, terms.timeout);
    program::run_with(call, &cli, words, extras).await
}

pub async fn function(
    call: &Call<'_>,
    invocation: &RunfileInvocation,
    args: &Map<String, Value>,
) -> Result<Ran, CallError> {
    let command = &invocation.command;
    let filled = command.fill(&invocation.function, args);
    let filled = filled.map_err(|unfit| unusable(unfit.name, unfit.what, unfit.missing))?;
    let terms = terms(call)?;
    let timeout = invocation.seconds(args).map(Duration::from_secs);
    let mut cli = terms.for_program(
        command.interpreter.program(),
        Some(command.folder.clone()),
        timeout.unwrap_or(terms.timeout),
    );
    // The interpreter's words aren't the caller's.
    cli.captures = CaptureRules::default();
    let extras = Extras {
        env: command.env.iter().cloned().chain(filled.env).collect(),
        readable: vec![invocation.function.folder.clone(), command.folder.clone()],
    };
    program::run_with(call, &cli, filled.words, extras).await
}

/// How the provider's programs run.
fn terms<'a>(call: &Call<'a>) -> Result<&'a Cli, CallError> {
    let missing = CallError::Internal("the provider runs no programs");
    call.provider.program().ok_or(missing)
}

fn unusable(name: String, what: String, missing: bool) -> CallError {
    CallError::InvalidArgument {
        name,
        what,
        missing,
    }
}
