//! What policies know about a tool: its effects as facts, and the names that patterns are about.

use std::time::Duration;

use super::{Effects, Input, KnownEffects, concluded_of, parse_time};
use crate::catalog::{Handler, Invocation, Tool};
use crate::policy::{Facts, Flag, Named, Test};

impl Tool {
    /// What is known about its effects: what is declared, and what ati concludes about the others.
    pub fn facts(&self) -> Facts {
        let declared = self.effects.as_ref().map_or_else(Facts::default, of);
        let Some(concluded) = concluded_of(&self.invocation) else {
            return declared;
        };
        let fill = |facts: Facts, (flag, value)| facts.with_inferred(flag, value);
        concluded.flags().into_iter().fold(declared, fill)
    }

    /// The same as [`Tool::facts`], in ATIP's words.
    pub fn known_effects(&self) -> Option<KnownEffects> {
        let concluded = concluded_of(&self.invocation);
        match (self.effects.clone(), concluded) {
            (Some(declared), Some(concluded)) => Some(declared.with_inferred(&concluded)),
            (Some(declared), None) => Some(declared),
            (None, concluded) => concluded.map(KnownEffects::concluded),
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
            (Invocation::Cmp(cmp), _) => {
                let program = cmp.intent.command.program();
                (Some(base_name(program)), cmp.command.as_str())
            }
            (Invocation::Cli, _) => (provider.cli().map(|cli| base_name(&cli.command)), ""),
            // What the script of a Runfile runs isn't known.
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
    let facts = Facts {
        cost: effects.cost.as_ref().and_then(|cost| cost.estimate),
        duration: longest(effects),
        trust: known.source.trust(),
        ..Facts::default()
    };
    let add = |facts: Facts, (flag, value)| match known.declares(flag) {
        true => facts.with(flag, value),
        false => facts.with_inferred(flag, value),
    };
    effects.flags().into_iter().fold(facts, add)
}

impl Effects {
    /// What is there or not.
    pub fn flag(&self, flag: Flag) -> Option<bool> {
        let files = self.filesystem.as_ref();
        let listed = |list: &Vec<String>| (!list.is_empty()).then_some(true);
        match flag {
            Flag::Network => self.network,
            Flag::Subprocess => self.subprocess,
            Flag::Idempotent => self.idempotent,
            Flag::Reversible => self.reversible,
            Flag::Destructive => self.destructive,
            Flag::Confirm => self.confirm,
            Flag::Creates => listed(&self.creates),
            Flag::Modifies => listed(&self.modifies),
            Flag::Deletes => listed(&self.deletes),
            Flag::Billable => self.cost.as_ref().and_then(|cost| cost.billable),
            Flag::FilesRead => files.and_then(|files| files.read),
            Flag::FilesWritten => files.and_then(|files| files.write),
            Flag::FilesDeleted => files.and_then(|files| files.delete),
            Flag::Interactive => is_interactive(self),
        }
    }

    pub fn flags(&self) -> [(Flag, Option<bool>); Flag::ALL.len()] {
        Flag::ALL.map(|flag| (flag, self.flag(flag)))
    }
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
