//! `ati run`: call one tool.

use std::io::IsTerminal;

use serde_json::{Map, Value};
use tracing::debug;

use super::local::{Local, Printable};
use super::remote::Remote;
use super::{Format, output};
use crate::call::Args as ToolArgs;
use crate::config;
use crate::error::Failure;
use crate::exec::Watcher;

#[derive(clap::Args)]
#[command(
    override_usage = "ati run [OPTIONS] <TOOL> [--NAME VALUE]...",
    after_help = "Arguments of the tool come after its name: --name value, --name=value, \
                  or --flag for true. \
                  A value that is valid JSON is sent as JSON, any other value as text. \
                  'ati tool info <TOOL>' lists the arguments."
)]
pub struct Args {
    /// The tool's name, then its arguments
    #[arg(value_name = "TOOL", required = true, num_args = 1.., trailing_var_arg = true)]
    words: Vec<String>,
}

pub fn run(args: &Args, format: Format, verbose: bool) -> Result<u8, Failure> {
    let Some((name, words)) = args.words.split_first() else {
        return Err(Failure::invalid("which tool?"));
    };
    let given = parse(words);
    let format = if given.json { Format::Json } else { format };
    let result = match Remote::from_environment()? {
        Some(remote) => {
            debug!("mode: proxy");
            let remote = remote.for_tool(&config::ati_dir(), name);
            call_remote(&remote, name, &given, words)?
        }
        None => {
            debug!("mode: local");
            let watched = verbose || std::io::stderr().is_terminal();
            let watcher: Option<Watcher<'_>> = watched.then_some(&output::progress);
            Local::load_for(name)?.call(name, ToolArgs::Json(given.args), watcher)?
        }
    };
    match result {
        Printable::Json(value) => output::value(&value, format),
        // JSON that is nested too deep for serde_json is printed as it came.
        Printable::Raw(raw) => match serde_json::from_str(raw.get()) {
            Ok(value) => output::value(&value, format),
            Err(_) => output::line(raw.get()),
        },
    }
    Ok(0)
}

/// Call through the proxy. The call is also recorded in this machine's own audit log.
fn call_remote(
    remote: &Remote,
    name: &str,
    given: &Parsed,
    words: &[String],
) -> Result<Printable, Failure> {
    let mut audit = super::audit::RemoteCall::start(name, &given.args);
    let args = Value::Object(given.args.clone());
    let outcome = remote.call(name, &args, words, &mut audit.request_id);
    audit.end(outcome.as_ref().err());
    outcome.map(Printable::Raw)
}

#[derive(Debug, Default)]
struct Parsed {
    args: Map<String, Value>,
    json: bool,
}

/// `--name value`, `--name=value`, `--flag`. A word that begins with `--` is never a value; a word
/// with a single dash may be one, a negative number.
fn parse(words: &[String]) -> Parsed {
    let mut given = Parsed::default();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix("--") else {
            given.json |= word == "-J";
            continue;
        };
        let (name, attached) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let mut value = || {
            attached.map(str::to_owned).or_else(|| {
                words
                    .next_if(|next| !next.starts_with("--") && *next != "-J")
                    .cloned()
            })
        };
        match name {
            "" => {}
            "json" => given.json = true,
            "verbose" => {}
            // Options of ati itself. After the tool's name they are accepted and have no effect.
            "output" | "format" => drop(value()),
            name => {
                let value = value().map_or(Value::Bool(true), |text| {
                    serde_json::from_str(&text).unwrap_or(Value::String(text))
                });
                given.args.insert(name.to_owned(), value);
            }
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn args(line: &[&str]) -> Value {
        let words: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
        Value::Object(parse(&words).args)
    }

    #[test]
    fn words_become_arguments() {
        assert_eq!(
            args(&[
                "--q", "a b", "--n", "-5", "--flag", "--list", "[1,2]", "--zip", "007", "stray",
                "--x=y=z", "--e="
            ]),
            json!({"q": "a b", "n": -5, "flag": true, "list": [1, 2], "zip": "007", "x": "y=z", "e": ""})
        );
        assert_eq!(
            args(&[
                "--a",
                "--b",
                "--output",
                "table",
                "-J",
                "--verbose",
                "--format=text"
            ]),
            json!({"a": true, "b": true})
        );
        assert!(parse(&["--q".into(), "x".into(), "-J".into()]).json);
    }
}
