//! The rules of one policy, as the conf file or a token writes them: ATIP's words (sections 8.2 and
//! 9.2 of its RFC), in camelCase or in snake_case.

use serde_json::{Map, Value, json};

use super::command::CommandPattern;
use super::effect::Test;

/// Patterns and tests of one list. A token has 16 KiB; a longer list of a conf file is a mistake.
const MOST_ITEMS: usize = 1000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Effects that need no confirmation though an author wants it. The tests of each group hold
    /// together. None where nothing is said about it.
    pub auto_approve: Option<Vec<Vec<Test>>>,
    /// Each of them wants a confirmation.
    pub require_confirmation: Vec<Test>,
    /// None: all.
    pub allowed_tools: Option<Vec<CommandPattern>>,
    pub denied_commands: Vec<CommandPattern>,
    pub effect_restrictions: Vec<Test>,
}

/// What can't be read: the key, and why.
pub type Unreadable = (&'static str, String);

pub const AUTO_APPROVE: &str = "autoApprove";
pub const REQUIRE_CONFIRMATION: &str = "requireConfirmation";
pub const ALLOWED_TOOLS: &str = "allowedTools";
pub const DENIED_COMMANDS: &str = "deniedCommands";
pub const EFFECT_RESTRICTIONS: &str = "effectRestrictions";

/// The keys, as tokens and as conf files write them.
const KEYS: [(&str, &str); 5] = [
    (AUTO_APPROVE, "auto_approve"),
    (REQUIRE_CONFIRMATION, "require_confirmation"),
    (ALLOWED_TOOLS, "allowed_tools"),
    (DENIED_COMMANDS, "denied_commands"),
    (EFFECT_RESTRICTIONS, "effect_restrictions"),
];

impl Rules {
    /// A key that isn't known makes the whole unreadable: what it forbids isn't known either. Keys
    /// that begin with `x-` are notes.
    pub fn read(value: &Value) -> Result<Self, Vec<Unreadable>> {
        let Some(members) = value.as_object() else {
            return Err(vec![("", "it is no object".to_owned())]);
        };
        let mut rules = Rules::default();
        let mut unreadable = Vec::new();
        let mut seen = Vec::new();
        for (key, value) in members.iter().filter(|(key, _)| !key.starts_with("x-")) {
            let known = KEYS
                .iter()
                .find(|(camel, snake)| key == camel || key == snake);
            let Some((key, _)) = known else {
                unreadable.push(("", format!("'{key}' is no rule that ati knows")));
                continue;
            };
            if seen.contains(key) {
                unreadable.push((key, "it is there twice".to_owned()));
            }
            seen.push(key);
            if let Err(why) = rules.take(key, value) {
                unreadable.push((key, why));
            }
        }
        match unreadable.is_empty() {
            true => Ok(rules),
            false => Err(unreadable),
        }
    }

    fn take(&mut self, key: &str, value: &Value) -> Result<(), String> {
        match key {
            AUTO_APPROVE => self.auto_approve = Some(groups(value)?),
            REQUIRE_CONFIRMATION => {
                self.require_confirmation = groups(value)?.into_iter().flatten().collect();
            }
            ALLOWED_TOOLS => self.allowed_tools = Some(patterns(value)?),
            DENIED_COMMANDS => self.denied_commands = patterns(value)?,
            _ => self.effect_restrictions = restrictions(value)?,
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        *self == Rules::default()
    }

    /// As tokens have it.
    pub fn to_value(&self) -> Value {
        let mut members = Map::new();
        if let Some(groups) = &self.auto_approve {
            members.insert(AUTO_APPROVE.to_owned(), auto_approve_value(groups));
        }
        if !self.require_confirmation.is_empty() {
            let each = self.require_confirmation.iter().map(ToString::to_string);
            members.insert(REQUIRE_CONFIRMATION.to_owned(), each.collect());
        }
        let texts = |patterns: &[CommandPattern]| -> Value {
            patterns.iter().map(CommandPattern::as_str).collect()
        };
        if let Some(allowed) = &self.allowed_tools {
            members.insert(ALLOWED_TOOLS.to_owned(), texts(allowed));
        }
        if !self.denied_commands.is_empty() {
            members.insert(DENIED_COMMANDS.to_owned(), texts(&self.denied_commands));
        }
        if !self.effect_restrictions.is_empty() {
            let each = self.effect_restrictions.iter();
            let each = each.map(|test| (test.name().to_owned(), test.value()));
            let restrictions: Map<String, Value> = each.collect();
            members.insert(EFFECT_RESTRICTIONS.to_owned(), restrictions.into());
        }
        Value::Object(members)
    }
}

/// A list of single effects. An object in it, or in its place, has effects that hold together.
fn groups(value: &Value) -> Result<Vec<Vec<Test>>, String> {
    let together = |members: &Map<String, Value>| -> Result<Vec<Test>, String> {
        let each = members.iter();
        let tests = each.map(|(name, value)| Test::read(name, value));
        once_each(tests.collect::<Result<_, _>>()?)
    };
    match value {
        Value::Object(members) if members.is_empty() => Ok(Vec::new()),
        Value::Object(members) => Ok(vec![together(members)?]),
        Value::Array(items) if items.len() <= MOST_ITEMS => items
            .iter()
            .map(|item| match item {
                Value::String(text) => Ok(vec![Test::read_item(text)?]),
                Value::Object(members) if !members.is_empty() => together(members),
                _ => Err("its items are texts like effects.destructive".to_owned()),
            })
            .collect(),
        Value::Array(_) => Err(format!("it has more than {MOST_ITEMS} items")),
        _ => Err("it is a list of texts like effects.destructive".to_owned()),
    }
}

fn auto_approve_value(groups: &[Vec<Test>]) -> Value {
    let each = groups.iter().map(|group| match group.as_slice() {
        [one] => one.to_string().into(),
        several => {
            let member = |test: &Test| (format!("effects.{}", test.name()), test.value());
            Value::Object(several.iter().map(member).collect())
        }
    });
    each.collect()
}

fn patterns(value: &Value) -> Result<Vec<CommandPattern>, String> {
    let wrong = || "it is a list of names like gh, gh:repo_* or 'gh repo delete'".to_owned();
    let items = value.as_array().ok_or_else(wrong)?;
    if items.len() > MOST_ITEMS {
        return Err(format!("it has more than {MOST_ITEMS} items"));
    }
    let each = items
        .iter()
        .map(|item| item.as_str().and_then(CommandPattern::new));
    each.collect::<Option<Vec<_>>>().ok_or_else(wrong)
}

/// An object; groups of effects may be objects in it: `{"filesystem": {"write": false}}`.
fn restrictions(value: &Value) -> Result<Vec<Test>, String> {
    let Some(members) = value.as_object() else {
        return Err("it is an object like {\"destructive\": false}".to_owned());
    };
    let mut tests = Vec::new();
    for (name, value) in members {
        match value {
            Value::Object(inner) => {
                for (part, value) in inner {
                    tests.push(Test::read(&format!("{name}.{part}"), value)?);
                }
            }
            value => tests.push(Test::read(name, value)?),
        }
    }
    once_each(tests)
}

/// An effect has one value. Two of them contradict each other, or would be one when they are
/// written again.
fn once_each(tests: Vec<Test>) -> Result<Vec<Test>, String> {
    for (at, test) in tests.iter().enumerate() {
        if tests[..at].iter().any(|other| other.name() == test.name()) {
            return Err(format!("it has effects.{} twice", test.name()));
        }
    }
    Ok(tests)
}

/// One `--restrict destructive=false` of a command line.
pub fn read_restriction(text: &str) -> Result<Test, String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("like destructive=false, cost=low or trust=medium")?;
    let test = Test::read(name.trim(), &json!(value.trim()))?;
    match test.restricts() {
        true => Ok(test),
        false => Err(format!("'{text}' restricts nothing")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_in_both_spellings_and_written_as_tokens_have_them() {
        let snake = json!({
            "auto_approve": ["effects.destructive", {"effects.confirm": true, "effects.network": false}],
            "require_confirmation": {"effects.network": true, "cost": "high"},
            "allowed_tools": ["gh", "gh:pr_*"],
            "denied_commands": ["gh repo delete"],
            "effect_restrictions": {"destructive": false, "filesystem": {"write": false}, "trust": "low"},
        });
        let rules = Rules::read(&snake).unwrap();
        let camel = json!({
            "autoApprove": ["effects.destructive", {"effects.confirm": true, "effects.network": false}],
            "requireConfirmation": ["effects.network", "effects.cost=high"],
            "allowedTools": ["gh", "gh:pr_*"],
            "deniedCommands": ["gh repo delete"],
            "effectRestrictions": {"destructive": false, "filesystem.write": false, "trust": "low"},
        });
        assert_eq!(rules.to_value(), camel);
        assert_eq!(Rules::read(&camel), Ok(rules));
        assert!(Rules::read(&json!({"x-note": 1})).unwrap().is_empty());
    }

    #[test]
    fn rules_that_are_not_understood_are_unreadable() {
        for bad in [
            json!(null),
            json!([]),
            json!({"allowTools": ["gh"]}),
            json!({"allowedTools": "gh"}),
            json!({"allowedTools": ["gh", 5]}),
            json!({"allowedTools": [" "]}),
            json!({"deniedCommands": {"gh": true}}),
            json!({"effectRestrictions": ["destructive"]}),
            json!({"effectRestrictions": {"destructiv": false}}),
            json!({"effectRestrictions": {"destructive": "maybe"}}),
            json!({"effectRestrictions": {"cost": "enormous"}}),
            json!({"effectRestrictions": {"duration": "soon"}}),
            json!({"requireConfirmation": ["effects.everything"]}),
            json!({"requireConfirmation": true}),
            json!({"autoApprove": [5]}),
            json!({"autoApprove": [], "auto_approve": []}),
        ] {
            assert!(Rules::read(&bad).is_err(), "{bad}");
        }
    }
}
