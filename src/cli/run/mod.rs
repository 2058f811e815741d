//! `ati run`: call one tool.

mod confirm;
mod files;
mod given;
mod layout;
pub(super) mod outputs;
mod result;
mod suggest;
mod usage;

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::ValueEnum as _;
use tracing::{debug, warn};

use super::local::{Answered, Local};
use super::remote::{Called, Remote};
use super::{Format, output};
use crate::catalog::Invocation;
use crate::catalog::words::Words;
use crate::config;
use crate::error::{Code, Failure};
use crate::exec::Watcher;
use files::Transfer;
use given::Given;

pub use files::{operation as file_operation, sent_arguments as file_arguments};
pub use result::print as print_result;
pub use suggest::unknown_tool;
pub use usage::{brief, brief_of, is_program, quoted};

#[derive(clap::Args)]
#[command(
    override_usage = "ati run [OPTIONS] <TOOL> [--NAME VALUE]...\n       \
                      ati run [OPTIONS] <TOOL> - < ARGUMENTS.json",
    after_help = "Arguments of the tool come after its name: --name value, --name=value, \
                  or --flag for true. A repeated flag is a list.\n\
                  A value is sent as the tool's schema has it: where that says string, as typed. \
                  Otherwise true, false, null, JSON lists and objects are JSON, and so are numbers \
                  that JSON writes in the same way; '\"5\"' is the text 5.\n\
                  A lone - reads all arguments from standard input, as a JSON object; flags \
                  count more.\n\
                  A tool that is a program gets all words after its name as they are, --help and \
                  - included; a -- right after the name is left out."
)]
pub struct Args {
    /// Take the arguments from this file, a JSON object; flags after the tool's name count more
    #[arg(long, value_name = "FILE")]
    args_file: Option<PathBuf>,

    /// Confirm the call with this token, which a call with the same arguments was refused with
    #[arg(long, value_name = "TOKEN", conflicts_with = "yes")]
    confirm: Option<String>,

    /// Confirm the call where that is wanted, without being asked
    #[arg(long)]
    yes: bool,

    /// The tool's name, then its arguments; --help after the name lists them
    #[arg(value_name = "TOOL", required = true, num_args = 1.., trailing_var_arg = true)]
    words: Vec<String>,
}

impl Args {
    /// Options of ati count after the tool's name too.
    pub fn options(&self, format: Format, verbose: bool) -> (Format, bool) {
        let words = Words::parse(self.words.get(1..).unwrap_or_default());
        (format_of(&words, format), verbose || words.verbose)
    }
}

/// The format that words after the tool's name ask for, or this one.
pub fn format_of(words: &Words<'_>, format: Format) -> Format {
    // A value that is none is reported with the tool's other arguments: it may be a program's.
    let named = words.output.flatten();
    let named = named.and_then(|name| Format::from_str(name, false).ok());
    match named {
        _ if words.json => Format::Json,
        named => named.unwrap_or(format),
    }
}

/// How a tool of the proxy is called. None for a program.
pub fn card_of_remote(remote: &Remote, name: &str) -> Result<Option<String>, Failure> {
    let described = remote.tool(name);
    let suggest = |failure| suggest::of_remote(remote, name, failure);
    Ok(usage::of_remote(&described.map_err(suggest)?))
}

/// How a tool of this machine is called. None for a program.
pub fn card_of_local(local: &mut Local, name: &str) -> Result<Option<String>, Failure> {
    local.discover_for(name)?;
    Ok(usage::of_tool(local.visible(name)?))
}

/// `formats`: that of [`Args::options`], and the one without regard to words after the tool's name.
pub fn run(args: &Args, formats: [Format; 2], verbose: bool) -> Result<u8, Failure> {
    let mut confirm = args.confirm.clone();
    let mut given = None;
    loop {
        let done = attempt(args, formats, verbose, confirm.clone(), &mut given);
        match done {
            Err(failure) => {
                let name = args.words.first().map_or("", String::as_str);
                confirm = Some(confirm::answer(failure, args.yes, name, given.as_ref())?);
            }
            done => return done,
        }
    }
}

