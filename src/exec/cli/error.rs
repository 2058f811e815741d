use super::capture::CaptureError;
use super::output::not_spooled;
use crate::catalog::cli::Cli;
use crate::credential::CredentialError;
use crate::error::{Code, ExecFailure, Shortage, UpstreamFailure};
use crate::process::program::ProgramError;

/// Why a program gave no result. No text tells a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CliError {
    #[error("CLI timed out after {0}s")]
    Timeout(u64),
    /// The tool can't be used by a program.
    #[error("'{tool}' is not run: {why}")]
    Interactive { tool: String, why: &'static str },
    /// The program is not the one that its metadata was written for.
    #[error("'{command}' is not run: {why}")]
    Unverified { command: String, why: String },
    #[error("CLI exited with code {code}: {}", .said.text)]
    Exit { code: i32, said: Said },
    /// It ended itself, or another process ended it.
    #[error("CLI was ended by signal {signal}: {}", .said.text)]
    Signal { signal: String, said: Said },
    /// It is missing, not executable, or the system had no room for it.
    #[error("Failed to spawn CLI process: {command}: {why}")]
    Spawn { command: String, why: String },
    #[error("CLI wrote more than {0} bytes to its output")]
    TooMuch(u64),
    #[error("CLI had more than {0} processes at a time")]
    TooManyProcesses(u64),
    /// Its supervisor was killed.
    #[error("CLI was lost: its supervisor ended before it did")]
    Lost,
    #[error("the output of the CLI can't be read: {0}")]
    Output(String),
    /// The words are longer than the system allows.
    #[error("Invalid arguments: {0}")]
    TooLong(String),
    #[error("Missing keyring key: {0}")]
    MissingKey(String),
    /// A credential for the program can't be written to its file.
    #[error("the credential file of '{key}' can't be written: {why}")]
    CredentialFile { key: String, why: String },
    /// The folder of the call can't be made or used.
    #[error("the folder of the call can't be used: {0}")]
    Folder(String),
    #[error("too many calls wait for provider '{0}'")]
    Crowded(String),
    #[error("the call's time was over before provider '{0}' had room for it")]
    Waited(String),
    #[error("too busy: {0}")]
    Busy(Shortage),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error(transparent)]
    Credential(#[from] CredentialError),
}

/// What a program wrote before it failed, without credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    pub text: String,
    /// The same without secrets among the caller's words, for the audit.
    pub audited: String,
}

impl CliError {
    pub(super) fn of_program(error: ProgramError, cli: &Cli) -> Self {
        let spawn = |why: String| CliError::Spawn {
            command: cli.command.clone(),
            why,
        };
        match error {
            ProgramError::NotFound(_) => spawn("no such program".to_owned()),
            ProgramError::NotExecutable(_) => spawn("no file that can be executed".to_owned()),
            ProgramError::TooLong => CliError::TooLong(
                "the words and variables of the program are longer than this system allows \
                 (ARG_MAX)"
                    .to_owned(),
            ),
            ProgramError::Nul => spawn("a variable has a NUL byte".to_owned()),
            ProgramError::Spawn(why) => spawn(why),
            ProgramError::Sandbox(why) => spawn(format!("it can't be confined: {why}")),
            ProgramError::Folder(why) => CliError::Folder(why),
            ProgramError::Timeout { .. } => CliError::Timeout(cli.timeout.as_secs()),
            ProgramError::TooMuch { limit } => CliError::TooMuch(limit),
            ProgramError::TooManyProcesses { limit, .. } => CliError::TooManyProcesses(limit),
            ProgramError::Spool(error) => not_spooled(error),
            ProgramError::Output(error) => CliError::Output(error.to_string()),
            ProgramError::Lost => CliError::Lost,
        }
    }
}

/// As people know it: `9 (SIGKILL)`.
pub(super) fn signal_name(number: i32) -> String {
    const NAMES: [(i32, &str); 15] = [
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGXCPU, "SIGXCPU"),
        (libc::SIGXFSZ, "SIGXFSZ"),
        (libc::SIGSYS, "SIGSYS"),
    ];
    match NAMES.iter().find(|(known, _)| *known == number) {
        Some((_, name)) => format!("{number} ({name})"),
        None => number.to_string(),
    }
}

