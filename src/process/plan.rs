//! What ati tells the supervisor of one program, and what it is told back.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::sandbox::Confinement;

/// One program, to be run to its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Absolute.
    pub program: OsString,
    pub args: Vec<OsString>,
    /// All that it gets. Values may be secrets.
    pub env: Vec<(OsString, OsString)>,
    pub terms: Terms,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Terms {
    pub cwd: Option<PathBuf>,
    pub timeout: Duration,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// The process group of a terminal that the program shares with ati. Otherwise the program has
    /// a session without terminal and a group of its own.
    pub terminal_group: Option<i32>,
    /// `uid:gid`
    pub identity: Option<String>,
    pub confinement: Option<Confinement>,
    /// Files and folders that the supervisor removes when everything is gone.
    pub remove: Vec<PathBuf>,
}

/// The beginning of a message: how many of the texts after it are what.
#[derive(Serialize, Deserialize)]
struct Header {
    args: usize,
    env: usize,
    terms: Terms,
}

/// A word or a variable with a NUL, which no program can be given.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HasNul;

impl Plan {
    /// The header as JSON, then the program, its words and its variables, each ended by a NUL.
    pub fn to_message(&self) -> io::Result<Result<Zeroizing<Vec<u8>>, HasNul>> {
        let header = Header {
            args: self.args.len(),
            env: self.env.len(),
            terms: self.terms.clone(),
        };
        let header = serde_json::to_vec(&header)?;
        let of = |text: &OsString| text.len() + 1;
        let words: usize = self.args.iter().map(of).sum();
        let variables: usize = self
            .env
            .iter()
            .map(|(name, value)| of(name) + of(value))
            .sum();
        let size = header.len() + 1 + of(&self.program) + words + variables;
        // Grown, it would leave copies of secrets behind.
        let mut message = Zeroizing::new(Vec::with_capacity(size));
        let mut has_nul = false;
        let mut add = |text: &[u8]| {
            has_nul |= text.contains(&0);
            message.extend_from_slice(text);
            message.push(0);
        };
        add(&header);
        add(self.program.as_bytes());
        for word in &self.args {
            add(word.as_bytes());
        }
        for (name, value) in &self.env {
            add(name.as_bytes());
            add(value.as_bytes());
        }
        Ok(if has_nul { Err(HasNul) } else { Ok(message) })
    }

    pub fn from_message(message: &[u8]) -> io::Result<Self> {
        let cut = || io::Error::other("a message is cut off");
        let mut texts = message.split_inclusive(|byte| *byte == 0);
        let mut next = || texts.next().and_then(|text| text.strip_suffix(&[0]));
        let header: Header = serde_json::from_slice(next().ok_or_else(cut)?)?;
        let mut text = || {
            let text = next().ok_or_else(cut)?;
            Ok::<_, io::Error>(OsStr::from_bytes(text).to_owned())
        };
        Ok(Plan {
            program: text()?,
            args: (0..header.args).map(|_| text()).collect::<Result<_, _>>()?,
            env: (0..header.env)
                .map(|_| Ok::<_, io::Error>((text()?, text()?)))
                .collect::<Result<_, _>>()?,
            terms: header.terms,
        })
    }

    /// Overwrites the variables, which the program has by now.
    pub fn forget_env(&mut self) {
        for (_, value) in self.env.drain(..) {
            drop(Zeroizing::new(value.into_vec()));
        }
    }
}

/// A line from the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// With its process id.
    Started(i32),
    /// It and everything that it had started is gone.
    Ended {
        status: Status,
        cause: Option<Cause>,
    },
    Failed(Failure),
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Code(i32),
    Signal(i32),
}

/// Why the supervisor ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cause {
    Timeout,
    /// ati has ended, or wants no more of it.
    Unneeded,
    TooManyProcesses,
}

/// Why it was not started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Failure {
    /// The kernel's error number for executing it.
    Exec(i32),
    Sandbox(String),
    Folder(String),
    Other(String),
}

impl Failure {
    pub fn exec(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Failure::Exec(number),
            None => Failure::Other(error.to_string()),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Exec(number) => io::Error::from_raw_os_error(*number).fmt(f),
            Failure::Sandbox(why) => write!(f, "it can't be confined: {why}"),
            Failure::Folder(why) => write!(f, "its working folder can't be used: {why}"),
            Failure::Other(why) => f.write_str(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(word: &[u8]) -> Plan {
        Plan {
            program: "/bin/x".into(),
            args: vec!["".into(), OsStr::from_bytes(word).to_owned(), "\n".into()],
            env: vec![("A".into(), "".into()), ("B".into(), "x=y".into())],
            terms: Terms {
                cwd: Some("/tmp".into()),
                timeout: Duration::from_millis(1500),
                grace: Duration::from_secs(2),
                terminal_group: None,
                identity: None,
                confinement: None,
                remove: vec!["/tmp/x".into()],
            },
        }
    }

    #[test]
    fn plan_is_read_as_it_was_written() {
        for word in [&b"word"[..], b"\xff\xfe", b"$(id); `id`", b""] {
            let message = plan(word).to_message().unwrap().unwrap();
            assert_eq!(message.len(), message.capacity());
            assert_eq!(Plan::from_message(&message).unwrap(), plan(word));
            for end in 0..message.len() {
                assert!(Plan::from_message(&message[..end]).is_err(), "{end}");
            }
        }
        assert_eq!(plan(b"a\0b").to_message().unwrap(), Err(HasNul));
    }
}
