//! The hidden commands of ati: what it is where it stands between ati and a program. They are read
//! before the command line is, because each call of a program passes through here, and building
//! the whole command line takes longer than all the rest.

use std::ffi::OsString;
use std::io::{self, Write};

use super::confine;
use super::oversee::oversee;
use super::run_as::Identity;
use super::sandbox::Confinement;
use super::supervisor::supervise;

/// Supervises a program that stays: `[--run-as UID:GID] [--sandbox JSON] -- program words`.
pub const SUPERVISE: &str = "__supervise";
/// Supervises one program to its end. What it is told comes through its standard input.
pub const OVERSEE: &str = "__oversee";
/// Confines itself, then becomes the program: `-- program words`.
pub const CONFINE: &str = "__confine";

/// As a shell has it, where a program can't be run.
const CANT_RUN: u8 = 127;

/// Runs the hidden command that these arguments name, if they name one, to its exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Option<u8> {
    let mut arguments = arguments.into_iter().skip(1);
    let command = arguments.next()?;
    let arguments: Box<dyn Iterator<Item = OsString>> = Box::new(arguments);
    let done = match command.to_str()? {
        SUPERVISE => supervise_program(arguments),
        OVERSEE => oversee(),
        CONFINE => Words::read(arguments).and_then(|words| confine::become_program(&words.words)),
        _ => return None,
    };
    Some(done.unwrap_or_else(|e| {
        // Its streams are the program's, so that the reason is all that it may print.
        let _ = writeln!(io::stderr(), "ati: {e}");
        CANT_RUN
    }))
}

fn supervise_program(arguments: impl Iterator<Item = OsString>) -> io::Result<u8> {
    let Words {
        words,
        identity,
        confinement,
    } = Words::read(arguments)?;
    let (program, args) = words.split_first().ok_or_else(malformed)?;
    supervise(program, args, identity, confinement.as_ref())
        .map_err(|e| io::Error::other(format!("{} can't be run: {e}", program.display())))
}

/// Options, `--`, and a program with its words.
struct Words {
    words: Vec<OsString>,
    identity: Option<Identity>,
    confinement: Option<Confinement>,
}

impl Words {
    fn read(mut arguments: impl Iterator<Item = OsString>) -> io::Result<Self> {
        let (mut identity, mut confinement) = (None, None);
        loop {
            let option = arguments.next().ok_or_else(malformed)?;
            if option == "--" {
                break;
            }
            let value = arguments.next().ok_or_else(malformed)?;
            let value = value.to_str().ok_or_else(malformed)?;
            match option.to_str() {
                Some("--run-as") => identity = Some(value.parse().map_err(io::Error::other)?),
                Some("--sandbox") => confinement = Some(serde_json::from_str(value)?),
                _ => return Err(malformed()),
            }
        }
        Ok(Words {
            words: arguments.collect(),
            identity,
            confinement,
        })
    }
}

fn malformed() -> io::Error {
    io::Error::other("this command is for ati itself")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_of_a_person_is_left_alone() {
        for words in [
            &["ati"][..],
            &["ati", "run", "__confine"],
            &["ati", "--help"],
        ] {
            assert_eq!(run(words.iter().map(OsString::from)), None);
        }
        for words in [
            &["ati", SUPERVISE][..],
            &["ati", SUPERVISE, "--x", "1", "--", "true"],
        ] {
            assert_eq!(run(words.iter().map(OsString::from)), Some(CANT_RUN));
        }
    }
}
