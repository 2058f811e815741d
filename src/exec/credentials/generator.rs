//! `auth_generator`: a program of the operator that mints credentials.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use serde_json::Value;
use zeroize::Zeroizing;

use super::Minted;
use crate::catalog::Provider;
use crate::catalog::outbound::{Inject, Program};
use crate::credential::{Attachment, CredentialError};
use crate::keyring::Secret;
use crate::process::{self, ProcessError, Spec};

const LONGEST_OUTPUT: usize = 1 << 20;
const LONGEST_ERROR: usize = 500;

pub struct GeneratorRecipe {
    /// Has the generator.
    pub provider: Arc<Provider>,
    /// With every template filled in.
    pub args: Vec<Zeroizing<String>>,
    pub env: Vec<(String, Zeroizing<String>)>,
    /// Redacted from the program's error output.
    pub secrets: Vec<Secret>,
}

impl GeneratorRecipe {
    /// Whether each call runs it anew.
    pub(super) fn is_for_one_call(&self) -> bool {
        let generator = &self.provider.outbound.generator;
        generator
            .as_ref()
            .is_none_or(|generator| generator.cache_ttl == 0)
    }

    /// Runs the program; `held` is dropped when it is gone.
    pub(super) async fn mint(&self, held: impl Send + 'static) -> Result<Minted, CredentialError> {
        let Some(generator) = &self.provider.outbound.generator else {
            return Err(failed("there is none"));
        };
        let (program, args, _script) = match &generator.program {
            Program::Command { command, .. } => {
                let args = self.args.iter().map(|arg| arg.to_string()).collect();
                (command.clone(), args, None)
            }
            Program::Script {
                interpreter,
                script,
            } => {
                let script = Script::write(script).map_err(|e| failed(&e.to_string()))?;
                let path = script.0.to_string_lossy().into_owned();
                (interpreter.clone(), vec![path], Some(script))
            }
        };
        let spec = Spec {
            program: program.clone(),
            args,
            env: self.env.clone(),
            inherit: false,
            timeout: Duration::from_secs(generator.timeout),
            max_output: LONGEST_OUTPUT,
        };
        let finished = process::run_holding(spec, held).await;
        let finished = finished.map_err(|fault| match fault {
            ProcessError::Timeout => CredentialError::GeneratorTimeout(generator.timeout),
            ProcessError::Spawn(e) => failed(&format!("Failed to spawn generator: {program}: {e}")),
            other => failed(&format!("Generator {other}")),
        })?;
        if finished.code != Some(0) {
            return Err(self.failure(finished.code, &finished.stderr));
        }
        let text = String::from_utf8_lossy(&finished.stdout);
        let text = Zeroizing::new(text.trim().to_owned());
        let mut minted = Minted {
            value: Zeroizing::new(text.as_bytes().to_vec()),
            headers: Vec::new(),
            env: Vec::new(),
            lifetime: Duration::from_secs(generator.cache_ttl),
        };
        if generator.json {
            pick(&text, &generator.inject, &mut minted)?;
        }
        if minted.value.is_empty() && minted.headers.is_empty() && minted.env.is_empty() {
            return Err(failed("Generator printed nothing"));
        }
        Ok(minted)
    }

    /// The program's error output, without the values that it was given.
    fn failure(&self, code: Option<i32>, stderr: &[u8]) -> CredentialError {
        let mut text = stderr.to_vec();
        let given = self.env.iter().map(|(_, value)| value.as_bytes());
        let given = given
            .chain(self.args.iter().map(|arg| arg.as_bytes()))
            .chain(self.secrets.iter().map(Secret::expose));
        Attachment::default().with_redacted(given).redact(&mut text);
        let text = String::from_utf8_lossy(&text);
        let text = text.trim();
        let text = &text[..text.floor_char_boundary(LONGEST_ERROR)];
        let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        failed(&format!("Generator exited with code {code}: {text}"))
    }
}

/// The values that the program's JSON has: at the path of each injection, or under the usual names
/// of a token.
fn pick(
    text: &str,
    inject: &[(String, Inject)],
    minted: &mut Minted,
) -> Result<(), CredentialError> {
    let json: Value =
        serde_json::from_str(text).map_err(|_| failed("Generator output is not JSON"))?;
    if inject.is_empty() {
        let token = json["token"].as_str().or(json["access_token"].as_str());
        if let Some(token) = token {
            minted.value = Zeroizing::new(token.as_bytes().to_vec());
        }
        return Ok(());
    }
    minted.value = Zeroizing::new(Vec::new());
    for (path, to) in inject {
        let found = path.split('.').try_fold(&json, |at, key| at.get(key));
        let value = match found {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => {
                return Err(failed(&format!("Generator output has no '{path}'")));
            }
            Some(other) => other.to_string(),
        };
        let value = Zeroizing::new(value.into_bytes());
        match to {
            Inject::Header(name) => minted.headers.push((HeaderName::clone(name), value)),
            Inject::Env(name) => minted.env.push((name.clone(), value)),
            Inject::Primary => minted.value = value,
        }
    }
    Ok(())
}

fn failed(why: &str) -> CredentialError {
    CredentialError::Generator(why.to_owned())
}

/// A script file that is removed when the run ends.
struct Script(PathBuf);

impl Script {
    fn write(text: &str) -> std::io::Result<Self> {
        let name = format!("ati-generator-{}", uuid::Uuid::new_v4().simple());
        let script = Script(std::env::temp_dir().join(name));
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o700)
            .open(&script.0)?
            .write_all(text.as_bytes())?;
        Ok(script)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
