//! What policies know about a tool: its effects as facts, and the names that patterns are about.

use std::time::Duration;

use super::{Effects, Input, KnownEffects, inferred, parse_time};
use crate::catalog::{Handler, Invocation, Tool};
use crate::policy::{Facts, Flag, Named, Test};

impl Tool {
    /// What is known about its effects, declared or inferred.
    pub fn facts(&self) -> Facts {
        match &self.effects {
            Some(known) => of(known),
            None => inferred(&self.invocation)
                .as_ref()
                .map_or_else(Facts::default, of),
        }
    }

    /// What descriptions show of its effects. That a tool over HTTP uses the network goes without
    /// saying.
    pub fn shown_effects(&self) -> Option<KnownEffects> {
        let over_network = Effects {
            network: Some(true),
            ..Effects::default()
        };
        let known = self.known_effects()?;
        (known.is_declared() || known.effects != over_network).then_some(known)
    }

    /// Whether it is known to have all of these, as a filter of a list asks for them.
    pub fn has_effects(&self, wanted: &[Test]) -> bool {
        let facts = || self.facts();
        wanted.is_empty() || wanted.iter().all(|test| test.is_met_or_worse(&facts()))
    }

    /// What patterns of a policy are compared with. `words` are the caller's, of a program.
    pub fn named<'a>(&'a self, words: &'a [String]) -> Named<'a> {
        let provider = &self.provider;
        let (program, command) = match (&self.invocation, &provider.handler) {
            (Invocation::Atip(command), Handler::Atip(atip)) => {
                (Some(atip.name()), command.command.as_str())
            }
            (Invocation::Cli, _) => (provider.cli().map(|cli| base_name(&cli.command)), ""),
            _ => (None, ""),
        };
        Named {
            tool: &self.name,
            provider: &provider.name,
            program,
            command,
            words,
        }
    }
}

fn base_name(command: &str) -> &str {
    command.rsplit('/').next().unwrap_or(command)
}

fn of(known: &KnownEffects) -> Facts {
    let effects = &known.effects;
    let files = effects.filesystem.as_ref();
    let listed = |list: &Vec<String>| (!list.is_empty()).then_some(true);
    let cost = effects.cost.as_ref();
    let facts = Facts {
        cost: cost.and_then(|cost| cost.estimate),
        duration: longest(effects),
        trust: known.source.trust(),
        is_declared: known.is_declared(),
        ..Facts::default()
    };
    facts
        .with(Flag::Network, effects.network)
        .with(Flag::Subprocess, effects.subprocess)
        .with(Flag::Idempotent, effects.idempotent)
        .with(Flag::Reversible, effects.reversible)
        .with(Flag::Destructive, effects.destructive)
        .with(Flag::Confirm, effects.confirm)
        .with(Flag::Creates, listed(&effects.creates))
        .with(Flag::Modifies, listed(&effects.modifies))
        .with(Flag::Deletes, listed(&effects.deletes))
        .with(Flag::Billable, cost.and_then(|cost| cost.billable))
        .with(Flag::FilesRead, files.and_then(|files| files.read))
        .with(Flag::FilesWritten, files.and_then(|files| files.write))
        .with(Flag::FilesDeleted, files.and_then(|files| files.delete))
        .with(Flag::Interactive, is_interactive(effects))
}

fn is_interactive(effects: &Effects) -> Option<bool> {
    let interactive = effects.interactive.as_ref()?;
    let reads = matches!(interactive.stdin, Some(Input::Required | Input::Password));
    Some(reads || interactive.prompts == Some(true) || interactive.tty == Some(true))
}

/// How long a call may take: its timeout, or else the end of what is typical (`1-5s`).
fn longest(effects: &Effects) -> Option<Duration> {
    let duration = effects.duration.as_ref()?;
    let timeout = duration.timeout.as_deref().and_then(parse_time);
    timeout.or_else(|| {
        let typical = duration.typical.as_deref()?;
        parse_time(typical.rsplit('-').next()?)
    })
}
