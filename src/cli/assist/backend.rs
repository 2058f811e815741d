//! Which language model is asked: a local one where that is wanted, Cerebras, Anthropic, a local
//! one after all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use url::Url;

use super::super::local::Local;
use super::super::output::printable;
use crate::assist::llm::{self, Backend, Wire};
use crate::credential::{Attachment, Credential, Lookup};
use crate::egress::{Clients, is_http_url};
use crate::error::{Code, Failure, HelpError};
use crate::keyring::{Keyring, Secret, Source};
use crate::text::clip_chars;

const CEREBRAS: &str = "https://api.cerebras.ai/v1/chat/completions";
const ANTHROPIC: &str = "https://api.anthropic.com";
const ANTHROPIC_MODEL: &str = "claude-haiku-4-5-20251001";
pub const OLLAMA: &str = "http://localhost:11434";
pub const OLLAMA_MODEL: &str = "smollm3:3b";
/// Seconds in which nothing comes.
const PATIENCE: u64 = 120;
/// The longest time that `ATI_ASSIST_TIMEOUT_SECONDS` may have.
const LONGEST_PATIENCE: u64 = 86_400;

/// Who may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The first that there is a key for, else a local one.
    Any,
    Local,
    Cerebras,
    Anthropic,
    /// One that a variable has the key of, and never a local one.
    Cloud,
}

pub struct Chosen {
    pub backend: Backend,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Cloud,
    /// A local one that was asked for.
    Local,
    /// A local one that is tried because there is no key of any other.
    Fallback,
}

impl Chosen {
    /// Says whose server it is that can't be reached. A proxy doesn't tell its callers.
    pub fn named(&self, error: HelpError) -> HelpError {
        match (error, self.backend.url.host_str()) {
            (HelpError::Unreachable(why), Some(host)) => {
                HelpError::Unreachable(format!("{host}: {why}"))
            }
            (error, _) => error,
        }
    }

    /// The clients to reach it with. A local one is where the caller says, mostly on this machine.
    pub fn clients<'a>(&self, clients: &'a Clients) -> &'a Clients {
        match self.kind {
            Kind::Cloud => clients,
            Kind::Local | Kind::Fallback => clients.unguarded(),
        }
    }
}

/// None: there is no key for those that may be asked.
pub fn choose(local: &Local, choice: Choice) -> Result<Option<Chosen>, Failure> {
    let wants = |one: Choice| choice == one || matches!(choice, Choice::Any | Choice::Cloud);
    if choice != Choice::Local {
        if wants(Choice::Cerebras)
            && let Some(backend) = cerebras(local, choice == Choice::Any)?
        {
            let kind = Kind::Cloud;
            return Ok(Some(Chosen { backend, kind }));
        }
        if wants(Choice::Anthropic)
            && let Some(backend) = anthropic()?
        {
            let kind = Kind::Cloud;
            return Ok(Some(Chosen { backend, kind }));
        }
    }
    let kind = match choice {
        Choice::Local => Kind::Local,
        Choice::Any => Kind::Fallback,
        Choice::Cerebras | Choice::Anthropic | Choice::Cloud => return Ok(None),
    };
    let backend = ollama()?;
    Ok(Some(Chosen { backend, kind }))
}

/// The model of `_llm.toml`, with the key of the environment or of the keyring. Without a manifest,
/// Cerebras itself.
fn cerebras(local: &Local, with_keyring: bool) -> Result<Option<Backend>, Failure> {
    let key = secret("CEREBRAS_API_KEY")?;
    if key.is_none() && !with_keyring {
        return Ok(None);
    }
    let Some(tool) = local.llm() else {
        let Some(key) = key else {
            return Ok(None);
        };
        let credential = Credential::Bearer {
            key: "CEREBRAS_API_KEY".to_owned(),
        };
        return Ok(Some(Backend {
            wire: Wire::OpenAi,
            url: parse("the URL of Cerebras", CEREBRAS)?,
            model: llm::MODEL.to_owned(),
            credential: attach(&credential, key)?,
            source: None,
            patience: patience()?,
        }));
    };
    let Some(endpoint) = local.llm_endpoint(tool, key)? else {
        return Ok(None);
    };
    Ok(Some(Backend {
        wire: Wire::OpenAi,
        url: endpoint.url,
        model: llm::model(tool),
        credential: endpoint.credential,
        source: endpoint.source,
        patience: patience()?,
    }))
}

