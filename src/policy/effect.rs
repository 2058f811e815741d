//! What a rule can say about a tool's effects: a flag, or a level that is reached.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

/// Effects that are there or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    Network,
    Subprocess,
    Idempotent,
    Reversible,
    Destructive,
    Confirm,
    Creates,
    Modifies,
    Deletes,
    Billable,
    FilesRead,
    FilesWritten,
    FilesDeleted,
    Interactive,
}

impl Flag {
    pub const ALL: [Flag; 14] = [
        Flag::Network,
        Flag::Subprocess,
        Flag::Idempotent,
        Flag::Reversible,
        Flag::Destructive,
        Flag::Confirm,
        Flag::Creates,
        Flag::Modifies,
        Flag::Deletes,
        Flag::Billable,
        Flag::FilesRead,
        Flag::FilesWritten,
        Flag::FilesDeleted,
        Flag::Interactive,
    ];

    /// As ATIP writes it.
    pub fn name(self) -> &'static str {
        match self {
            Flag::Network => "network",
            Flag::Subprocess => "subprocess",
            Flag::Idempotent => "idempotent",
            Flag::Reversible => "reversible",
            Flag::Destructive => "destructive",
            Flag::Confirm => "confirm",
            Flag::Creates => "creates",
            Flag::Modifies => "modifies",
            Flag::Deletes => "deletes",
            Flag::Billable => "cost.billable",
            Flag::FilesRead => "filesystem.read",
            Flag::FilesWritten => "filesystem.write",
            Flag::FilesDeleted => "filesystem.delete",
            Flag::Interactive => "interactive",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        match name {
            "billable" => Some(Flag::Billable),
            name => Flag::ALL.into_iter().find(|flag| flag.name() == name),
        }
    }

    /// A tool with it is safer than one without: a restriction asks for it. All other effects are
    /// what a restriction forbids.
    fn is_welcome(self) -> bool {
        matches!(self, Flag::Idempotent | Flag::Reversible)
    }
}

/// What a call costs, in that order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Estimate {
    Free,
    Low,
    Medium,
    High,
}

impl Estimate {
    pub const NAMED: &'static [(&'static str, Estimate)] = &[
        ("free", Estimate::Free),
        ("low", Estimate::Low),
        ("medium", Estimate::Medium),
        ("high", Estimate::High),
    ];
}

/// How much the word of the one who declares effects is trusted, in that order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Trust {
    #[default]
    VeryLow,
    Low,
    Medium,
    High,
}

impl Trust {
    const NAMED: &'static [(&'static str, Trust)] = &[
        ("veryLow", Trust::VeryLow),
        ("very_low", Trust::VeryLow),
        ("low", Trust::Low),
        ("medium", Trust::Medium),
        ("high", Trust::High),
    ];
}

/// What is known about a tool's effects. Small, because it is made for every call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    pub(crate) known: u16,
    pub(crate) set: u16,
    /// Of those that are known: what ati has concluded. An author says the others.
    pub(crate) inferred: u16,
    pub cost: Option<Estimate>,
    pub duration: Option<Duration>,
    pub trust: Trust,
}

impl Facts {
    /// What an author says.
    #[must_use]
    pub fn with(mut self, flag: Flag, value: Option<bool>) -> Self {
        let bit = 1 << flag as u16;
        if let Some(value) = value {
            self.known |= bit;
            self.set |= if value { bit } else { 0 };
        }
        self
    }

    /// What ati has concluded, where no author says anything about it.
    #[must_use]
    pub fn with_inferred(mut self, flag: Flag, value: Option<bool>) -> Self {
        let bit = 1 << flag as u16;
        if self.known & bit == 0 && value.is_some() {
            self.inferred |= bit;
            self = self.with(flag, value);
        }
        self
    }

    /// Whether what is known about it is an author's word.
    pub fn is_declared(&self, flag: Flag) -> bool {
        self.known & !self.inferred & (1 << flag as u16) != 0
    }

    /// None where it isn't known.
    pub fn get(&self, flag: Flag) -> Option<bool> {
        let bit = 1 << flag as u16;
        (self.known & bit != 0).then_some(self.set & bit != 0)
    }
}

/// What a rule says about one effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    Flag(Flag, bool),
    Cost(Estimate),
    Duration(Duration),
    Trust(Trust),
}

