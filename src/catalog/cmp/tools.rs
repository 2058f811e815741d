//! The intents of CMP tools as tools of the catalogue.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::Cmp;
use super::folder::{self, CmpTool};
use super::intent::Intent;
use crate::catalog::effects::{Effects, KnownEffects, Source};
use crate::catalog::invocation::Invocation;
use crate::catalog::json_reader::Findings;
use crate::catalog::provider::Provider;
use crate::catalog::result_format::ResultFormat;
use crate::catalog::schema::Schema;
use crate::catalog::tool::{Tool, default_scope};
use crate::error::Problem;
use crate::telemetry::metrics::METRICS;

/// Bytes of a tool's own name.
const LONGEST_NAME: usize = 100;

/// What a call of an intent runs.
#[derive(Debug)]
pub struct CmpInvocation {
    pub intent: Intent,
    /// The words that its program is always given first.
    pub command: String,
    pub domain: String,
    /// Programs here come before those of PATH.
    pub bin: Option<PathBuf>,
}

/// Every intent of every tool of the provider. A tool that can't be read is a warning.
pub fn tools(provider: &Arc<Provider>, cmp: &Cmp, warnings: &mut Vec<Problem>) -> Vec<Tool> {
    let mut tools = Vec::new();
    let mut names = HashSet::new();
    let mut seen = HashSet::new();
    for place in cmp.places() {
        let folders = match folder::find(&place) {
            Ok(folders) => folders,
            Err(_) if !cmp.is_named() => continue,
            Err(problem) => {
                let message = format!("{problem}; its tools are absent");
                let problem = Problem::new(message).file(&provider.file);
                warnings.push(problem.key("provider.cmp_path"));
                continue;
            }
        };
        if folders.is_empty() && cmp.is_named() {
            let message = format!("'{}' has no CMP tool in it", place.display());
            let problem = Problem::new(message).file(&provider.file);
            warnings.push(problem.key("provider.cmp_path"));
        }
        for folder in folders {
            // Of two folders of the same name, the first place counts.
            if !seen.insert(folder.file_name().map(ToOwned::to_owned)) {
                continue;
            }
            let mut found = Findings::default();
            let tool = folder::read(&folder, &mut found);
            warnings.extend(found.problems);
            warnings.extend(found.warnings);
            if let Some(mut tool) = tool {
                for intent in std::mem::take(&mut tool.intents) {
                    let name = unique(&own_name(&intent), &mut names);
                    tools.push(of_intent(intent, &name, &tool, provider));
                }
            }
        }
    }
    tools
}

/// The first plain pattern, its words joined; or else the words of the command.
pub fn own_name(intent: &Intent) -> String {
    let joined = |words: &mut dyn Iterator<Item = &str>| {
        let joined = words.collect::<Vec<_>>().join("_");
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let name: String = joined
            .chars()
            .map(|c| if plain(c) { c } else { '_' })
            .take(LONGEST_NAME)
            .collect();
        Some(name).filter(|name| name.contains(|c: char| c.is_ascii_alphanumeric()))
    };
    let pattern = intent.patterns.first();
    let by_pattern = pattern.and_then(|text| joined(&mut text.split_whitespace()));
    let by_command = || {
        let words = intent.command.plain_words();
        joined(&mut words.filter(|word| !word.starts_with('-')).take(3))
    };
    by_pattern
        .or_else(by_command)
        .unwrap_or_else(|| "intent".to_owned())
}

/// A name that was not used yet: with a number behind it where it was.
fn unique(name: &str, used: &mut HashSet<String>) -> String {
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    let free = names.find(|name| !used.contains(name)).unwrap_or_default();
    used.insert(free.clone());
    free
}

fn of_intent(intent: Intent, own: &str, tool: &CmpTool, provider: &Arc<Provider>) -> Tool {
    let name = format!("{}:{own}", provider.name);
    let mut description = intent.patterns.join(", ");
    if !tool.summary.is_empty() {
        let separator = if description.is_empty() { "" } else { " – " };
        description += &format!("{separator}{}", tool.summary);
    }
    let hint = (intent.confirm || intent.destructive).then(|| {
        let what = match intent.destructive {
            true => "It destroys data",
            false => "Its author wants a confirmation",
        };
        format!("{what}: show the user what it will do, and ask before you call it")
    });
    let effects = Effects {
        confirm: Some(intent.confirm),
        destructive: Some(intent.destructive),
        idempotent: Some(intent.idempotent),
        ..Effects::default()
    };
    let tags = tool.tags.iter().chain([&tool.domain, &tool.name]);
    let tags = tags.chain(&intent.patterns);
    Tool {
        metrics: METRICS.tool(&provider.name, &name),
        provider: provider.clone(),
        description,
        scope: default_scope(&name, provider),
        schema: Schema::new(intent.schema()),
        extract: None,
        format: ResultFormat::default(),
        tags: tags.filter(|tag| !tag.is_empty()).cloned().collect(),
        hint,
        examples: Vec::new(),
        effects: Some(KnownEffects {
            effects,
            source: match tool.wraps {
                Some(_) => Source::Community,
                None => Source::Native,
            },
            inferred: Vec::new(),
        }),
        invocation: Invocation::Cmp(Arc::new(CmpInvocation {
            bin: tool.bin(),
            domain: tool.domain.clone(),
            command: intent.command.command(),
            intent,
        })),
        name,
    }
}
