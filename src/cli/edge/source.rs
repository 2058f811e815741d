//! Where the secrets of a keyring come from: 1Password, a file, a command, HashiCorp Vault.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tracing::warn;
use url::Url;
use zeroize::Zeroizing;

use super::super::transport::NoAnswer;
use super::super::{file_failure, problem_failure, runtime};
use crate::egress;
use crate::error::{Code, Failure};
use crate::keyring::Entries;
use crate::process::{self, Finished, ProcessError, Spec};
use crate::text;

const TIMEOUT: Duration = Duration::from_secs(60);
const LARGEST: usize = 16 << 20;

/// The options that name a source. Exactly one source has to be named.
#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Source of the secrets")]
pub struct SecretSource {
    /// 1Password: the vault's name
    #[arg(long, requires = "item")]
    vault: Option<String>,

    /// 1Password: the item's name or UUID
    #[arg(long, requires = "vault", group = "from")]
    item: Option<String>,

    /// 1Password: the op program, by name or path
    #[arg(long, value_name = "FILE", default_value = "op")]
    op_path: String,

    /// 1Password: a file with the service account's token
    #[arg(long, value_name = "FILE")]
    op_token_file: Option<PathBuf>,

    /// A file with a JSON object of strings, or with NAME=value lines; - is standard input
    #[arg(long, value_name = "FILE", group = "from")]
    from_file: Option<String>,

    /// A shell command that prints a JSON object of strings
    #[arg(long, value_name = "COMMAND", group = "from")]
    from_command: Option<String>,

    /// HashiCorp Vault, KV version 2: the API URL of the secret, like
    /// https://vault:8200/v1/secret/data/ati
    #[arg(
        long,
        value_name = "URL",
        requires = "vault_token_file",
        group = "from"
    )]
    from_vault: Option<String>,

    /// Vault: a file with the token
    #[arg(long, value_name = "FILE")]
    vault_token_file: Option<PathBuf>,

    /// Vault: the namespace
    #[arg(long, value_name = "NAME")]
    vault_namespace: Option<String>,
}

impl SecretSource {
    pub fn read(&self) -> Result<Entries, Failure> {
        let entries = if let (Some(vault), Some(item)) = (&self.vault, &self.item) {
            self.ask_1password(vault, item)?
        } else if let Some(file) = &self.from_file {
            from_file(file)?
        } else if let Some(command) = &self.from_command {
            let finished = run("sh", vec!["-c".into(), command.clone()], Vec::new())?;
            parse_json("the command's output", &finished.stdout)?
        } else if let (Some(url), Some(token)) = (&self.from_vault, &self.vault_token_file) {
            from_vault(url, &secret_file(token)?, self.vault_namespace.as_deref())?
        } else {
            return Err(Failure::new(
                Code::MissingArg,
                "which source? --vault and --item, --from-file, --from-command or --from-vault",
            ));
        };
        if entries.is_empty() {
            return Err(Failure::invalid(
                "the source has no secrets: an empty keyring would lock every caller out",
            ));
        }
        // An empty value counts as a missing credential: the rotation would remove it silently.
        if let Some((name, _)) = entries.iter().find(|(_, value)| value.is_empty()) {
            return Err(Failure::invalid(format!(
                "the source has an empty value for '{name}'"
            )));
        }
        let size: usize = entries
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        if size > LARGEST / 2 {
            return Err(Failure::invalid("the source is larger than any keyring"));
        }
        Ok(entries)
    }

    fn ask_1password(&self, vault: &str, item: &str) -> Result<Entries, Failure> {
        let args = ["item", "get", "--vault", vault, item, "--format", "json"]
            .map(str::to_owned)
            .to_vec();
        let mut env = Vec::new();
        if let Some(path) = &self.op_token_file {
            env.push(("OP_SERVICE_ACCOUNT_TOKEN".to_owned(), secret_file(path)?));
        }
        let finished = run(&self.op_path, args, env)?;
        let answer: Value = serde_json::from_slice(&finished.stdout).map_err(|e| {
            // Only ever about syntax, with a line and a column; it quotes nothing of the text.
            let message = format!("{} printed no JSON", self.op_path);
            Failure::new(Code::UpstreamError, message).because(e)
        })?;
        let mut entries = Entries::new();
        for field in answer["fields"].as_array().into_iter().flatten() {
            let text = |key: &str| field[key].as_str().filter(|text| !text.is_empty());
            if let (Some(label), Some(value)) = (text("label"), text("value")) {
                entries.insert(label.to_owned(), Zeroizing::new(value.to_owned()));
            }
        }
        if entries.is_empty() {
            return Err(Failure::invalid(format!(
                "1Password item '{item}' in vault '{vault}' has no labeled fields with values"
            )));
        }
        Ok(entries)
    }
}

/// The entries as plain strings, borrowed, to be serialised.
pub fn as_strings(entries: &Entries) -> BTreeMap<&str, &str> {
    entries
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}

