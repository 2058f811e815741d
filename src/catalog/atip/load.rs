//! Finds the metadata of a provider's tool, and makes tools of its leaf commands.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::folders::{self, Folders};
use super::metadata::{Command, Metadata};
use super::{About, Argv, Atip, AtipInvocation, Hash, probe};
use crate::catalog::effects::{KnownEffects, Source};
use crate::catalog::json_reader::Findings;
use crate::catalog::tool::LONGEST_NAME;
use crate::catalog::{Provider, Tool};
use crate::error::Problem;
use crate::files;
use crate::process::{self, binary};

/// Times in documents may be anything; a call has at most a day.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(86_400);

/// A document, and whose word it is.
struct Described {
    metadata: Metadata,
    source: Source,
}

/// The tools of a provider. What is wrong with the metadata is a warning; `Err` says why there are
/// no tools at all.
pub fn load(
    provider: &Arc<Provider>,
    atip: &Atip,
    may_run: bool,
    folders: &Folders,
    warnings: &mut Vec<Problem>,
) -> Result<Vec<Tool>, String> {
    if atip.cli.command.is_empty() {
        return Err("atip_command is not set".to_owned());
    }
    let program = process::find_program(&atip.cli.command, &atip.cli.plain_env());
    let about = program.ok().and_then(|program| program.metadata().ok());
    if about.is_some_and(|about| files::is_shared(&about)) {
        return Err(format!("{}: {}", atip.cli.command, files::SHARED));
    }
    let Described { metadata, source } = find(provider, atip, may_run, folders, warnings)?;
    if metadata.commands.is_empty() {
        return Err("the metadata describes no command that could be called".to_owned());
    }
    warn_of_variables(provider, atip, &metadata, warnings);
    let about = Arc::new(About {
        patterns: layered(&metadata.patterns, folders.patterns_of(&metadata.name)),
        authentication: metadata.authentication,
    });
    let mut names = HashSet::new();
    let mut tools = Vec::new();
    for command in &metadata.commands {
        let own_name = unique(own_name(&command.path), &mut names);
        let name = match own_name.as_str() {
            "" => provider.name.clone(),
            own => format!("{}:{own}", provider.name),
        };
        if name.len() > LONGEST_NAME {
            let message = format!(
                "'{}' is left out: its name is too long",
                command.path.join(" ")
            );
            warnings.push(Problem::new(message).file(&provider.file));
            continue;
        }
        let argv = Argv::new(command, &metadata.global_options);
        let schema = argv.schema();
        let invocation = AtipInvocation {
            cli: atip.cli.limited_to(timeout(atip, command)),
            argv,
            command: command.path.join(" "),
            own_name,
            hash: metadata.hash.clone(),
            refusal: command.effects.needs_terminal(),
            mcp: atip.mcp.clone(),
            about: about.clone(),
        };
        let effects = KnownEffects {
            effects: command.effects.clone(),
            source,
            inferred: Vec::new(),
        };
        let effects = Some(effects).filter(|known| !known.effects.is_empty());
        tools.push(Tool::of_command(
            name, command, invocation, schema, effects, provider,
        ));
    }
    Ok(tools)
}

/// In the order of the RFC, but that a program which a file describes isn't asked.
fn find(
    provider: &Provider,
    atip: &Atip,
    may_run: bool,
    folders: &Folders,
    warnings: &mut Vec<Problem>,
) -> Result<Described, String> {
    if let Some(path) = &atip.metadata {
        let path = provider.file.parent().unwrap_or(Path::new("")).join(path);
        let metadata = read(&path, warnings)?;
        return Ok(Described {
            source: claimed(&metadata, Source::Org),
            metadata,
        });
    }
    let program = process::find_program(&atip.cli.command, &atip.cli.plain_env());
    let program = program.and_then(std::path::absolute).ok();
    let name = atip.name();
    let known = folders.registry().tools.remove(name);
    let is_current = known.as_ref().is_none_or(|entry| {
        let program = program.as_ref();
        program.is_some_and(|program| entry.is_current(program))
    });
    let is_native = known.as_ref().is_some_and(|entry| entry.source == "native");
    if is_current && let Some(file) = folders.tool(name) {
        let metadata = read(&file, warnings)?;
        let own = if is_native {
            Source::Native
        } else {
            Source::Community
        };
        return Ok(Described {
            source: if is_native {
                own
            } else {
                claimed(&metadata, own)
            },
            metadata,
        });
    }
    if let Some(file) = shim_of(name, program.as_deref(), folders) {
        let metadata = read(&file, warnings)?;
        return Ok(Described {
            source: claimed(&metadata, Source::Community),
            metadata,
        });
    }
    let nothing = || {
        format!(
            "there is no metadata for '{name}': neither a shim, nor anything in registry.json, and \
             it doesn't answer to --agent"
        )
    };
    let program = program.ok_or_else(|| format!("'{}': no such program", atip.cli.command))?;
    let text = may_run.then(|| probe::ask_and_wait(&program)).flatten();
    let text = text.ok_or_else(nothing)?;
    let metadata = parsed(&text, &program, warnings);
    Ok(Described {
        metadata: metadata.ok_or_else(|| "what it says to --agent can't be used".to_owned())?,
        source: Source::Native,
    })
}

