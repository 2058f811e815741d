//! From a manifest to one run of its program: the variables with their credentials.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::{Call, credentials};
use crate::catalog::cli::{Cli, Variable};
use crate::credential::{Attachment, CredentialError, Lookup};
use crate::error::{CallError, ExecError};
use crate::exec::cli::{self, CliError, Job, Ran, Value};
use crate::exec::credentials::CallCredential;
use crate::exec::{self, Answer};
use crate::keyring::Source;
use crate::telemetry::audit;

/// The words as the audit keeps them.
pub fn audited(call: &Call<'_>, words: &[String]) -> Box<RawValue> {
    let redacted = audit::redact_words(words);
    let Some(known) = known_secrets(call) else {
        return redacted;
    };
    let clean = known.redact_text(redacted.get(), usize::MAX);
    RawValue::from_string(clean).unwrap_or_else(|_| audit::not_parsed())
}

/// What redacts the credentials of the provider.
fn known_secrets(call: &Call<'_>) -> Option<Arc<Attachment>> {
    if call.provider.key_names().is_empty() {
        return None;
    }
    match credentials::resolve(call).ok()? {
        CallCredential::Ready(attachment) => Some(attachment),
        CallCredential::Deferred(deferred) => Some(deferred.static_part.clone()),
    }
}

pub async fn run(call: &Call<'_>, words: Vec<String>) -> Result<Answer, CallError> {
    let cli = call.provider.cli().ok_or_else(|| {
        let no_program = CliError::Spawn {
            command: String::new(),
            why: "the manifest names no program".to_owned(),
        };
        ExecError::from(no_program)
    })?;
    run_program(call, cli, words).await
}

/// Runs a program of the provider.
pub async fn run_program(
    call: &Call<'_>,
    cli: &Cli,
    words: Vec<String>,
) -> Result<Answer, CallError> {
    let ran = run_with(call, cli, words, Extras::default()).await;
    ran.map(|ran| ran.answer)
}

/// What a call adds to the terms of its provider.
#[derive(Default)]
pub struct Extras {
    /// Variables that hold no credential.
    pub env: Vec<(String, String)>,
    /// What a confined program has to read.
    pub readable: Vec<PathBuf>,
}

/// As [`run_program`], with what it wrote to its standard error.
pub async fn run_with(
    call: &Call<'_>,
    cli: &Cli,
    words: Vec<String>,
    extras: Extras,
) -> Result<Ran, CallError> {
    let ran = start(call, cli, words, extras).await;
    ran.map_err(|error| match error {
        // The caller's mistake: nothing was started.
        CliError::TooLong(what) => too_long(what),
        other => ExecError::from(other).into(),
    })
}

/// Refuses words that no program could get.
pub fn check(words: &[String]) -> Result<(), CallError> {
    cli::check_words(words).map_err(|error| match error {
        CliError::TooLong(what) => too_long(what),
        other => ExecError::from(other).into(),
    })
}

fn too_long(what: String) -> CallError {
    CallError::InvalidArgument {
        name: "words".to_owned(),
        what,
        missing: false,
    }
}

async fn start(
    call: &Call<'_>,
    cli: &Cli,
    words: Vec<String>,
    extras: Extras,
) -> Result<Ran, CliError> {
    let plain = |(name, text)| (name, Value::Text(Zeroizing::new(text)));
    let mut env: Vec<(String, Value)> = extras.env.into_iter().map(plain).collect();
    let (own, credential) = equip(call, cli)?;
    // The operator's word counts more.
    env.extend(own);
    let job = Job {
        provider: call.provider,
        cli,
        secret_words: audit::secret_words(&words),
        words,
        env,
        readable: extras.readable,
        credential: &credential,
    };
    exec::cli::run(job, call.exec_context()).await
}

/// The variables and the credential of a program.
pub fn equip(
    call: &Call<'_>,
    cli: &Cli,
) -> Result<(Vec<(String, Value)>, CallCredential), CliError> {
    Ok((environment(call, cli)?, credentials::resolve(call)?))
}

fn environment(call: &Call<'_>, cli: &Cli) -> Result<Vec<(String, Value)>, CliError> {
    let lookup = &call.lookup;
    let each = cli.env.iter().map(|(name, variable)| {
        let value = match variable {
            Variable::Text(template) => {
                let filled = template.expand(lookup);
                let filled = filled.map_err(|unfilled| missing(unfilled.into()))?;
                let text = String::from_utf8_lossy(&filled).into_owned();
                Value::Text(Zeroizing::new(text))
            }
            Variable::File(key) => {
                let credential = lookup.get(key).map_err(CredentialError::from)?;
                let credential = credential.ok_or_else(|| CliError::MissingKey(key.clone()))?;
                // A key that was handed over once must not outlive its use on a disk, nor one that
                // the database has encrypted; and a customer's value must not stand in the file of
                // all.
                let is_sealed =
                    call.context.keyring.source() == Source::Sealed || lookup.is_stored(key);
                Value::File {
                    key: key.clone(),
                    credential,
                    lasting: !is_sealed && !lookup.is_special(|| vec![key.as_str()]),
                }
            }
        };
        Ok((name.clone(), value))
    });
    each.collect()
}

/// The variables of a program that is asked something outside of a call. Files with credentials
/// are made for calls only.
pub fn text_variables(
    cli: &Cli,
    lookup: &Lookup<'_>,
) -> Result<Vec<(String, Zeroizing<String>)>, CliError> {
    let each = cli.env.iter().filter_map(|(name, variable)| {
        let Variable::Text(template) = variable else {
            return None;
        };
        let filled = template.expand(lookup);
        let filled = filled.map_err(|unfilled| missing(unfilled.into()));
        let text = filled.map(|filled| String::from_utf8_lossy(&filled).into_owned());
        Some(text.map(|text| (name.clone(), Zeroizing::new(text))))
    });
    each.collect()
}

fn missing(error: CredentialError) -> CliError {
    match error {
        CredentialError::MissingKey(name) => CliError::MissingKey(name),
        other => other.into(),
    }
}
