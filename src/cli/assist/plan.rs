//! `ati assist --plan`: a plan of tool calls, made on this machine and checked before it is shown.
//! Where there is a proxy, its tools are planned with; its language model isn't asked.

use std::path::Path;

use serde_json::json;
use tracing::info;

use super::super::local::Local;
use super::super::new_file::NewFile;
use super::super::plan::{Registry, check_plan, command_line};
use super::super::remote::Remote;
use super::super::{Format, file_failure, output};
use super::backend::{self, Choice, Kind};
use super::{ask_whole, context_of, failure, index, listed, no_llm};
use crate::assist::plan::Plan;
use crate::assist::prompt;
use crate::config;
use crate::error::{Code, Failure, HelpError};

/// What the language model is asked.
pub struct Task {
    pub system: String,
    pub question: String,
}

pub fn make(
    words: &[String],
    save: Option<&Path>,
    choice: Choice,
    format: Option<Format>,
) -> Result<u8, Failure> {
    let mut local = Local::load()?;
    let remote = Remote::from_environment()?;
    // The tools that `ati plan execute` will call.
    let (remote, task) = match remote {
        None => (None, here(&mut local, words)?),
        Some(remote) => match listed::task(&remote, words) {
            Ok(task) => (Some(remote), task),
            Err(failure) => (None, without_proxy(&mut local, words, failure)?),
        },
    };
    let Some(chosen) = backend::choose(&local, choice)? else {
        return Err(no_llm());
    };
    let asked = ask_whole(&local, &chosen, &task.system, &task.question);
    let answer = asked.map_err(|error| match (&error, chosen.kind) {
        (HelpError::Unreachable(_), Kind::Local | Kind::Fallback) => {
            failure(error).hint(index::hints())
        }
        _ => failure(error),
    })?;
    let plan = Plan::parse_answer(&task.question, &answer).map_err(|why| {
        output::note(&format!(
            "The language model answered:\n{}",
            readable(&answer)
        ));
        let message = "Failed to parse plan from LLM response";
        Failure::new(Code::UpstreamError, message).because(why)
    })?;
    let registry = match &remote {
        Some(remote) => Registry::Proxy(remote),
        None => Registry::Here(&local),
    };
    check_plan(&plan, &registry).map_err(|wrong| {
        output::note(&format!(
            "The language model answered:\n{}",
            readable(&answer)
        ));
        let message = "the plan of the language model would not run";
        let failure = Failure::new(wrong.code, message).because(wrong);
        failure.hint("nothing was written; ask again, or name the tool or provider first")
    })?;
    if let Some(path) = save {
        write(&plan, path)?;
        info!("saved plan to {}", path.display());
    }
    print(&plan, format.unwrap_or(Format::Json));
    Ok(0)
}

/// With the tools of this machine's manifests.
fn here(local: &mut Local, words: &[String]) -> Result<Task, Failure> {
    local.discover()?;
    let (context, question) = context_of(local, words)?;
    if context.tools.is_empty() {
        let message = "there are no tools to plan with: 'ati tool list' lists none";
        return Err(Failure::new(Code::ToolNotFound, message));
    }
    let system = prompt::plan(&context);
    Ok(Task { system, question })
}

/// A proxy that can't be reached is no reason not to plan, where this machine has manifests of its
/// own: the plan is checked again before it runs.
fn without_proxy(local: &mut Local, words: &[String], failure: Failure) -> Result<Task, Failure> {
    let manifests = config::read_manifests(&config::ati_dir(), &mut Vec::new());
    let has_own = manifests
        .iter()
        .any(|manifest| !manifest.name.starts_with('_'));
    if failure.status.is_some() || !has_own {
        return Err(failure);
    }
    let task = here(local, words)?;
    output::note(&format!(
        "The proxy's tools can't be read ({}). The plan is made of this machine's own; 'ati plan \
         execute' checks it against those of the proxy.",
        output::printable(&failure.one_line())
    ));
    Ok(task)
}

fn write(plan: &Plan, path: &Path) -> Result<(), Failure> {
    let failed = |e| file_failure(Code::ExecutionFailed, path, e);
    let text = serde_json::to_string_pretty(plan)
        .map_err(|e| Failure::new(Code::ExecutionFailed, "the plan").because(e))?;
    let mut file = NewFile::create(path).map_err(failed)?;
    file.write(format!("{text}\n").as_bytes()).map_err(failed)?;
    file.commit().map_err(failed)
}

fn print(plan: &Plan, format: Format) {
    match format {
        Format::Json => output::pretty(plan),
        Format::Table => output::value(&json!(plan.steps), format),
        Format::Text => {
            for (n, step) in plan.steps.iter().enumerate() {
                let about = output::printable(&step.description);
                output::line(&format!("{}. {}", n + 1, command_line(step)));
                if !about.trim().is_empty() {
                    output::line(&format!("   {about}"));
                }
            }
        }
    }
}

/// An answer without what a terminal would act on.
fn readable(answer: &str) -> String {
    let is_harmless = |c: &char| matches!(c, '\n' | '\t') || !c.is_control();
    answer.chars().filter(is_harmless).take(20_000).collect()
}
