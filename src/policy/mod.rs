//! What callers may do, by what tools do: the operator's policy, narrowed by the one that a token
//! carries. It knows neither tools nor tokens: who asks says what is known about a tool ([`Facts`])
//! and what it is called ([`Named`]).

mod command;
mod effect;
mod narrow;
mod rules;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use command::{CommandPattern, Named};
pub use effect::{Estimate, Facts, Flag, Test, Trust};
pub use narrow::Wider;
pub use rules::{Rules, Unreadable, read_restriction};

use rules::{ALLOWED_TOOLS, DENIED_COMMANDS, EFFECT_RESTRICTIONS, REQUIRE_CONFIRMATION};

/// The policy of this edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub rules: Rules,
    pub preset: Preset,
    /// For how long a confirmation can be used.
    pub confirmation_time: Duration,
}

/// What wants a confirmation though no rule says so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Preset {
    /// What its author declares to be destructive, or to want a confirmation.
    #[default]
    Declared,
    /// Also what ati concludes to be destructive.
    Careful,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            rules: Rules::default(),
            preset: Preset::default(),
            confirmation_time: Duration::from_secs(300),
        }
    }
}

/// What a policy says about a call. The texts name the rule that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    Confirm(String),
    Deny(String),
}

/// Whose rules they are, as a rule's name says it.
const OF_CONF: &str = "policy";
const OF_TOKEN: &str = "delegation";

impl Policy {
    /// `delegation` can only narrow what this policy allows: what one of both denies is denied, and
    /// what one of both wants confirmed is confirmed.
    pub fn decide(&self, call: &Named<'_>, facts: &Facts, delegation: Option<&Rules>) -> Verdict {
        let own = self.rules.denies(call, facts, OF_CONF);
        let denied = own.or_else(|| delegation?.denies(call, facts, OF_TOKEN));
        if let Some(rule) = denied {
            return Verdict::Deny(rule);
        }
        let own = self.rules.wants_confirmation(facts, OF_CONF);
        let wanted = own
            .or_else(|| delegation?.wants_confirmation(facts, OF_TOKEN))
            .or_else(|| self.wanted_by_author(facts, delegation));
        wanted.map_or(Verdict::Allow, Verdict::Confirm)
    }

    /// Whether what a tool does can make a difference, beyond what its author declares.
    pub fn weighs_effects(&self, delegation: Option<&Rules>) -> bool {
        let weighs = |rules: &Rules| {
            !(rules.effect_restrictions.is_empty() && rules.require_confirmation.is_empty())
        };
        self.preset == Preset::Careful || weighs(&self.rules) || delegation.is_some_and(weighs)
    }

    /// What wants a confirmation without a rule, unless both policies approve of it.
    fn wanted_by_author(&self, facts: &Facts, delegation: Option<&Rules>) -> Option<String> {
        for flag in [Flag::Destructive, Flag::Confirm] {
            if facts.get(flag) != Some(true) {
                continue;
            }
            let rule = match (facts.is_declared(flag), self.preset) {
                (true, _) => format!("declared.{}", flag.name()),
                (false, Preset::Careful) => format!("{OF_CONF}.preset.careful.{}", flag.name()),
                (false, Preset::Declared) => continue,
            };
            // A token that says nothing about it leaves it to the operator.
            let is_approved = self.rules.approves(flag, facts) == Some(true)
                && delegation.and_then(|it| it.approves(flag, facts)) != Some(false);
            if !is_approved {
                return Some(rule);
            }
        }
        None
    }
}

impl Rules {
    fn denies(&self, call: &Named<'_>, facts: &Facts, whose: &str) -> Option<String> {
        let denied = self.denied_commands.iter().find(|it| it.denies(call));
        if let Some(pattern) = denied {
            return Some(format!("{whose}.{DENIED_COMMANDS}: {}", pattern.as_str()));
        }
        let allowed = self.allowed_tools.as_ref();
        if allowed.is_some_and(|patterns| !patterns.iter().any(|it| it.allows(call))) {
            return Some(format!("{whose}.{ALLOWED_TOOLS}"));
        }
        let broken = self.effect_restrictions.iter();
        let broken = broken.copied().find(|test| test.is_broken_by(facts))?;
        Some(format!("{whose}.{EFFECT_RESTRICTIONS}.{}", broken.name()))
    }

    fn wants_confirmation(&self, facts: &Facts, whose: &str) -> Option<String> {
        let mut tests = self.require_confirmation.iter();
        let test = tests.find(|test| test.is_met_or_worse(facts))?;
        Some(format!("{whose}.{REQUIRE_CONFIRMATION}: {test}"))
    }

    /// Whether calls with this effect need no confirmation. None where the rules don't say.
    fn approves(&self, flag: Flag, facts: &Facts) -> Option<bool> {
        let groups = self.auto_approve.as_ref()?;
        let names = |group: &Vec<Test>| group.contains(&Test::Flag(flag, true));
        let holds = |group: &Vec<Test>| group.iter().all(|test| test.is_met_or_better(facts));
        Some(groups.iter().any(|group| names(group) && holds(group)))
    }
}