/// Runs a program that the operator has named, in the operator's own environment.
fn run(
    program: &str,
    args: Vec<String>,
    env: Vec<(String, Zeroizing<String>)>,
) -> Result<Finished, Failure> {
    let spec = Spec {
        program: program.to_owned(),
        args,
        env,
        inherit: true,
        timeout: TIMEOUT,
        max_output: LARGEST,
    };
    let finished = runtime()?.block_on(process::run(spec)).map_err(|fault| {
        let code = match fault {
            ProcessError::Timeout => Code::ProviderTimeout,
            _ => Code::ExecutionFailed,
        };
        Failure::new(code, program).because(fault)
    })?;
    if finished.code == Some(0) {
        return Ok(finished);
    }
    let stderr = String::from_utf8_lossy(&finished.stderr);
    let stderr = text::clip_chars(stderr.trim(), 500);
    let code = finished
        .code
        .map_or_else(|| "a signal".to_owned(), |code| format!("code {code}"));
    Err(Failure::new(
        Code::UpstreamError,
        format!("{program} ended with {code}: {stderr}"),
    ))
}

fn secret_file(path: &Path) -> Result<Zeroizing<String>, Failure> {
    let text = std::fs::read_to_string(path)
        .map(Zeroizing::new)
        .map_err(|e| file_failure(Code::InvalidValue, path, e))?;
    match text.trim() {
        "" => Err(Failure::invalid(format!("{} is empty", path.display()))),
        token => Ok(Zeroizing::new(token.to_owned())),
    }
}

fn from_file(file: &str) -> Result<Entries, Failure> {
    let mut text = Zeroizing::new(String::new());
    let read = if file == "-" {
        std::io::stdin()
            .take(LARGEST as u64)
            .read_to_string(&mut text)
            .map(drop)
    } else {
        std::fs::read_to_string(file).map(|content| *text = content)
    };
    read.map_err(|e| Failure::invalid(file).because(e))?;
    if text.trim_start().starts_with('{') {
        return parse_json(file, text.as_bytes());
    }
    let mut entries = Entries::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        // Errors don't quote the line: it may be nothing but a secret.
        let named = line
            .split_once('=')
            .filter(|(name, _)| is_name(name.trim()));
        let Some((name, value)) = named else {
            return Err(Failure::invalid(format!(
                "{file}: line {}: expected NAME=value",
                number + 1
            )));
        };
        let value = value.trim();
        let quoted = ['"', '\'']
            .iter()
            .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
        let value = quoted.unwrap_or(value);
        if value.starts_with(['"', '\'']) && quoted.is_none() {
            return Err(Failure::invalid(format!(
                "{file}: line {}: a quote is not closed",
                number + 1
            )));
        }
        entries.insert(name.trim().to_owned(), Zeroizing::new(value.to_owned()));
    }
    Ok(entries)
}

/// Whether the text before a `=` is a credential's name. A line of another format may have a `=`
/// too, and the text before it may be a secret, which must not be taken for a name and printed.
pub fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '@');
    !name.is_empty() && name.chars().all(allowed)
}

fn parse_json(what: &str, text: &[u8]) -> Result<Entries, Failure> {
    let Ok(Value::Object(map)) = serde_json::from_slice::<Value>(text) else {
        return Err(Failure::invalid(format!("{what} is not a JSON object")));
    };
    texts(what, map)
}

fn texts(what: &str, map: serde_json::Map<String, Value>) -> Result<Entries, Failure> {
    map.into_iter()
        .map(|(name, value)| match value {
            Value::String(text) => Ok((name, Zeroizing::new(text))),
            _ => Err(Failure::invalid(format!(
                "{what}: the value of '{name}' is not a text"
            ))),
        })
        .collect()
}

/// Read a secret of Vault's KV version 2 engine: `GET <url>`.
fn from_vault(url: &str, token: &str, namespace: Option<&str>) -> Result<Entries, Failure> {
    let url = Url::parse(url)
        .ok()
        .filter(egress::is_http_url)
        .ok_or_else(|| Failure::invalid("--from-vault is not an http or https URL"))?;
    if url.scheme() == "http" {
        warn!("Vault is asked over plain HTTP: the secrets can be read on the way");
    }
    if http::HeaderValue::from_str(token).is_err() {
        return Err(Failure::invalid(
            "--vault-token-file: its content can't be sent in a header (several lines?)",
        ));
    }
    let client = egress::proxy_client(url.scheme() == "https")
        .map_err(|problem| problem_failure(Code::ExecutionFailed, &problem))?;
    let mut request = client
        .get(url)
        .timeout(TIMEOUT)
        .header("x-vault-token", token);
    if let Some(namespace) = namespace {
        request = request.header("x-vault-namespace", namespace);
    }
    let unreachable =
        |e: reqwest::Error| Failure::new(Code::UpstreamError, "Vault").because(NoAnswer::new(e));
    let (status, body) = runtime()?.block_on(async {
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status().as_u16();
        let body = response.bytes().await.map_err(unreachable)?;
        Ok::<_, Failure>((status, body))
    })?;
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    let errors: Vec<&str> = answer["errors"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    match (status, answer["data"]["data"].as_object()) {
        (200, Some(data)) => texts("Vault", data.clone()),
        (200, None) => Err(Failure::invalid(
            "Vault: the answer is not that of a KV version 2 secret; its URL has /data/ in it",
        )),
        (404, _) if !answer["data"]["metadata"].is_null() => Err(Failure::invalid(
            "Vault: the newest version of this secret is deleted",
        )),
        (404, _) => Err(Failure::invalid("Vault: there is no such secret")),
        (403, _) => Err(Failure::new(
            Code::ScopeDenied,
            format!("Vault: permission denied {}", errors.join("; ")),
        )),
        (status, _) => Err(Failure::new(
            Code::UpstreamError,
            format!("Vault: HTTP {status} {}", errors.join("; ")),
        )),
    }
}
