//! A manifest for what a skill describes, written by a language model. It is checked as one that a
//! skill brings along, and shown before it is written.

use std::path::Path;

use super::super::assist::backend::{self, Choice};
use super::super::assist::{ask_whole, failure};
use super::super::local::Local;
use super::super::output;
use super::bundled::BundledProvider;
use crate::assist::{cut_note, manifest};
use crate::config::{self, is_provider_name};
use crate::error::Failure;
use crate::skills::{DOCUMENT, PROVIDER, folder};

/// Which language model may be asked: `--local`, or `ATI_MANIFEST_PROVIDER`.
pub fn choice(local: bool) -> Result<Choice, Failure> {
    let named = backend::variable("ATI_MANIFEST_PROVIDER");
    match named.as_deref() {
        _ if local => Ok(Choice::Local),
        Some("local") => Ok(Choice::Local),
        Some("cerebras") => Ok(Choice::Cerebras),
        Some("anthropic") => Ok(Choice::Anthropic),
        None => Ok(Choice::Cloud),
        Some(_) => Err(Failure::invalid(
            "ATI_MANIFEST_PROVIDER is none of local, cerebras, anthropic",
        )),
    }
}

/// The manifest to install with a skill: a generated one, or else the bundled one. `folder` has the
/// skill, which isn't in its place yet. Fails only where the local model was asked for and can't
/// answer, and there is no other manifest.
pub fn manifest(
    folder: &Path,
    skill: &str,
    choice: Choice,
    bundled: Option<BundledProvider>,
    allowed: bool,
) -> Result<Option<BundledProvider>, Failure> {
    let Some((provider, document)) = described(folder, skill) else {
        return Ok(bundled);
    };
    let local = match Local::load() {
        Ok(local) => local,
        Err(e) => {
            tracing::debug!("no manifest is generated: {}", e.one_line());
            return Ok(bundled);
        }
    };
    let Some(chosen) = backend::choose(&local, choice)? else {
        let asked_for = match choice {
            Choice::Cerebras => Some(("cerebras", "CEREBRAS_API_KEY")),
            Choice::Anthropic => Some(("anthropic", "ANTHROPIC_API_KEY")),
            // Nothing was asked for, or no key is needed.
            Choice::Any | Choice::Cloud | Choice::Local => None,
        };
        if let Some((name, key)) = asked_for {
            tracing::warn!(
                "no manifest is generated: ATI_MANIFEST_PROVIDER is {name}, and {key} is not set"
            );
        }
        return Ok(bundled);
    };
    if is_there(&provider) {
        output::note(&format!(
            "Provider '{provider}' already has a manifest, skipping generation."
        ));
        // The bundled one may be of another name.
        return Ok(bundled.filter(|one| one.name != provider));
    }
    let (system, user) = manifest::question(&provider, &document);
    let answer = match (ask_whole(&local, &chosen, &system, &user), bundled) {
        (Ok(answer), bundled) => (answer, bundled),
        (Err(error), None) if choice == Choice::Local => {
            return Err(failure(error).hint("nothing was installed; without --local it is"));
        }
        (Err(error), bundled) => {
            tracing::warn!("no manifest was generated: {error}");
            return Ok(bundled);
        }
    };
    let (answer, bundled) = answer;
    if answer.is_cut {
        tracing::warn!("the generated manifest isn't used: {}", cut_note());
        return Ok(bundled);
    }
    match checked(manifest::toml_of(&answer.text), &provider, allowed) {
        Ok(generated) => {
            generated.show("A language model wrote this manifest. Check it before you use it");
            Ok(Some(generated))
        }
        Err(why) => {
            tracing::warn!(
                "the generated manifest isn't used: {}",
                output::printable(&why)
            );
            Ok(bundled)
        }
    }
}

/// The name of the provider and the text of a skill that has one.
fn described(folder: &Path, name: &str) -> Option<(String, String)> {
    let document = crate::files::read_beneath(folder, Path::new(DOCUMENT), 1 << 20).ok()?;
    let document = String::from_utf8(document).ok()?;
    let skill = folder::read(folder).ok()?;
    let provider = skill
        .bindings
        .providers
        .first()
        .map_or(name, String::as_str);
    is_provider_name(provider).then(|| (provider.to_owned(), document))
}

fn is_there(provider: &str) -> bool {
    let dir = config::ati_dir();
    let known = config::read_manifests(&dir, &mut Vec::new());
    let file = dir.join("manifests").join(format!("{provider}.toml"));
    known.iter().any(|manifest| manifest.name == provider) || file.exists()
}

/// What a model wrote, as a manifest that a skill could bring along. One that does more than
/// requests with a key of its own needs the caller's word.
fn checked(text: &str, provider: &str, allowed: bool) -> Result<BundledProvider, String> {
    let failed = |e: std::io::Error| e.to_string();
    let folder = tempfile::tempdir().map_err(failed)?;
    std::fs::write(folder.path().join(PROVIDER), text).map_err(failed)?;
    let found = BundledProvider::of(folder.path()).map_err(|e| {
        let folder = format!("{}/", folder.path().display());
        e.one_line().replace(&folder, "")
    })?;
    let found = found.ok_or("it is empty")?;
    if found.name != provider {
        return Err(format!("it is of the provider '{}'", found.name));
    }
    let mut risks = found.risks().to_vec();
    let own = format!("{provider}_").replace('-', "_");
    let foreign = found
        .keys
        .iter()
        .filter(|key| !key.replace('-', "_").starts_with(&own));
    risks.extend(foreign.map(|key| format!("sends the key '{key}', which isn't its own")));
    if risks.is_empty() || allowed {
        return Ok(found);
    }
    found.show("A language model wrote this manifest");
    Err(format!(
        "it {}; --allow-provider installs it",
        risks.join("; ")
    ))
}
