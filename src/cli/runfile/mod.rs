//! `ati runfile`: what a Runfile's functions are to an agent.

mod called_run;
mod find;

use std::path::PathBuf;

use serde_json::{Value, json};
use tracing::warn;

use super::output;
use crate::catalog::json_reader::Findings;
use crate::catalog::runfile::{self, Function};
use crate::error::{Code, Failure};

pub use called_run::{CalledRun, command_line};
pub use find::Choice;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Print the functions of a Runfile and the schemas of their arguments, as `run --inspect` does
    Inspect(Inspect),
}

#[derive(clap::Args)]
pub struct Inspect {
    /// The Runfile, or its folder. Without it the nearest Runfile counts, here or in a folder
    /// above, with the functions of ~/.runfile
    path: Option<PathBuf>,

    /// Only functions with `# @safe`
    #[arg(long)]
    readonly: bool,
}

pub fn run(command: &Command) -> Result<u8, Failure> {
    match command {
        Command::Inspect(args) => inspect(args),
    }
}

fn inspect(args: &Inspect) -> Result<u8, Failure> {
    let choice = Choice {
        path: args.path.clone(),
        readonly: args.readonly,
    };
    let found = choice.find()?;
    let mut findings = Findings::default();
    let mut all = runfile::load(&found.path, &mut findings);
    if let Some(global) = &found.global {
        all = runfile::merged(runfile::load(global, &mut findings), all);
    }
    let is_unreadable = |problem: &crate::error::Problem| problem.line.is_none();
    if all.functions.is_empty()
        && let Some(problem) = findings.problems.iter().find(|one| is_unreadable(one))
    {
        return Err(Failure::new(Code::InvalidValue, problem.to_string()));
    }
    for problem in findings.problems.iter().chain(&findings.warnings) {
        warn!("{problem}");
    }
    let shown = all.functions.iter();
    let shown = shown.filter(|function| function.is_safe || !args.readonly);
    let tools: Vec<Value> = shown.map(|function| described(function)).collect();
    output::pretty(&json!({"tools": tools}));
    Ok(0)
}

/// As the RFC prints it.
fn described(function: &Function) -> Value {
    json!({
        "name": function.tool_name(),
        "description": function.description.as_deref().unwrap_or_default(),
        "input_schema": runfile::schema(function),
    })
}