/// The shim for a program: one for this version of it, or else one for its name.
pub fn shim_of(name: &str, program: Option<&Path>, folders: &Folders) -> Option<PathBuf> {
    let by_hash = program
        .filter(|_| folders.has_hashed_shims())
        .and_then(|program| {
            let hash = Hash(binary::sha256(program).ok()?);
            folders.shim_by_hash(&hash)
        });
    by_hash.or_else(|| folders.shim(name))
}

/// A document's own claim counts only as far as it is modest.
fn claimed(metadata: &Metadata, most: Source) -> Source {
    match metadata.claimed_source {
        Some(source) if source.trust() <= most.trust() => source,
        _ => most,
    }
}

fn read(path: &Path, warnings: &mut Vec<Problem>) -> Result<Metadata, String> {
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let text = folders::read(path).map_err(|e| failed(&e))?;
    let metadata = parsed(&text, path, warnings);
    let metadata = metadata.ok_or_else(|| failed(&"it is no ATIP metadata"))?;
    let by_hash = path
        .parent()
        .is_some_and(|folder| folder.ends_with("shims/sha256"));
    let stem = path.file_stem().and_then(|it| it.to_str());
    if by_hash && metadata.hash.as_ref().map(|hash| hash.0.as_str()) != stem {
        return Err(failed(&"its binary.hash is not its file's name"));
    }
    Ok(metadata)
}

fn parsed(text: &str, path: &Path, warnings: &mut Vec<Problem>) -> Option<Metadata> {
    let mut found = Findings::default();
    let metadata = Metadata::parse(text, &mut found);
    found.locate(path, text);
    // What its specification asks for on top is said by `ati provider validate`.
    warnings.extend(found.problems);
    metadata
}

/// Where the manifest says nothing, the document; where both do, the shorter time.
fn timeout(atip: &Atip, command: &Command) -> Duration {
    let own = command
        .effects
        .timeout()
        .map(|time| time.min(LONGEST_TIMEOUT));
    match own {
        Some(own) if atip.cli.timeout_is_set => own.min(atip.cli.timeout),
        Some(own) => own,
        None => atip.cli.timeout,
    }
}

/// The tool's own patterns; those of the folders come before others of the same name.
fn layered(own: &[Value], added: Vec<Value>) -> Vec<Value> {
    let mut all: Vec<Value> = own.to_vec();
    for pattern in added {
        match all.iter_mut().find(|one| one["name"] == pattern["name"]) {
            Some(known) => *known = pattern,
            None => all.push(pattern),
        }
    }
    all
}

/// The command's words, joined by `_`. Empty for the root command.
fn own_name(path: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let name = path.join("_");
    name.chars()
        .map(|c| if plain(c) { c } else { '_' })
        .collect()
}

/// With a number, where the name is taken.
fn unique(name: String, names: &mut HashSet<String>) -> String {
    let numbered = |number: usize| match name.as_str() {
        "" => format!("_{number}"),
        name => format!("{name}_{number}"),
    };
    let mut chosen = name.clone();
    let mut number = 2;
    while !names.insert(chosen.clone()) {
        chosen = numbered(number);
        number += 1;
    }
    chosen
}

/// A tool that has to log in, and whose manifest sets none of the variables that it reads.
fn warn_of_variables(
    provider: &Provider,
    atip: &Atip,
    metadata: &Metadata,
    warnings: &mut Vec<Problem>,
) {
    let Some(auth) = metadata.authentication.as_ref() else {
        return;
    };
    let is_set = |name: &String| atip.cli.env.iter().any(|(known, _)| known == name);
    // It may log in by other ways, too, which leave something in its own folders.
    if auth.required && !auth.env_vars.is_empty() && !auth.env_vars.iter().any(is_set) {
        let names = auth.env_vars.join(" or ");
        let message = format!("the tool wants a credential: set {names} here");
        let weight = crate::error::Weight::Tolerated;
        let problem = Problem::new(message).file(&provider.file).weight(weight);
        warnings.push(problem.key("provider.atip_env"));
    }
}
