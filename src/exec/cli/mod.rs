//! Programs as tools: one run of the provider's program for each call.
//!
//! ```text
//! run
//!   ProgramSlots::enter      slots.rs: room for one more program of this provider
//!   credentials::obtain      what a generator mints, as variables
//!   Equipment::prepare       equipment.rs: variables, credential files, the folder of the call
//!   size::check              size.rs: what the system would refuse
//!   [captures]               paths of the caller are replaced by ati's own
//!   process::program::run    the program, supervised, to its end
//!   [captures]               what the program wrote there
//!   output::answer           output.rs: JSON or a text, redacted, spooled where it is big
//! ```

mod equipment;
mod error;
mod output;
mod size;
mod slots;

use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

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
    pub credential: &'a CallCredential,
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

pub async fn run(job: Job<'_>, context: ExecContext<'_>) -> Result<Answer, CliError> {
    let (cli, provider) = (job.cli, &job.provider.name);
    let words: Vec<String> = cli.default_args.iter().chain(&job.words).cloned().collect();
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
    size::check(
        &words,
        variables.map(|(name, value)| name.len() + value.len() + 1),
    )?;
    // Captures: here the words are final, and paths of the caller can be replaced.
    context.trail.attempt();
    let outcome = {
        let _wait = context.trail.wait();
        let spec = spec(&job, words, &mut equipment, context);
        let ended = program::run_holding(spec, (slot, equipment)).await;
        ended.map_err(|error| CliError::of_program(error, cli))?
    };
    check_end(&outcome, &attachment, &job.secret_words).await?;
    // Captures: here the program has ended well, and what it wrote can be collected.
    output::answer(outcome.stdout, &attachment, provider, context).await
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
        sandbox: provider.sandbox.clone(),
        sandbox_read: equipment.files().collect(),
        sandbox_write: equipment.own_folder().into_iter().collect(),
        run_as: None,
        remove: equipment.temporary().collect(),
    }
}

/// An error where the program says that it failed, with what it wrote.
async fn check_end(
    outcome: &ProgramOutcome,
    attachment: &Attachment,
    secret_words: &[String],
) -> Result<(), CliError> {
    if outcome.status == Status::Code(0) {
        return Ok(());
    }
    let errors = outcome.stderr.to_bytes();
    // Some programs tell their errors on the other stream.
    let text = match errors.trim_ascii() {
        b"" => {
            let beginning = output::beginning(&outcome.stdout).await?;
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
