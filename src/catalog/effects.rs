//! What calling a tool does to the world: one vocabulary for every handler. It is that of ATIP
//! (section 3.4 of its RFC), and `confirm` of CMP. What no author has said is None, which is
//! another thing than `false`.

mod facts;
mod inferred;
mod merge;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::json_reader::{Findings, Object};
pub use crate::policy::{Estimate, Flag, Trust};
pub use crate::text::parse_duration as parse_time;
pub use inferred::concluded_of;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Effects {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<Filesystem>,
    /// Makes network requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<bool>,
    /// Starts other programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subprocess: Option<bool>,
    /// A second call does no harm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// Can be undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reversible: Option<bool>,
    /// Destroys data for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    /// Its author wants a person to confirm each call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<bool>,
    /// Kinds of resources, in the author's own words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub creates: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modifies: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deletes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<RunTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interactive: Option<Interactive>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Filesystem {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub billable: Option<bool>,
}

/// `duration`, as texts: `1-5s`, `60s`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunTime {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub typical: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interactive {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Input>,
    /// It may ask questions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompts: Option<bool>,
    /// It needs a terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tty: Option<bool>,
}

/// What a tool reads from its standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Input {
    None,
    Optional,
    Required,
    Password,
}

/// Who says what the effects are: `trust.source` of ATIP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// The tool itself.
    Native,
    /// The one who publishes it.
    Vendor,
    /// The operator, in a manifest.
    Org,
    /// A shim.
    Community,
    User,
    /// ati, which concludes it from what it knows of the tool.
    Inferred,
}

impl Source {
    pub fn trust(self) -> Trust {
        match self {
            Source::Native | Source::Vendor => Trust::High,
            Source::Org => Trust::Medium,
            Source::Community | Source::User => Trust::Low,
            Source::Inferred => Trust::VeryLow,
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "native" => Source::Native,
            "vendor" => Source::Vendor,
            "org" => Source::Org,
            "community" => Source::Community,
            "user" => Source::User,
            "inferred" => Source::Inferred,
            _ => return None,
        })
    }

    pub const NAMES: [&'static str; 6] =
        ["native", "vendor", "org", "community", "user", "inferred"];

    /// As documents write it.
    pub fn name(self) -> &'static str {
        match self {
            Source::Native => "native",
            Source::Vendor => "vendor",
            Source::Org => "org",
            Source::Community => "community",
            Source::User => "user",
            Source::Inferred => "inferred",
        }
    }
}

/// Effects, and whose word they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownEffects {
    pub effects: Effects,
    /// Of several authors, the one who is trusted least.
    pub source: Source,
    /// Of declared effects: those that ati has added, because no author mentions them.
    pub inferred: Vec<Flag>,
}

impl KnownEffects {
    /// What a manifest declares, and what can't be read of it.
    pub fn of_operator(value: &Value) -> (Option<Self>, Vec<String>) {
        let mut found = Findings::default();
        let known = KnownEffects {
            effects: Effects::read(value, "", &mut found),
            source: Source::Org,
            inferred: Vec::new(),
        };
        let faults = found.problems.into_iter().chain(found.warnings);
        let known = Some(known).filter(|known| !known.effects.is_empty());
        (known, faults.map(|fault| fault.to_string()).collect())
    }

    /// What ati has concluded, with no author's word in it.
    pub fn concluded(effects: Effects) -> Self {
        KnownEffects {
            effects,
            source: Source::Inferred,
            inferred: Vec::new(),
        }
    }

    /// Whether an author has said something; otherwise ati has concluded all of it.
    pub fn is_declared(&self) -> bool {
        self.source != Source::Inferred
    }

    /// Whether what is known about this effect is an author's word.
    pub fn declares(&self, flag: Flag) -> bool {
        let is_known = self.effects.flag(flag).is_some();
        self.is_declared() && is_known && !self.inferred.contains(&flag)
    }

    /// The names of effects that ati has added to those that are declared.
    pub fn inferred_names(&self) -> Vec<&'static str> {
        self.inferred.iter().map(|flag| flag.name()).collect()
    }
}