impl ExecFailure for CliError {
    fn intro(&self) -> &'static str {
        "CLI error"
    }

    fn outcome(&self) -> &'static str {
        match self {
            CliError::Timeout(_) => "timeout",
            CliError::Exit { .. } => "tool_error",
            CliError::MissingKey(_) => "missing_key",
            CliError::Crowded(_) | CliError::Waited(_) => "busy",
            CliError::Interactive { .. } | CliError::Unverified { .. } => "refused",
            CliError::Busy(shortage) => shortage.label(),
            CliError::TooLong(_) => "invalid_arguments",
            CliError::Capture(error) => match error.shortage() {
                Some(shortage) => shortage.label(),
                None => "failed",
            },
            CliError::Credential(error) => error.outcome(),
            CliError::Signal { .. }
            | CliError::Spawn { .. }
            | CliError::TooMuch(_)
            | CliError::TooManyProcesses(_)
            | CliError::Lost
            | CliError::Output(_)
            | CliError::CredentialFile { .. }
            | CliError::Folder(_) => "failed",
        }
    }

    fn code(&self) -> Code {
        match self {
            CliError::Timeout(_) => Code::ProviderTimeout,
            CliError::MissingKey(_) => Code::MissingKey,
            CliError::TooLong(_) => Code::InvalidValue,
            CliError::Capture(error) if error.shortage().is_some() => Code::ProviderUnavailable,
            CliError::Credential(error) => error.code(),
            CliError::Crowded(_) | CliError::Waited(_) | CliError::Busy(_) => {
                Code::ProviderUnavailable
            }
            CliError::Exit { .. }
            | CliError::Signal { .. }
            | CliError::Spawn { .. }
            | CliError::Interactive { .. }
            | CliError::Unverified { .. }
            | CliError::TooMuch(_)
            | CliError::TooManyProcesses(_)
            | CliError::Lost
            | CliError::Output(_)
            | CliError::Capture(_)
            | CliError::CredentialFile { .. }
            | CliError::Folder(_) => Code::ExecutionFailed,
        }
    }

    fn upstream_failure(&self) -> Option<UpstreamFailure> {
        let kind = match self {
            CliError::Timeout(_) => "timeout",
            CliError::Exit { .. } => "exit_code",
            CliError::Signal { .. } => "signal",
            CliError::Spawn { .. } => "spawn",
            CliError::TooMuch(_) => "too_large",
            CliError::Capture(CaptureError::TooLarge { .. } | CaptureError::TooMuch(_)) => {
                "too_large"
            }
            CliError::Capture(CaptureError::Missing(_)) => "no_file",
            CliError::TooManyProcesses(_) => "too_many_processes",
            CliError::Output(_) | CliError::Lost => "closed",
            CliError::Credential(error) => return error.upstream_failure(),
            CliError::TooLong(_)
            | CliError::Interactive { .. }
            | CliError::Unverified { .. }
            | CliError::MissingKey(_)
            | CliError::CredentialFile { .. }
            | CliError::Folder(_)
            | CliError::Capture(_)
            | CliError::Crowded(_)
            | CliError::Waited(_)
            | CliError::Busy(_) => return None,
        };
        Some(UpstreamFailure::new(kind))
    }

    fn shortage(&self) -> Option<Shortage> {
        match self {
            CliError::Crowded(_) => Some(Shortage::Queue),
            CliError::Waited(_) => Some(Shortage::Time),
            CliError::Busy(shortage) => Some(*shortage),
            CliError::Capture(error) => error.shortage(),
            _ => None,
        }
    }

    fn audit_text(&self) -> String {
        match self {
            CliError::Exit { code, said } => {
                format!("CLI exited with code {code}: {}", said.audited)
            }
            CliError::Signal { signal, said } => {
                format!("CLI was ended by signal {signal}: {}", said.audited)
            }
            CliError::Capture(error) => error.without_path(),
            other => other.to_string(),
        }
    }
}
