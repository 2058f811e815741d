//! The steps of a checked plan, one after the other.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::super::local::{Answered, Local};
use super::super::remote::Remote;
use super::super::run::{self, print_result};
use super::super::{Format, output};
use super::check::CheckedStep;
use super::confirm::asks;
use super::journal::{Journal, State};
use super::{command_line_with, reference};
use crate::assist::plan::Plan;
use crate::call::Args;
use crate::config;
use crate::error::{Code, Failure, UpstreamFault};
use crate::exec::Watcher;
use crate::text::clip_chars;

/// Who makes the calls.
pub enum Caller {
    Here(Box<Local>),
    Proxy,
}

pub struct Execution<'a> {
    pub plan: &'a Plan,
    pub steps: &'a [CheckedStep],
    pub caller: &'a Caller,
    pub confirm_each: bool,
    /// Every step that wants it is confirmed.
    pub yes: bool,
    pub keep_going: bool,
    pub format: Format,
}

/// Characters of a command that a person is shown.
const LONGEST_QUESTION: usize = 4000;

/// Whether the upstream may have got the call, and done what it asks for: there was no answer, or
/// one of a server in between that had none.
fn is_unanswered(failure: &Failure, text: &str) -> bool {
    let by_upstream = |status: &u16| text.contains(&format!("API error ({status})"));
    failure.code == Code::ProviderTimeout
        || text.contains(UpstreamFault::Closed.words())
        || [408, 502, 504].iter().any(by_upstream)
        || matches!(failure.status, Some(408 | 504))
}

