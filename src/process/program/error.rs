//! Why a program has no outcome.

use std::io;
use std::time::Duration;

use super::super::plan::Failure;
use super::output::Stderr;
use crate::spool::SpoolError;

#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("'{0}': no such program")]
    NotFound(String),
    #[error("'{0}': no file that can be executed")]
    NotExecutable(String),
    #[error("its arguments and variables are longer than the system allows")]
    TooLong,
    #[error("an argument or a variable contains a NUL, which no program can be given")]
    Nul,
    #[error("can't be started: {0}")]
    Spawn(String),
    #[error("can't be confined: {0}")]
    Sandbox(String),
    #[error("its working folder can't be used: {0}")]
    Folder(String),
    #[error("timed out after {}s", after.as_secs_f64())]
    Timeout { after: Duration, stderr: Stderr },
    #[error("wrote more than {limit} bytes")]
    TooMuch { limit: u64 },
    #[error("had more than {limit} processes at a time")]
    TooManyProcesses { limit: u64, stderr: Stderr },
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error("its output can't be read: {0}")]
    Output(#[source] io::Error),
    /// Its supervisor ended without a report: killed by the system, or by the program.
    #[error("its supervisor ended before it did")]
    Lost,
}

impl ProgramError {
    pub(super) fn of_spawn(error: &io::Error, program: &str) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => ProgramError::NotFound(program.to_owned()),
            io::ErrorKind::PermissionDenied => ProgramError::NotExecutable(program.to_owned()),
            _ => ProgramError::Spawn(error.to_string()),
        }
    }

    /// The program's file was there a moment ago.
    pub(super) fn of_start(failure: Failure, program: &str) -> Self {
        match failure {
            Failure::Exec(libc::EACCES | libc::ENOEXEC | libc::EPERM | libc::EISDIR) => {
                ProgramError::NotExecutable(program.to_owned())
            }
            Failure::Exec(libc::E2BIG) => ProgramError::TooLong,
            Failure::Exec(libc::ENOENT) => ProgramError::Spawn(format!(
                "'{program}' or the interpreter that it names in its first line is not there"
            )),
            Failure::Exec(number) => {
                ProgramError::Spawn(io::Error::from_raw_os_error(number).to_string())
            }
            Failure::Sandbox(why) => ProgramError::Sandbox(why),
            Failure::Folder(why) => ProgramError::Folder(why),
            Failure::Other(why) => ProgramError::Spawn(why),
        }
    }
}
