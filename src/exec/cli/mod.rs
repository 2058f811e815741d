//! Programs as tools: one run of the provider's program for each call.
//!
//! ```text
//! run
//!   ProgramSlots::enter      slots.rs: room for one more program of this provider
//!   credentials::obtain      what a generator mints, as variables
//!   Equipment::prepare       equipment.rs: variables, credential files, the folder of the call
//!   size::check              size.rs: what the system would refuse
//!   Captures::begin          capture.rs: paths of the caller are replaced by ati's own
//!   process::program::run    the program, supervised, to its end
//!   Captures::collect        what the program wrote there, redacted
//!   output::answer           output.rs: JSON or a text, redacted, spooled where it is big
//! ```

mod capture;
mod equipment;
mod error;
pub mod help;
mod output;
mod search;
mod size;
mod slots;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

use capture::{CaptureError, Captures};
pub use error::{CliError, Said};
pub use slots::ProgramSlots;

use super::credentials::{CallCredential, obtain};
use super::{Answer, ExecContext};
use crate::catalog::Provider;
use crate::catalog::cli::Cli;
use crate::credential::Attachment;
use crate::keyring::Secret;
use crate::process::program::{self, ProgramOutcome, ProgramSpec, Status, Stdin};
use crate::spool::Spool;
use equipment::Equipment;
use slots::NoSlot;

/// How long a program has between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// How much of what a failing program wrote is told.
const LONGEST_ERROR: usize = 16 << 10;
/// How much of its standard error is kept for that.
const MOST_STDERR: usize = 64 << 10;

/// One call of a program.
pub struct Job<'a> {
    pub provider: &'a Arc<Provider>,
    pub cli: &'a Cli,
    /// What the caller wants the program to get, word by word.
    pub words: Vec<String>,
    /// Words of the caller that are secrets.
    pub secret_words: Vec<String>,
    pub env: Vec<(String, Value)>,
    /// What a confined program has to read, next to what its manifest opens.
    pub readable: Vec<PathBuf>,
    pub credential: &'a CallCredential,
}

/// What a program gave that ended well.
pub struct Ran {
    pub answer: Answer,
    /// What it wrote to its standard error, without credentials.
    pub stderr: String,
}

/// The value of a variable, with its credentials filled in.
pub enum Value {
    Text(Zeroizing<String>),
    /// The variable is the path of a file that holds the credential.
    File {
        key: String,
        credential: Secret,
        /// Whether the file may stay: it has the credential's name, and other calls use it too.
        lasting: bool,
    },
}

/// Where programs run, and what they read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surroundings {
    /// An empty temporary folder for each call, and no input: for calls of others.
    Isolated,
    /// The folder and the input of this process: for the caller's own call.
    Callers,
}

pub async fn run(job: Job<'_>, context: ExecContext<'_>) -> Result<Ran, CliError> {
    let (cli, provider) = (job.cli, &job.provider.name);
    let mut words: Vec<String> = cli.default_args.iter().chain(&job.words).cloned().collect();
    let slots = &context.runtime.programs;
    let entered = slots.enter(provider, cli.most_at_a_time, context.limits.timeout);
    let slot = entered.await.map_err(|none| match none {
        NoSlot::Full => CliError::Crowded(provider.clone()),
        NoSlot::TimedOut => CliError::Waited(provider.clone()),
    })?;
    let attachment = obtain(job.credential, job.provider.outbound.source, context).await?;
    let mut equipment = Equipment::prepare(cli, &job.env, context).await?;
    equipment.env.extend(attachment.environment());
    let variables = equipment.env.iter();
    let variables = variables.map(|(name, value)| name.len() + value.len() + 1);
    let begun = match size::check(&words, variables) {
        Ok(()) => {
            let callers = &mut words[cli.default_args.len()..];
            let begun = Captures::begin(&cli.captures, callers, context).await;
            begun.map_err(|error| match error {
                // The caller's mistake: nothing was started.
                CaptureError::TooMany => CliError::TooLong(error.to_string()),
                other => other.into(),
            })
        }
        Err(error) => Err(error),
    };
    let captures = match begun {
        Ok(captures) => captures,
        Err(error) => {
            equipment.remove().await;
            return Err(error);
        }
    };
    context.trail.attempt();
    let ended = {
        let _wait = context.trail.wait();
        let mut spec = spec(&job, words, &mut equipment, context);
        let captured = captures.as_ref().map(Captures::folder);
        if captured.is_some() {
            spec.max_stdout = spec.max_stdout.min(capture::MOST_STDOUT);
        }
        spec.sandbox_write
            .extend(captured.as_ref().map(|it| it.path().to_owned()));
        spec.remove_if_alone
            .extend(captured.as_ref().map(|it| it.path().to_owned()));
        let running = program::run_holding(spec, (slot, equipment, captured));
        match &captures {
            None => running
                .await
                .map_err(|error| CliError::of_program(error, cli)),
            Some(captures) => tokio::select! {
                ended = running => ended.map_err(|error| CliError::of_program(error, cli)),
                // It fills the disk. Leaving it ends it.
                too_large = captures.overflow() => Err(too_large.into()),
            },
        }
    };
    let ended = match ended {
        Ok(outcome) => {
            let end = check_end(&outcome, captures.as_ref(), &attachment, &job.secret_words).await;
            end.map(|()| outcome)
        }
        Err(error) => Err(error),
    };
    let said = |outcome: &ProgramOutcome| {
        let text = attachment.redact_text(outcome.stderr.to_bytes().trim_ascii(), usize::MAX);
        text.trim().to_owned()
    };
    match (ended, captures) {
        (Ok(outcome), None) => Ok(Ran {
            stderr: said(&outcome),
            answer: output::answer(outcome.stdout, &attachment, provider, context).await?,
        }),
        (Ok(outcome), Some(captures)) => {
            let stderr = said(&outcome);
            let collected = captures.collect(outcome.stdout, provider, &attachment, context);
            Ok(Ran {
                stderr,
                answer: collected.await?,
            })
        }
        (Err(error), None) => Err(error),
        (Err(error), Some(captures)) => {
            captures.discard().await;
            Err(error)
        }
    }
}

