//! One policy out of two: for a token that a lead agent narrows before it gives it away.

use super::command::CommandPattern;
use super::effect::Test;
use super::rules::Rules;

/// A pattern that would allow more than the lead agent may use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not within what the lead's token allows")]
pub struct Wider(pub String);

impl Rules {
    /// The rules of both. A call that one of them denies is denied, and one that one of them wants
    /// confirmed is confirmed. `Wider` names a pattern of `own` that no pattern of these covers: it
    /// would be left out, which isn't what was asked for.
    pub fn narrowed_by(&self, own: &Rules) -> Result<Rules, Wider> {
        if let (Some(lead), Some(own)) = (&self.allowed_tools, &own.allowed_tools) {
            let is_covered = |it: &&CommandPattern| lead.iter().any(|lead| lead.covers(it));
            if let Some(wider) = own.iter().find(|it| !is_covered(it)) {
                return Err(Wider(wider.as_str().to_owned()));
            }
        }
        Ok(self.and(own))
    }

    /// As [`Rules::narrowed_by`], without what isn't covered.
    pub fn and(&self, other: &Rules) -> Rules {
        Rules {
            auto_approve: match (&self.auto_approve, &other.auto_approve) {
                (Some(one), Some(two)) => Some(both(one, two)),
                (one, two) => one.clone().or_else(|| two.clone()),
            },
            require_confirmation: union(&self.require_confirmation, &other.require_confirmation),
            allowed_tools: match (&self.allowed_tools, &other.allowed_tools) {
                (Some(one), Some(two)) => Some(overlap(one, two)),
                (one, two) => one.clone().or_else(|| two.clone()),
            },
            denied_commands: union(&self.denied_commands, &other.denied_commands),
            effect_restrictions: narrower(&self.effect_restrictions, &other.effect_restrictions),
        }
    }
}

/// What both approve of: each group of the one together with each of the other that names the same
/// effects.
fn both(one: &[Vec<Test>], two: &[Vec<Test>]) -> Vec<Vec<Test>> {
    let named = |group: &[Test]| -> Vec<Test> {
        let names = |test: &&Test| matches!(test, Test::Flag(_, true));
        group.iter().filter(names).copied().collect()
    };
    let mut groups: Vec<Vec<Test>> = Vec::new();
    for (a, b) in one.iter().flat_map(|a| two.iter().map(move |b| (a, b))) {
        // A group approves of every effect that it names: of more than one of both names, too.
        let (of_a, of_b) = (named(a), named(b));
        let is_same = of_a.len() == of_b.len() && of_a.iter().all(|test| of_b.contains(test));
        let together = together(a, b).filter(|group| is_same && !groups.contains(group));
        groups.extend(together);
    }
    groups
}

/// The tests of both. None where they can't hold together.
fn together(one: &[Test], two: &[Test]) -> Option<Vec<Test>> {
    let contradict = |a: &Test| {
        let is_other = |b: &Test| a.name() == b.name() && a != b;
        matches!(a, Test::Flag(..)) && two.iter().any(is_other)
    };
    (!one.iter().any(contradict)).then(|| narrower(one, two))
}

/// Patterns of each list that the other one covers.
fn overlap(one: &[CommandPattern], two: &[CommandPattern]) -> Vec<CommandPattern> {
    let within = |patterns: &[CommandPattern], others: &[CommandPattern]| -> Vec<CommandPattern> {
        let covered = |it: &&CommandPattern| others.iter().any(|other| other.covers(it));
        patterns.iter().filter(covered).cloned().collect()
    };
    union(&within(one, two), &within(two, one))
}

/// One restriction for each effect.
fn narrower(one: &[Test], two: &[Test]) -> Vec<Test> {
    let mut all: Vec<Test> = Vec::new();
    for test in one.iter().chain(two) {
        let known = all
            .iter_mut()
            .find_map(|known| known.narrower(*test).map(|narrower| (known, narrower)));
        match known {
            Some((known, narrower)) => *known = narrower,
            None => all.push(*test),
        }
    }
    all
}

fn union<T: Clone + PartialEq>(one: &[T], two: &[T]) -> Vec<T> {
    let mut all = one.to_vec();
    all.extend(two.iter().filter(|it| !one.contains(it)).cloned());
    all
}