impl Test {
    /// `name` with or without `effects.` before it. The text says what is wrong.
    pub fn read(name: &str, value: &Value) -> Result<Self, String> {
        let plain = name.strip_prefix("effects.").unwrap_or(name);
        if let Some(flag) = Flag::named(plain) {
            let value = match value {
                Value::Bool(value) => Some(*value),
                Value::String(text) => text.parse().ok(),
                _ => None,
            };
            let value = value.ok_or_else(|| format!("'{name}' is true or false"))?;
            return Ok(Test::Flag(flag, value));
        }
        let text = value.as_str();
        let level = |names: &str| format!("'{name}' is one of {names}");
        match plain {
            "cost" | "cost.estimate" => named(Estimate::NAMED, text)
                .map(Test::Cost)
                .ok_or_else(|| level("free, low, medium, high")),
            "trust" => named(Trust::NAMED, text)
                .map(Test::Trust)
                .ok_or_else(|| level("very_low, low, medium, high")),
            "duration" | "duration.timeout" => {
                let seconds = value.as_u64().map(Duration::from_secs);
                seconds
                    .or_else(|| crate::text::parse_duration(text?))
                    .map(Test::Duration)
                    .ok_or_else(|| format!("'{name}' is a time like 60s, 500ms, 5m or 1h"))
            }
            _ => Err(format!("'{name}' is no effect that ati knows")),
        }
    }

    /// An item of a list: `effects.network`, or `effects.reversible=false`.
    pub fn read_item(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) => Test::read(name.trim(), &value.trim().into()),
            None => Test::read(text.trim(), &true.into()),
        }
    }

    /// Whether a tool is so, or worse. What isn't known isn't so.
    pub fn is_met_or_worse(self, facts: &Facts) -> bool {
        match self {
            Test::Flag(flag, value) => facts.get(flag) == Some(value),
            Test::Cost(level) => facts.cost.is_some_and(|cost| cost >= level),
            Test::Duration(time) => facts.duration.is_some_and(|duration| duration >= time),
            Test::Trust(level) => facts.trust <= level,
        }
    }

    /// Whether a tool is known to be so, or better.
    pub fn is_met_or_better(self, facts: &Facts) -> bool {
        match self {
            Test::Flag(flag, value) => facts.get(flag) == Some(value),
            Test::Cost(level) => facts.cost.is_some_and(|cost| cost <= level),
            Test::Duration(time) => facts.duration.is_some_and(|duration| duration <= time),
            Test::Trust(level) => facts.trust >= level,
        }
    }

    /// Whether a tool is known to break it, as a restriction.
    pub fn is_broken_by(self, facts: &Facts) -> bool {
        match self {
            // `destructive = true` forbids nothing.
            Test::Flag(flag, wanted) => self.restricts() && facts.get(flag) == Some(!wanted),
            Test::Cost(most) => facts.cost.is_some_and(|cost| cost > most),
            Test::Duration(most) => facts.duration.is_some_and(|duration| duration > most),
            Test::Trust(least) => facts.trust < least,
        }
    }

    /// Whether it forbids anything, as a restriction.
    pub fn restricts(self) -> bool {
        match self {
            Test::Flag(flag, value) => value == flag.is_welcome(),
            Test::Cost(_) | Test::Duration(_) | Test::Trust(_) => true,
        }
    }

    /// The narrower of two restrictions on the same effect; None where they are on different ones.
    pub fn narrower(self, other: Test) -> Option<Test> {
        Some(match (self, other) {
            (Test::Flag(one, _), Test::Flag(two, _)) if one == two => {
                if self.restricts() {
                    self
                } else {
                    other
                }
            }
            (Test::Cost(one), Test::Cost(two)) => Test::Cost(one.min(two)),
            (Test::Duration(one), Test::Duration(two)) => Test::Duration(one.min(two)),
            (Test::Trust(one), Test::Trust(two)) => Test::Trust(one.max(two)),
            _ => return None,
        })
    }

    /// Without `effects.`.
    pub fn name(self) -> &'static str {
        match self {
            Test::Flag(flag, _) => flag.name(),
            Test::Cost(_) => "cost",
            Test::Duration(_) => "duration",
            Test::Trust(_) => "trust",
        }
    }

    pub fn value(self) -> Value {
        match self {
            Test::Flag(_, value) => value.into(),
            Test::Cost(level) => serde_json::json!(level),
            Test::Duration(time) => format!("{}ms", time.as_millis()).into(),
            Test::Trust(level) => serde_json::json!(level),
        }
    }
}

/// As an item of a list.
impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.value()) {
            (Test::Flag(_, true), _) => write!(f, "effects.{}", self.name()),
            (_, Value::String(text)) => write!(f, "effects.{}={text}", self.name()),
            (_, value) => write!(f, "effects.{}={value}", self.name()),
        }
    }
}

fn named<T: Copy>(names: &[(&str, T)], text: Option<&str>) -> Option<T> {
    let text = text?;
    let known = names.iter().find(|(name, _)| *name == text);
    known.map(|(_, value)| *value)
}