/// Refuses words that no program could get, whatever its manifest adds to them.
pub fn check_words(words: &[String]) -> Result<(), CliError> {
    size::check(words, std::iter::empty())
}

fn spec(
    job: &Job<'_>,
    words: Vec<String>,
    equipment: &mut Equipment,
    context: ExecContext<'_>,
) -> ProgramSpec {
    let (cli, provider, limits) = (job.cli, job.provider, context.limits);
    ProgramSpec {
        program: cli.command.clone(),
        args: words.into_iter().map(Into::into).collect(),
        env: std::mem::take(&mut equipment.env),
        cwd: equipment.folder(),
        stdin: match context.surroundings {
            Surroundings::Isolated => Stdin::Null,
            Surroundings::Callers => Stdin::Inherit,
        },
        timeout: cli.timeout,
        grace: GRACE,
        max_stdout: limits.max_response_bytes as u64,
        max_stderr: MOST_STDERR,
        stdout: Spool::new(limits.spool_bytes, context.runtime.spools.clone()),
        sandbox: provider.sandbox.clone().map(|mut sandbox| {
            sandbox.read.extend(job.readable.iter().cloned());
            sandbox
        }),
        sandbox_read: equipment.files().collect(),
        sandbox_write: equipment.own_folder().into_iter().collect(),
        run_as: None,
        remove: equipment.temporary().collect(),
        remove_if_alone: Vec::new(),
    }
}

/// An error where the program says that it failed, with what it wrote.
async fn check_end(
    outcome: &ProgramOutcome,
    captures: Option<&Captures>,
    attachment: &Attachment,
    secret_words: &[String],
) -> Result<(), CliError> {
    if outcome.status == Status::Code(0) {
        return Ok(());
    }
    let as_callers = |text: Zeroizing<Vec<u8>>| match captures {
        Some(captures) => Zeroizing::new(captures.with_callers_paths(&text)),
        None => text,
    };
    let errors = as_callers(outcome.stderr.to_bytes());
    // Some programs tell their errors on the other stream.
    let text = match errors.trim_ascii() {
        b"" => {
            let beginning = as_callers(Zeroizing::new(output::beginning(&outcome.stdout).await?));
            attachment.redact_cut_text(&beginning, usize::MAX)
        }
        errors => attachment.redact_text(errors, usize::MAX),
    };
    let text = output::shortened(text.trim());
    let secrets = secret_words.iter().map(String::as_bytes);
    let audited = Attachment::default().with_redacted(secrets);
    let said = Said {
        audited: audited.redact_text(text.as_bytes(), usize::MAX),
        text,
    };
    Err(match outcome.status {
        Status::Code(code) => CliError::Exit { code, said },
        Status::Signal(number) => CliError::Signal {
            signal: error::signal_name(number),
            said,
        },
    })
}