/// One call. `kept` has its arguments: standard input can be read once.
fn attempt(
    args: &Args,
    formats: [Format; 2],
    verbose: bool,
    confirm: Option<String>,
    kept: &mut Option<Given>,
) -> Result<u8, Failure> {
    let Some((name, words)) = args.words.split_first() else {
        return Err(Failure::invalid("which tool?"));
    };
    // It may stand between the tool and its words, and belongs to neither.
    let words = match words.split_first() {
        Some((first, rest)) if first == "--" => rest,
        _ => words,
    };
    let parsed = Words::parse(words);
    let file = args.args_file.as_deref();
    let answered = match Remote::from_environment()? {
        Some(remote) => {
            debug!("mode: proxy");
            let remote = remote.for_tool(&config::ati_dir(), name).confirmed(confirm);
            let mut is_program = false;
            // Only the proxy knows whether the tool is a program. It is asked where that matters
            // before the call.
            if parsed.help || parsed.stdin.is_some() || file.is_some() {
                let described = remote.tool(name);
                is_program = described.as_ref().is_ok_and(usage::is_program);
                if parsed.help {
                    let suggest = |failure| suggest::of_remote(&remote, name, failure);
                    if let Some(card) = usage::of_remote(&described.map_err(suggest)?) {
                        output::line(&card);
                        return Ok(0);
                    }
                }
            }
            let given = match is_program {
                _ if kept.is_some() => kept.take(),
                true => Some(Given::of_program(file, words)?),
                false => Some(Given::read(file, words, &parsed)?),
            };
            let given: &Given = kept.insert(given.unwrap_or_default());
            if let Some(operation) = files::operation(name)
                && let Some(transfer) = Transfer::read(operation, given, &parsed)?
            {
                return files::through_proxy(&remote, name, transfer, formats[0]);
            }
            call_remote(&remote, name, given, &parsed)?
        }
        None => {
            debug!("mode: local");
            let mut local = Local::load_for(name)?.confirmed(confirm);
            if parsed.help
                && let Some(card) = card_of_local(&mut local, name)?
            {
                output::line(&card);
                return Ok(0);
            }
            let tool = local.catalog().find(name);
            let given = match tool.filter(|tool| tool.invocation.is_program()) {
                _ if kept.is_some() => kept.take(),
                Some(_) => Some(Given::of_program(file, words)?),
                None => Some(Given::read(file, words, &parsed)?),
            };
            let given: &Given = kept.insert(given.unwrap_or_default());
            if let Some(Invocation::Files(operation)) = tool.map(|tool| &tool.invocation)
                && let Some(transfer) = Transfer::read(*operation, given, &parsed)?
            {
                return files::here(&local, name, transfer, formats[0]);
            }
            let watched = verbose || std::io::stderr().is_terminal();
            let watcher: Option<Watcher<'_>> = watched.then_some(&output::progress);
            local.call(name, given.to_args(), watcher)?
        }
    };
    warn_of(&answered.warnings);
    let [format, without_words] = formats;
    let format = match answered.is_program && !parsed.json {
        true => without_words,
        false => format,
    };
    result::print(&answered.result, format, answered.format);
    Ok(0)
}

/// Calls a tool of the proxy with an object of arguments, as a step of a plan does.
pub fn with_arguments(
    remote: &Remote,
    name: &str,
    args: Box<serde_json::value::RawValue>,
) -> Result<Answered, Failure> {
    let given = Given {
        args,
        words: Vec::new(),
    };
    call_remote(remote, name, &given, &Words::default())
}

pub fn warn_of(warnings: &[String]) {
    for warning in warnings {
        warn!("{}", output::printable(warning));
    }
}

/// Call through the proxy. The call is also recorded in this machine's own audit log.
fn call_remote(
    remote: &Remote,
    name: &str,
    given: &Given,
    parsed: &Words<'_>,
) -> Result<Answered, Failure> {
    let audited = serde_json::from_str(given.args.get()).unwrap_or_default();
    let mut audit = super::audit::RemoteCall::start(name, &audited);
    let outcome = remote.call(name, &given.args, &given.words, &mut audit.request_id);
    if is_of_program(&outcome) {
        audit.of_program(&given.words);
    }
    // The proxy's answer repeats stray words, which may be anything.
    let unquoted = Failure::invalid("Invalid arguments: words that belong to no argument");
    let is_quoting =
        |failure: &Failure| !parsed.stray.is_empty() && failure.code == Code::InvalidValue;
    audit.end(match &outcome {
        Err(failure) if is_quoting(failure) => Some(&unquoted),
        outcome => outcome.as_ref().err(),
    });
    match outcome {
        Ok(called) => Ok(Answered {
            result: called.result,
            format: called.format,
            warnings: called.warnings,
            is_program: called.is_program,
        }),
        Err(failure) => Err(suggest::of_remote(remote, name, failure)),
    }
}

/// Whether a program of the proxy was called. An answer says so; of failures, the text does.
fn is_of_program(outcome: &Result<Called, Failure>) -> bool {
    match outcome {
        Ok(called) => called.is_program,
        Err(failure) => failure.message.contains("CLI error: "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::words::OUTPUTS;
    use clap::Parser as _;

    fn options(line: &[&str]) -> (Format, bool) {
        let line = ["ati", "run", "t"].iter().chain(line);
        let cli = super::super::Cli::try_parse_from(line).unwrap_or_else(|e| panic!("{e}"));
        let super::super::Command::Run(args) = cli.command else {
            panic!("another command")
        };
        args.options(Format::Text, false)
    }

    #[test]
    fn options_after_the_name_count() {
        assert_eq!(options(&["--q", "x"]), (Format::Text, false));
        assert_eq!(options(&["--output", "table"]), (Format::Table, false));
        assert_eq!(
            options(&["--format=json", "--verbose"]),
            (Format::Json, true)
        );
        assert_eq!(options(&["--output=table", "-J"]), (Format::Json, false));
        assert_eq!(options(&["--output", "bogus"]), (Format::Text, false));
    }

    #[test]
    fn formats_are_those_that_the_pipeline_knows() {
        let names: Vec<String> = Format::value_variants()
            .iter()
            .filter_map(|format| Some(format.to_possible_value()?.get_name().to_owned()))
            .collect();
        assert_eq!(names, OUTPUTS);
    }
}
