//! ati, called by the name `run`: the options of the RFC, so that the configuration of an MCP
//! client that has `"command": "run"` works with a link to ati.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// What `run --help` prints.
const USAGE: &str = "\
Usage: run --inspect [--runfile PATH] [--readonly]
       run --serve-mcp [--runfile PATH] [--readonly]

Functions of the nearest Runfile, here or in a folder above, and of ~/.runfile.

      --inspect       Print the functions and the schemas of their arguments as JSON
      --serve-mcp     Serve the functions to an MCP client over standard input and output
      --readonly      Only functions with '# @safe'
      --runfile PATH  This Runfile, or the one of this folder, and no other
  -h, --help          Print help
  -V, --version       Print the version

This is ati under another name: 'ati runfile inspect' and 'ati mcp serve --runfile' do the same.";

/// What a command line that begins with `run` stands for.
#[derive(Debug, PartialEq)]
pub enum CalledRun {
    /// The words of ati's own command line.
    Words(Vec<OsString>),
    /// To be printed.
    Help(&'static str),
    /// Why it can't be read.
    Mistake(String),
}

/// None where ati was called by another name.
pub fn command_line(words: impl IntoIterator<Item = OsString>) -> Option<CalledRun> {
    let mut words = words.into_iter();
    let name = words.next()?;
    if Path::new(&name).file_name() != Some(OsStr::new("run")) {
        return None;
    }
    Some(read(words))
}

fn read(mut words: impl Iterator<Item = OsString>) -> CalledRun {
    let (mut inspect, mut serve, mut readonly, mut path) = (false, false, false, None);
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(OsString::from(value))),
            None => (text.as_str(), None),
        };
        match (name, value) {
            ("--inspect", None) => inspect = true,
            ("--serve-mcp", None) => serve = true,
            ("--readonly", None) => readonly = true,
            ("--runfile" | "--working-dir", value) => match value.or_else(|| words.next()) {
                Some(value) => path = Some(value),
                None => return CalledRun::Mistake(format!("{name} needs a path")),
            },
            ("-h" | "--help", None) => return CalledRun::Help(USAGE),
            ("-V" | "--version", None) => {
                return CalledRun::Words(["ati", "--version"].map(OsString::from).to_vec());
            }
            _ => {
                return CalledRun::Mistake(format!(
                    "'{text}': called by the name 'run', ati knows --inspect and --serve-mcp; it \
                     runs no functions from the command line"
                ));
            }
        }
    }
    let mut command: Vec<OsString> = match (inspect, serve) {
        (true, false) => ["ati", "runfile", "inspect"].map(Into::into).to_vec(),
        (false, true) => ["ati", "mcp", "serve", "--runfile"]
            .map(Into::into)
            .to_vec(),
        (true, true) => {
            return CalledRun::Mistake("either --inspect or --serve-mcp".to_owned());
        }
        (false, false) => return CalledRun::Mistake("--inspect or --serve-mcp?".to_owned()),
    };
    command.extend(path);
    if readonly {
        command.push("--readonly".into());
    }
    CalledRun::Words(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<CalledRun> {
        command_line(line.split(' ').map(OsString::from))
    }

    #[test]
    fn options_of_run_stand_for_commands_of_ati() {
        for (line, expected) in [
            ("/usr/bin/run --inspect", "ati runfile inspect"),
            ("run --serve-mcp", "ati mcp serve --runfile"),
            (
                "run --serve-mcp --readonly --runfile=/p",
                "ati mcp serve --runfile /p --readonly",
            ),
            ("run --inspect --runfile /p", "ati runfile inspect /p"),
        ] {
            let expected = expected.split(' ').map(OsString::from).collect();
            assert_eq!(of(line), Some(CalledRun::Words(expected)), "{line}");
        }
        for mistake in [
            "run",
            "run deploy",
            "run --inspect --serve-mcp",
            "run --runfile",
        ] {
            let read = of(mistake.trim());
            assert!(
                matches!(read, Some(CalledRun::Mistake(_))),
                "{mistake}: {read:?}"
            );
        }
        assert!(matches!(of("run -h"), Some(CalledRun::Help(_))));
        assert_eq!(of("ati run --inspect"), None);
    }
}
