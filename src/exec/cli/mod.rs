//! Programs as tools: one run of the provider's program for each call.
//!
//! ```text
//! run
//!   ProgramSlots::enter      slots.rs: room for one more program of this provider
//!   credentials::obtain      what a generator mints, as variables
//!   prepare                  variables, credential files, the folder of the call
//!   size::check              size.rs: what the system would refuse
//!   Captures::begin          capture.rs: paths of the caller are replaced by ati's own
//!   process                  the program, supervised, to its end
//!   Captures::collect        what the program wrote there, redacted
//!   output::answer           output.rs: JSON or a text, redacted, spooled where it is big
//! ```

mod capture;
mod error;
mod output;
mod search;
mod size;
mod slots;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use zeroize::Zeroizing;

use capture::Captures;
pub use error::{CliError, Said};
pub use slots::ProgramSlots;

use super::credentials::{CallCredential, obtain};
use super::{Answer, ExecContext};
use crate::catalog::Provider;
use crate::catalog::cli::Cli;
use crate::credential::Attachment;
use crate::keyring::{CredentialFile, Secret};
use crate::process::{self, Finished, ProcessError, Spec};
use slots::{NoSlot, Slot};

/// How much of what a failing program wrote is told.
const LONGEST_ERROR: usize = 16 << 10;

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

/// What a program needs while it runs.
struct Prepared {
    env: Vec<(String, Zeroizing<String>)>,
    files: Vec<CredentialFile>,
}

pub async fn run(job: Job<'_>, context: ExecContext<'_>) -> Result<Answer, CliError> {
    let (cli, provider) = (job.cli, &job.provider.name);
    let mut words: Vec<String> = cli.default_args.iter().chain(&job.words).cloned().collect();
    let slots = &context.runtime.programs;
    let entered = slots.enter(provider, cli.most_at_a_time, context.limits.timeout);
    let slot = entered.await.map_err(|none| match none {
        NoSlot::Full => CliError::Crowded(provider.clone()),
        NoSlot::TimedOut => CliError::Waited(provider.clone()),
    })?;
    let attachment = obtain(job.credential, job.provider.outbound.source, context).await?;
    let mut prepared = prepare(job.env, context).await?;
    prepared.env.extend(attachment.environment());
    let variables = prepared.env.iter();
    size::check(
        &words,
        variables.map(|(name, value)| name.len() + value.len() + 1),
    )?;
    let callers = &mut words[cli.default_args.len()..];
    let captures = Captures::begin(&cli.captures, callers, context).await?;
    context.trail.attempt();
    let ended = {
        let _wait = context.trail.wait();
        execute(cli, words, prepared, captures.as_ref(), slot, context).await
    };
    let ended = ended.and_then(|finished| {
        check_end(&finished, captures.as_ref(), &attachment, &job.secret_words)?;
        Ok(finished)
    });
    match (ended, captures) {
        (Ok(finished), Some(captures)) => {
            let collected = captures.collect(&finished.stdout, provider, &attachment, context);
            Ok(collected.await?)
        }
        (Ok(finished), None) => {
            output::answer(&finished.stdout, &attachment, provider, context).await
        }
        (Err(error), captures) => {
            if let Some(captures) = captures {
                captures.discard().await;
            }
            Err(error)
        }
    }
}

/// Refuses words that no program could get, whatever its manifest adds to them.
pub fn check_words(words: &[String]) -> Result<(), CliError> {
    size::check(words, std::iter::empty())
}

/// Writes the files of credentials.
async fn prepare(
    env: Vec<(String, Value)>,
    context: ExecContext<'_>,
) -> Result<Prepared, CliError> {
    let mut prepared = Prepared {
        env: Vec::with_capacity(env.len()),
        files: Vec::new(),
    };
    for (name, value) in env {
        let value = match value {
            Value::Text(text) => text,
            Value::File {
                key,
                credential,
                lasting,
            } => {
                let folder = context.runtime.credential_files.clone();
                let name = key.clone();
                let lent = spawn_blocking(move || folder.lend(&name, &credential, lasting)).await;
                let lent = lent.unwrap_or_else(|e| Err(std::io::Error::other(e)));
                let file = lent.map_err(|e| CliError::CredentialFile {
                    key,
                    why: e.to_string(),
                })?;
                let path = file.path().to_string_lossy().into_owned();
                prepared.files.push(file);
                Zeroizing::new(path)
            }
        };
        prepared.env.push((name, value));
    }
    Ok(prepared)
}

/// Runs the program to its end.
async fn execute(
    cli: &Cli,
    args: Vec<String>,
    prepared: Prepared,
    captures: Option<&Captures>,
    slot: Slot,
    context: ExecContext<'_>,
) -> Result<Finished, CliError> {
    let files = Arc::new(prepared.files);
    let spec = Spec {
        program: cli.command.clone(),
        args,
        env: prepared.env,
        inherit: false,
        timeout: cli.timeout,
        max_output: context.limits.max_response_bytes,
    };
    let held = (slot, files.clone(), captures.map(Captures::folder));
    let running = process::run_holding(spec, held);
    let finished = match captures {
        None => running.await,
        Some(captures) => tokio::select! {
            finished = running => finished,
            // It fills the disk. Leaving it ends it.
            too_large = captures.overflow() => return Err(too_large.into()),
        },
    };
    // The last owner removes them, which may take its time.
    let _ = spawn_blocking(move || drop(files)).await;
    finished.map_err(|error| match error {
        ProcessError::Timeout => CliError::Timeout(whole_seconds(cli.timeout)),
        ProcessError::TooMuch(most) => CliError::TooMuch(most as u64),
        ProcessError::Output(why) => CliError::Output(why),
        ProcessError::Spawn(why) => CliError::Spawn {
            command: cli.command.clone(),
            why,
        },
    })
}

fn whole_seconds(time: Duration) -> u64 {
    time.as_secs()
}

/// An error where the program says that it failed, with what it wrote.
fn check_end(
    finished: &Finished,
    captures: Option<&Captures>,
    attachment: &Attachment,
    secret_words: &[String],
) -> Result<(), CliError> {
    if finished.code == Some(0) {
        return Ok(());
    }
    // Some programs tell their errors on the other stream.
    let written = match finished.stderr.trim_ascii() {
        b"" => finished.stdout.trim_ascii(),
        errors => errors,
    };
    let text = match captures {
        Some(captures) => {
            attachment.redact_text(captures.with_callers_paths(written), LONGEST_ERROR)
        }
        None => attachment.redact_text(written, LONGEST_ERROR),
    };
    let secrets = secret_words.iter().map(String::as_bytes);
    let audited = Attachment::default().with_redacted(secrets);
    let said = Said {
        audited: audited.redact_text(text.as_bytes(), LONGEST_ERROR),
        text,
    };
    Err(match finished.code {
        Some(code) => CliError::Exit { code, said },
        None => CliError::Signal {
            signal: "unknown".to_owned(),
            said,
        },
    })
}
