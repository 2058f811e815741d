//! A question to the proxy: `POST /help`. Where the proxy has no language model, its search
//! answers.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::super::remote::{Remote, Response, not_ati};
use super::super::{Format, output};
use super::{Subject, backend, hint, index, print, split};
use crate::config;
use crate::error::{Failure, HelpError};

/// The proxy waits for its language model as long as this machine would; its answer comes after.
const MARGIN: Duration = Duration::from_secs(30);

pub fn ask(remote: Remote, words: &[String], format: Format) -> Result<u8, Failure> {
    let remote = remote.within(backend::patience()? + MARGIN);
    let (subject, question) = split(words, |word| is_known(&remote, word));
    let mut body = json!({"query": question});
    if let Subject::Named(name) = subject {
        body["tool"] = json!(name);
    }
    let answer = remote.ask(Method::POST, "help", &[], Some(body.to_string()))?;
    if answer.status == 503
        && let Some(why) = unconfigured(&answer.body)
    {
        return from_index(&remote, subject, &question, &why, format);
    }
    if answer.status != 200 {
        return Err(failed(&answer, &remote));
    }
    let answer: Value = serde_json::from_str(&answer.body).map_err(|_| not_ati())?;
    let content = answer["content"].as_str().ok_or_else(not_ati)?;
    // The proxy doesn't say which tools it means.
    print(&output::printable_lines(content), &[], format);
    Ok(0)
}

/// Where its language model failed, the command ends as it would on the proxy's machine.
fn failed(answer: &Response, remote: &Remote) -> Failure {
    let failure = answer.failure(remote.caller());
    let body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let error = body["error"].as_str().unwrap_or_default();
    let Some(error) = HelpError::read(error, answer.retry_after) else {
        return failure;
    };
    let hint = match error {
        HelpError::Silent(_) => {
            Some("[assist] timeout_seconds of the proxy is how long it may send nothing".to_owned())
        }
        _ => hint(&error),
    };
    Failure {
        code: error.code(),
        hint: hint.or(failure.hint),
        ..failure
    }
}

/// What the proxy says where it has no language model.
fn unconfigured(body: &str) -> Option<String> {
    let body: Value = serde_json::from_str(body).ok()?;
    let error = body["error"].as_str()?;
    let is_missing = error.contains("_llm.toml") || error.contains("LLM API key");
    (is_missing && body["content"].is_string()).then(|| error.to_owned())
}

/// Whether a word names a tool or provider: of the proxy, or of this machine's manifests. One that
/// only this machine has isn't visible to the proxy's caller, which the proxy then says.
fn is_known(remote: &Remote, word: &str) -> bool {
    if word.contains(char::is_whitespace) || word.len() > 256 {
        return false;
    }
    let manifests = config::read_manifests(&config::ati_dir(), &mut Vec::new());
    if manifests.iter().any(|manifest| manifest.name == word) {
        return true;
    }
    let of_provider = || remote.get("tools", &[("provider", word)]);
    let has_some = |list: Value| list.as_array().is_some_and(|list| !list.is_empty());
    remote.tool(word).is_ok() || of_provider().is_ok_and(has_some)
}

fn from_index(
    remote: &Remote,
    subject: Subject<'_>,
    question: &str,
    why: &str,
    format: Format,
) -> Result<u8, Failure> {
    output::note(&format!(
        "The proxy has no language model: {}\nThis is what its search finds. Its operator can add \
         one: manifests/_llm.toml and the key cerebras_api_key, both on the proxy.\n'ati assist \
         --local' asks an Ollama (OLLAMA_HOST) about this machine's own manifests instead.",
        output::printable(why),
    ));
    let mut query = vec![("search", question)];
    if let Subject::Named(name) = subject {
        query.push(("provider", name));
    }
    let found = remote.get("tools", &query)?;
    let items = found.as_array().ok_or_else(not_ati)?;
    let (content, names) = match subject {
        // A single tool isn't found as a provider.
        Subject::Named(name) if items.is_empty() => match remote.tool(name) {
            Ok(tool) => index::answer_of(&[tool], question),
            Err(_) => index::answer_of(&[], question),
        },
        _ => index::answer_of(items, question),
    };
    print(&content, &names, format);
    Ok(0)
}