impl Effects {
    /// From a document. A value that can't be read is a problem, and counts as not said.
    pub fn read(value: &Value, place: &str, found: &mut Findings) -> Self {
        let Some(mut o) = Object::open(value, place, found) else {
            return Effects::default();
        };
        let filesystem = o.object("filesystem", found).map(|mut o| {
            let filesystem = Filesystem {
                read: o.flag("read", found),
                write: o.flag("write", found),
                delete: o.flag("delete", found),
                paths: o.texts("paths", found),
            };
            o.finish(found);
            filesystem
        });
        let cost = o.object("cost", found).map(|mut o| {
            let cost = Cost {
                estimate: word(&mut o, "estimate", Estimate::NAMED, found),
                billable: o.flag("billable", found),
            };
            o.finish(found);
            cost
        });
        let duration = o.object("duration", found).map(|mut o| {
            let duration = RunTime::read(&mut o, found);
            o.finish(found);
            duration
        });
        let interactive = o.object("interactive", found).map(|mut o| {
            let interactive = Interactive {
                stdin: word(&mut o, "stdin", INPUTS, found),
                prompts: o.flag("prompts", found),
                tty: o.flag("tty", found),
            };
            o.finish(found);
            interactive
        });
        let effects = Effects {
            filesystem,
            network: o.flag("network", found),
            subprocess: o.flag("subprocess", found),
            idempotent: o.flag("idempotent", found),
            reversible: o.flag("reversible", found),
            destructive: o.flag("destructive", found),
            confirm: o.flag("confirm", found),
            creates: o.texts("creates", found),
            modifies: o.texts("modifies", found),
            deletes: o.texts("deletes", found),
            cost,
            duration,
            interactive,
        };
        o.finish(found);
        effects
    }

    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Effects::default()
    }

    /// The effects of a command of a tool that has these effects as a whole: the worse of both for
    /// what it may do, the command's own for what it costs.
    pub fn with_command(&self, command: &Effects) -> Effects {
        let (tool_files, own_files) = (&self.filesystem, &command.filesystem);
        let filesystem = match (tool_files, own_files) {
            (Some(tool), Some(own)) => Some(Filesystem {
                read: either(tool.read, own.read),
                write: either(tool.write, own.write),
                delete: either(tool.delete, own.delete),
                paths: union(&tool.paths, &own.paths),
            }),
            (one, other) => other.as_ref().or(one.as_ref()).cloned(),
        };
        Effects {
            filesystem,
            network: either(self.network, command.network),
            subprocess: either(self.subprocess, command.subprocess),
            destructive: either(self.destructive, command.destructive),
            confirm: either(self.confirm, command.confirm),
            idempotent: both(self.idempotent, command.idempotent),
            reversible: both(self.reversible, command.reversible),
            creates: union(&self.creates, &command.creates),
            modifies: union(&self.modifies, &command.modifies),
            deletes: union(&self.deletes, &command.deletes),
            cost: command.cost.clone().or_else(|| self.cost.clone()),
            duration: command.duration.clone().or_else(|| self.duration.clone()),
            interactive: command
                .interactive
                .clone()
                .or_else(|| self.interactive.clone()),
        }
    }

    /// How long a call may take, where its author says so.
    pub fn timeout(&self) -> Option<Duration> {
        let text = self.duration.as_ref()?.timeout.as_deref()?;
        parse_time(text)
    }

    /// Why it can't be called without a person at a terminal, if it can't.
    pub fn needs_terminal(&self) -> Option<&'static str> {
        let interactive = self.interactive.as_ref()?;
        match interactive.stdin {
            _ if interactive.tty == Some(true) => Some("it needs a terminal"),
            Some(Input::Password) => Some("it reads a password from a terminal"),
            Some(Input::Required) => Some("it needs input that a call can't give it"),
            Some(Input::None | Input::Optional) | None => None,
        }
    }

    /// Whether it is known to change nothing; None where that isn't said.
    pub fn is_read_only(&self) -> Option<bool> {
        let files = self.filesystem.as_ref();
        let write = files.and_then(|files| files.write);
        let delete = files.and_then(|files| files.delete);
        let lists = [&self.creates, &self.modifies, &self.deletes];
        let changes = lists.iter().any(|list| !list.is_empty());
        if changes || [write, delete, self.destructive].contains(&Some(true)) {
            return Some(false);
        }
        let says = [write, delete, self.destructive] == [Some(false); 3];
        (says && self.idempotent == Some(true)).then_some(true)
    }
}

impl RunTime {
    fn read(o: &mut Object<'_>, found: &mut Findings) -> Self {
        let typical = o.text("typical", found);
        let timeout = o.text("timeout", found);
        if let Some(text) = timeout.as_deref().filter(|it| parse_time(it).is_none()) {
            let message = format!("'{text}' is no time like 60s, 500ms, 5m or 1h");
            found.problem(&o.place("timeout"), message);
        }
        RunTime { typical, timeout }
    }
}

const INPUTS: &[(&str, Input)] = &[
    ("none", Input::None),
    ("optional", Input::Optional),
    ("required", Input::Required),
    ("password", Input::Password),
];

/// One of these words.
fn word<T: Copy>(
    o: &mut Object<'_>,
    key: &'static str,
    words: &[(&str, T)],
    found: &mut Findings,
) -> Option<T> {
    let text = o.text(key, found)?;
    let known = words.iter().find(|(word, _)| *word == text);
    if known.is_none() {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let message = format!("'{text}' is none of {}", words.join(", "));
        found.problem(&o.place(key), message);
    }
    known.map(|(_, value)| *value)
}

/// True where one of them is.
fn either(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one || other),
        (one, other) => one.or(other),
    }
}

/// False where one of them is.
fn both(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one && other),
        (one, other) => one.or(other),
    }
}

fn union(one: &[String], other: &[String]) -> Vec<String> {
    let mut all = one.to_vec();
    all.extend(other.iter().filter(|it| !one.contains(it)).cloned());
    all
}
