//! `ati run`: call one tool.

mod given;
mod layout;
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
use crate::catalog::words::Words;
use crate::config;
use crate::error::{Code, Failure};
use crate::exec::Watcher;
use given::Given;

pub use suggest::unknown_tool;

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

    /// The tool's name, then its arguments; --help after the name lists them
    #[arg(value_name = "TOOL", required = true, num_args = 1.., trailing_var_arg = true)]
    words: Vec<String>,
}

impl Args {
    /// Options of ati count after the tool's name too.
    pub fn options(&self, format: Format, verbose: bool) -> (Format, bool) {
        let words = Words::parse(self.words.get(1..).unwrap_or_default());
        // A value that is none is reported with the tool's other arguments: it may be a program's.
        let named = words.output.flatten();
        let named = named.and_then(|name| Format::from_str(name, false).ok());
        let format = match named {
            _ if words.json => Format::Json,
            named => named.unwrap_or(format),
        };
        (format, verbose || words.verbose)
    }
}

/// `formats`: that of [`Args::options`], and the one without regard to words after the tool's name.
pub fn run(args: &Args, formats: [Format; 2], verbose: bool) -> Result<u8, Failure> {
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
            let remote = remote.for_tool(&config::ati_dir(), name);
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
                true => Given::of_program(file, words)?,
                false => Given::read(file, words, &parsed)?,
            };
            call_remote(&remote, name, &given, &parsed)?
        }
        None => {
            debug!("mode: local");
            let mut local = Local::load_for(name)?;
            if parsed.help {
                local.discover_for(name)?;
                if let Some(card) = usage::of_tool(local.visible(name)?) {
                    output::line(&card);
                    return Ok(0);
                }
            }
            let tool = local.catalog().find(name);
            let given = match tool.filter(|tool| tool.invocation.is_program()) {
                Some(_) => Given::of_program(file, words)?,
                None => Given::read(file, words, &parsed)?,
            };
            let watched = verbose || std::io::stderr().is_terminal();
            let watcher: Option<Watcher<'_>> = watched.then_some(&output::progress);
            local.call(name, given.to_args(), watcher)?
        }
    };
    for warning in &answered.warnings {
        warn!("{}", output::printable(warning));
    }
    let [format, without_words] = formats;
    let format = match answered.is_program && !parsed.json {
        true => without_words,
        false => format,
    };
    result::print(&answered.result, format, answered.format);
    Ok(0)
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
            warnings: called.warning.into_iter().collect(),
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
