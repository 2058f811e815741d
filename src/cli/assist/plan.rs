//! `ati assist --plan`: a plan of tool calls, made on this machine and checked before it is shown.
//! Where there is a proxy, its catalogue decides whether the plan would run. A machine without
//! manifests plans with the proxy's tools. The proxy's language model isn't asked.

use std::path::Path;

use serde_json::json;
use tracing::info;

use super::super::local::Local;
use super::super::new_file::NewFile;
use super::super::plan::{Author, Registry, check_plan, command_line};
use super::super::remote::Remote;
use super::super::{Format, file_failure, output};
use super::backend::{self, Choice, Kind};
use super::{ask_whole, context_of, failure, index, listed, no_llm};
use crate::assist::plan::Plan;
use crate::assist::{cut_note, prompt};
use crate::config;
use crate::error::{Code, Failure, HelpError};
use crate::text::clip_chars;

/// Characters of an answer that are shown where it is no plan.
const LONGEST_SHOWN: usize = 20_000;

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
    let task = match &remote {
        Some(remote) if !has_manifests() => listed::task(remote, words)?,
        _ => here(&mut local, words)?,
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
    let show_answer = || {
        let answer = output::printable_lines(clip_chars(&answer.text, LONGEST_SHOWN));
        output::note(&format!("The language model answered:\n{answer}"));
    };
    let plan = Plan::parse_answer(&task.question, &answer.text).map_err(|why| {
        show_answer();
        let message = "Failed to parse plan from LLM response";
        let failure = Failure::new(Code::UpstreamError, message).because(why);
        match answer.is_cut {
            true => failure.hint(cut_note()),
            false => failure,
        }
    })?;
    check(&plan, &local, remote.as_ref()).map_err(|wrong| {
        show_answer();
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

/// Whether this machine has providers of its own.
fn has_manifests() -> bool {
    let manifests = config::read_manifests(&config::ati_dir(), &mut Vec::new());
    let mut names = manifests.iter().map(|manifest| &manifest.name);
    names.any(|name| !name.starts_with('_'))
}

/// By the catalogue of the proxy, which will run the plan. One that can't say is no reason not to
/// plan, where this machine has manifests: the plan is checked again before it runs.
fn check(plan: &Plan, local: &Local, remote: Option<&Remote>) -> Result<(), Failure> {
    let here = || check_plan(plan, &Registry::Here(local), Author::Model).map(|_| ());
    let Some(remote) = remote else {
        return here();
    };
    match check_plan(plan, &Registry::Proxy(remote), Author::Model) {
        Err(failure) if failure.code == Code::UpstreamError && has_manifests() => {
            output::note(&format!(
                "The proxy's tools can't be read ({}). The plan is checked against this machine's \
                 own; 'ati plan execute' checks it against those of the proxy.",
                output::printable(&failure.one_line())
            ));
            here()
        }
        checked => checked.map(|_| ()),
    }
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