impl Execution<'_> {
    /// `from` is the step to begin with, whatever the journal says.
    pub fn run(&self, mut journal: Journal, from: Option<usize>) -> Result<u8, Failure> {
        let first = from.unwrap_or(0);
        self.check_results(first, &journal)?;
        let is_resumed = from.is_none() && journal.is_resumed();
        if is_resumed {
            let path = journal.path.display();
            output::note(&format!("Going on with an earlier run, by {path}"));
        }
        let mut failures = 0;
        for at in first..self.plan.steps.len() {
            self.announce(at);
            if is_resumed && self.is_settled(at, &journal)? {
                output::note("[SKIP] done by the earlier run");
                continue;
            }
            let args = self.arguments(at, &journal.results);
            if let Ok(args) = &args
                && !self.is_confirmed(at, args)?
            {
                output::note("[SKIP]");
                journal.skipped(at)?;
                continue;
            }
            let done = args.and_then(|args| self.step(at, args, &mut journal));
            let Err(failure) = done else {
                output::note("[OK]");
                continue;
            };
            output::note(&format!(
                "[ERROR] {}",
                output::printable(&failure.one_line())
            ));
            failures += 1;
            if self.confirm_each && asks("Go on with the next step?") == Some(true) {
                continue;
            }
            if self.confirm_each || !self.keep_going {
                let n = at + 1;
                let message = match self.confirm_each {
                    true => format!("Plan execution aborted at step {n}: {}", failure.message),
                    false => format!("Plan execution stopped at step {n}: {}", failure.message),
                };
                return Err(Failure { message, ..failure });
            }
        }
        if failures > 0 {
            let all = self.plan.steps.len();
            output::note(&format!("{failures} of {all} steps failed"));
            return Ok(0);
        }
        journal.finished()?;
        Ok(0)
    }

    fn announce(&self, at: usize) {
        let (step, all) = (&self.plan.steps[at], self.plan.steps.len());
        let about = output::printable(&step.description);
        let line = format!(
            "Step {}/{all}: {} {about}",
            at + 1,
            output::printable(&step.tool)
        );
        output::note(line.trim_end());
    }

    /// Whether the earlier run has done a step that isn't done again. What only reads is: later
    /// steps get what is true now.
    fn is_settled(&self, at: usize, journal: &Journal) -> Result<bool, Failure> {
        let checked = &self.steps[at];
        match journal.state(at) {
            State::New => Ok(false),
            State::Done => Ok(!checked.only_reads),
            State::Unknown if checked.is_idempotent => Ok(false),
            State::Unknown => {
                let (n, tool) = (at + 1, output::printable(&self.plan.steps[at].tool));
                let message = format!(
                    "Step {n} ('{tool}') had begun when the earlier run ended. It isn't known \
                     whether it took effect, and it isn't idempotent, so it is not repeated."
                );
                let hint = match n < self.plan.steps.len() {
                    true => format!(
                        "look whether it took effect; --from {} goes on after it, --from {n} \
                         repeats it",
                        n + 1
                    ),
                    false => format!("look whether it took effect; --from {n} repeats it"),
                };
                Err(Failure::new(Code::ExecutionFailed, message).hint(hint))
            }
        }
    }

    /// The person sees what will be sent, and not where it comes from.
    fn is_confirmed(&self, at: usize, args: &Map<String, Value>) -> Result<bool, Failure> {
        if !self.confirm_each {
            return Ok(true);
        }
        let line = command_line_with(&self.plan.steps[at].tool, args);
        let question = match clip_chars(&line, LONGEST_QUESTION) {
            shown if shown.len() < line.len() => {
                let all = line.chars().count();
                format!("Run '{shown}…' ({all} characters)?")
            }
            shown => format!("Run '{shown}'?"),
        };
        asks(&question).ok_or_else(|| {
            let message = format!("Plan execution aborted at step {}", at + 1);
            Failure::new(Code::ExecutionFailed, message)
                .hint("--confirm-each reads answers from standard input, which has ended")
        })
    }

    /// Every result of a step that isn't run, and that a later one needs, has to be there.
    fn check_results(&self, first: usize, journal: &Journal) -> Result<(), Failure> {
        for (at, step) in self.steps.iter().enumerate().skip(first) {
            let mut missing = step.needs.iter();
            let missing =
                missing.find(|need| **need < first && !journal.results.contains_key(need));
            if let Some(need) = missing {
                let message = format!(
                    "step {} needs the result of step {}, which the journal doesn't have",
                    at + 1,
                    need + 1
                );
                return Err(Failure::invalid(message).hint("begin with an earlier step"));
            }
        }
        Ok(())
    }

    fn step(
        &self,
        at: usize,
        args: Map<String, Value>,
        journal: &mut Journal,
    ) -> Result<(), Failure> {
        let args = RawValue::from_string(Value::Object(args).to_string())
            .map_err(|e| Failure::new(Code::ExecutionFailed, "the arguments").because(e))?;
        journal.begun(at)?;
        match self.confirmed_call(at, &args) {
            Ok(answered) => {
                run::warn_of(&answered.warnings);
                let is_needed = self.steps.iter().any(|step| step.needs.contains(&at));
                let result: Option<Value> = is_needed
                    .then(|| serde_json::from_str(answered.result.get()).unwrap_or_default());
                journal.done(at, result.as_ref())?;
                if let Some(result) = result {
                    journal.results.insert(at, result);
                }
                print_result(&answered.result, self.format, answered.format);
                Ok(())
            }
            Err(failure) => {
                let text = failure.one_line();
                journal.failed(at, &text, !is_unanswered(&failure, &text))?;
                Err(failure)
            }
        }
    }

    fn arguments(
        &self,
        at: usize,
        results: &BTreeMap<usize, Value>,
    ) -> Result<Map<String, Value>, Failure> {
        let args = Value::Object(self.plan.steps[at].args.clone());
        match reference::resolve(&args, results).map_err(Failure::invalid)? {
            Value::Object(args) => Ok(args),
            _ => Err(Failure::invalid("the arguments are no object")),
        }
    }

    /// A call that wants to be confirmed has not run. It is made again with its confirmation, where
    /// an option or the person at the terminal gave one.
    fn confirmed_call(&self, at: usize, args: &RawValue) -> Result<Answered, Failure> {
        let failure = match self.call(at, args, None) {
            Err(failure) if failure.code == Code::ConfirmRequired => failure,
            done => return done,
        };
        match &failure.confirmation {
            Some(wanted) if self.yes || self.confirm_each => {
                self.call(at, args, Some(wanted.token.clone()))
            }
            _ => Err(failure.hint("--confirm-each asks before each step, --yes confirms all")),
        }
    }

    fn call(
        &self,
        at: usize,
        args: &RawValue,
        confirm: Option<String>,
    ) -> Result<Answered, Failure> {
        let name = &self.plan.steps[at].tool;
        match self.caller {
            Caller::Here(local) => {
                let args = Args::Text {
                    args: Some(args),
                    words: Vec::new(),
                };
                let watched = std::io::stderr().is_terminal();
                let watcher: Option<Watcher<'_>> = watched.then_some(&output::progress);
                match confirm {
                    None => local.call(name, args, watcher),
                    Some(token) => local.with_confirmation(token).call(name, args, watcher),
                }
            }
            Caller::Proxy => {
                let remote = Remote::from_environment()?;
                let remote = remote.ok_or_else(|| Failure::invalid("ATI_PROXY_URL is not set"))?;
                let remote = remote.for_tool(&config::ati_dir(), name).confirmed(confirm);
                run::with_arguments(&remote, name, args.to_owned())
            }
        }
    }
}