fn anthropic() -> Result<Option<Backend>, Failure> {
    let Some(key) = secret("ANTHROPIC_API_KEY")? else {
        return Ok(None);
    };
    let base = variable("ANTHROPIC_BASE_URL").unwrap_or_else(|| ANTHROPIC.to_owned());
    let credential = Credential::Header {
        key: "ANTHROPIC_API_KEY".to_owned(),
        name: HeaderName::from_static("x-api-key"),
        prefix: String::new(),
    };
    let url = format!("{}/v1/messages", base.trim_end_matches('/'));
    Ok(Some(Backend {
        wire: Wire::Anthropic,
        url: parse("ANTHROPIC_BASE_URL", &url)?,
        model: variable("ATI_ASSIST_MODEL").unwrap_or_else(|| ANTHROPIC_MODEL.to_owned()),
        credential: attach(&credential, key)?,
        source: None,
        patience: patience()?,
    }))
}

fn ollama() -> Result<Backend, Failure> {
    let host = variable("OLLAMA_HOST").unwrap_or_else(|| OLLAMA.to_owned());
    // Ollama's own variable may be an address alone.
    let base = match host.contains("://") {
        true => host,
        false => format!("http://{host}"),
    };
    let url = format!("{}/v1/chat/completions", base.trim_end_matches('/'));
    Ok(Backend {
        wire: Wire::OpenAiOlder,
        url: parse("OLLAMA_HOST", &url)?,
        model: variable("ATI_OLLAMA_MODEL").unwrap_or_else(|| OLLAMA_MODEL.to_owned()),
        credential: Arc::default(),
        source: None,
        patience: patience()?,
    })
}

/// `ATI_ASSIST_TIMEOUT_SECONDS`.
pub fn patience() -> Result<Duration, Failure> {
    let Some(text) = variable("ATI_ASSIST_TIMEOUT_SECONDS") else {
        return Ok(Duration::from_secs(PATIENCE));
    };
    let seconds = text.parse().ok();
    let seconds = seconds.filter(|seconds| (1..=LONGEST_PATIENCE).contains(seconds));
    let seconds = seconds.ok_or_else(|| {
        let message = format!(
            "ATI_ASSIST_TIMEOUT_SECONDS is not a number of seconds from 1 to {LONGEST_PATIENCE}"
        );
        Failure::invalid(message)
    })?;
    Ok(Duration::from_secs(seconds))
}

/// `ATI_ASSIST_PROVIDER`: `local`, or unset for the usual order.
pub fn wants_local() -> Result<bool, Failure> {
    match variable("ATI_ASSIST_PROVIDER").as_deref() {
        None | Some("auto") => Ok(false),
        Some("local") => Ok(true),
        Some(other) => {
            let other = printable(clip_chars(other, 64));
            let message = format!(
                "ATI_ASSIST_PROVIDER is '{other}'; it can be 'local' (the local language model) \
                 or 'auto' (the first that there is a key for)"
            );
            Err(Failure::invalid(message))
        }
    }
}

fn parse(name: &str, text: &str) -> Result<Url, Failure> {
    let url = Url::parse(text).ok().filter(is_http_url);
    url.ok_or_else(|| Failure::invalid(format!("{name} is not an http or https URL")))
}

fn attach(credential: &Credential, key: Secret) -> Result<Arc<Attachment>, Failure> {
    let name = credential.key().unwrap_or_default().to_owned();
    let keyring = Keyring::new(BTreeMap::from([(name.clone(), key)]), Source::Environment);
    let (attachment, gaps) = Attachment::resolve(credential, &[], &Lookup::tool(&keyring, None));
    match gaps.unsendable.is_empty() {
        true => Ok(Arc::new(attachment)),
        false => Err(Failure::new(
            Code::MissingKey,
            format!("the value of {name} can't be sent (a line break?)"),
        )),
    }
}

/// A variable that says something.
pub fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok()?;
    let value = value.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

fn secret(name: &str) -> Result<Option<Secret>, Failure> {
    let Some(value) = variable(name) else {
        return Ok(None);
    };
    let secret = Secret::new(value.as_bytes());
    secret
        .map(Some)
        .map_err(|e| Failure::new(Code::ExecutionFailed, "locked memory").because(e))
}
