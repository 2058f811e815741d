//! `ati plan`: calls of several tools, one after the other.

mod check;
mod confirm;
mod execute;
mod journal;
mod reference;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::local::Local;
use super::remote::Remote;
use super::run::quoted;
use super::{Format, output};
use crate::assist::plan::{Plan, Step};
use crate::error::{Code, Failure};
use crate::files;

use check::CheckedStep;
pub use check::{Author, Registry, check_plan};
use execute::{Caller, Execution};
use journal::Journal;

/// Bytes of a plan.
const LONGEST: u64 = 16 << 20;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Run the steps of a plan, after checking all of them
    Execute(Args),
}

#[derive(clap::Args)]
#[command(
    after_help = "Every step is checked before the first one runs: its tool, your scopes, its \
                  arguments, and whether it wants to be confirmed.\n\
                  \"{{steps.N.path}}\" in an argument is what step N gave there: \
                  {{steps.1.data.0.id}}.\n\
                  A journal next to the plan says which steps have begun and ended. Run again, \
                  the plan goes on where it ended: a step that was under way is repeated only if \
                  that does no harm (idempotent)."
)]
pub struct Args {
    /// The plan: a JSON file as `ati assist --save` writes it
    file: PathBuf,

    /// Ask before each step
    #[arg(long)]
    confirm_each: bool,

    /// Confirm every step that wants it
    #[arg(long, conflicts_with = "confirm_each")]
    yes: bool,

    /// Check the plan and show its steps; nothing is run
    #[arg(long)]
    dry_run: bool,

    /// Begin with this step, whatever the journal says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    from: Option<u32>,

    /// Go on after a step that failed
    #[arg(long)]
    keep_going: bool,

    /// The journal [default: the plan's name with .journal behind it]
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
}

pub fn run(command: &Command, asked: Option<Format>) -> Result<u8, Failure> {
    let Command::Execute(args) = command;
    let (plan, digest) = read(&args.file)?;
    let first = args.from.map_or(0, |n| n as usize - 1);
    if first >= plan.steps.len().max(1) {
        let message = format!(
            "--from {}: the plan has {} steps",
            first + 1,
            plan.steps.len()
        );
        return Err(Failure::invalid(message));
    }
    if plan.steps.is_empty() {
        output::note("the plan has no steps");
        if args.dry_run {
            show(&plan, &[], asked);
        }
        return Ok(0);
    }
    let remote = Remote::from_environment()?;
    let caller = match &remote {
        Some(_) => Caller::Proxy,
        None => {
            let mut local = Local::load()?;
            local.discover()?;
            let names: Vec<&str> = plan.steps.iter().map(|step| step.tool.as_str()).collect();
            if !args.dry_run {
                local.keep_keyring(&names)?;
            }
            Caller::Here(Box::new(local))
        }
    };
    let registry = match (&remote, &caller) {
        (Some(remote), _) => Registry::Proxy(remote),
        (None, Caller::Here(local)) => Registry::Here(local),
        (None, Caller::Proxy) => return Err(Failure::invalid("no proxy")),
    };
    let steps = check_plan(&plan, &registry, Author::Person)?;
    for (n, (step, checked)) in plan.steps.iter().zip(&steps).enumerate() {
        for warning in &checked.warnings {
            let tool = output::printable(&step.tool);
            let warning = output::printable(warning);
            tracing::warn!("Step {}: '{tool}': {warning}", n + 1);
        }
    }
    if args.dry_run {
        show(&plan, &steps, asked);
        return Ok(0);
    }
    confirm::check(&steps[first..], first, args.confirm_each, args.yes)?;
    let path = args
        .journal
        .clone()
        .unwrap_or_else(|| journal_of(&args.file));
    let journal = Journal::open(&path, &digest, plan.steps.len(), args.from.is_some())?;
    let execution = Execution {
        plan: &plan,
        steps: &steps,
        caller: &caller,
        confirm_each: args.confirm_each,
        yes: args.yes,
        keep_going: args.keep_going,
        format: asked.unwrap_or(Format::Json),
    };
    execution.run(journal, args.from.map(|_| first))
}

/// The plan, and a digest of its text.
fn read(path: &Path) -> Result<(Plan, String), Failure> {
    let bytes = files::read_at_most(path, LONGEST).map_err(|e| {
        let message = format!("Cannot read plan file '{}'", path.display());
        Failure::new(Code::InvalidValue, message).because(e)
    })?;
    let wrong = |why: String| {
        let message = format!("Invalid plan JSON in '{}'", path.display());
        Failure::invalid(message).because(why)
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
    let plan = Plan::parse_file(text).map_err(wrong)?;
    // Over what the plan says, so that its layout doesn't matter.
    let said = serde_json::to_vec(&plan.steps).unwrap_or_default();
    let digest = <sha2::Sha256 as sha2::Digest>::digest(said);
    Ok((plan, hex::encode(digest)))
}

fn journal_of(plan: &Path) -> PathBuf {
    let mut name = plan.as_os_str().to_owned();
    name.push(".journal");
    name.into()
}

fn show(plan: &Plan, steps: &[CheckedStep], asked: Option<Format>) {
    output::lines_or_value(
        asked,
        || {
            for (n, (step, checked)) in plan.steps.iter().zip(steps).enumerate() {
                output::line(&format!("{}. {}", n + 1, command_line(step)));
                let about = output::printable(&step.description);
                let about = [about.trim(), &checked.marks()].join("  ");
                output::line(&format!("   {}", about.trim()));
            }
        },
        || {
            let rows = plan.steps.iter().zip(steps).enumerate();
            let rows = rows.map(|(n, (step, checked))| {
                json!({
                    "step": n + 1,
                    "tool": step.tool,
                    "args": step.args,
                    "description": step.description,
                    "idempotent": checked.is_idempotent,
                    "confirm": checked.confirm,
                })
            });
            json!({"query": plan.query, "steps": rows.collect::<Vec<Value>>(), "executed": false})
        },
    );
}

/// A step as `ati run` would be typed.
pub fn command_line(step: &Step) -> String {
    command_line_with(&step.tool, &step.args)
}

/// The same with these arguments.
fn command_line_with(tool: &str, args: &Map<String, Value>) -> String {
    let mut line = format!("ati run {}", quoted(&output::printable(tool)));
    for (name, value) in args {
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let name = output::printable(name);
        let text = output::printable(&text);
        line += &format!(" {} {}", quoted(&format!("--{name}")), quoted(&text));
    }
    line
}
