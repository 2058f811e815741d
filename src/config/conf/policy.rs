use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};

use super::value::RawSection;
use crate::config::Section;
use crate::policy::{Policy, Preset, Rules};

/// `[policy]`. Rules are written as in ATIP, in snake_case or in camelCase.
#[derive(Default)]
pub(in crate::config) struct RawPolicy {
    rules: Rules,
    preset: Option<Preset>,
    confirmation: Option<Duration>,
}

/// Seconds. What a person hasn't confirmed for a week is asked for again.
const LONGEST: u64 = 7 * 24 * 3600;

const RULES: [[&str; 2]; 5] = [
    ["auto_approve", "autoApprove"],
    ["require_confirmation", "requireConfirmation"],
    ["allowed_tools", "allowedTools"],
    ["denied_commands", "deniedCommands"],
    ["effect_restrictions", "effectRestrictions"],
];

impl RawSection for RawPolicy {
    fn take(section: &mut Section<'_>, _: &Path) -> Self {
        let mut written = Map::new();
        for key in RULES.into_iter().flatten() {
            if let Some(value) = section.take::<Value>(key) {
                written.insert(key.to_owned(), value);
            }
        }
        let rules = Rules::read(&Value::Object(written)).unwrap_or_else(|unreadable| {
            for (key, why) in unreadable {
                let spelled = RULES.iter().find(|[_, camel]| *camel == key);
                section.problem(spelled.map_or(key, |[snake, _]| snake), why);
            }
            Rules::default()
        });
        let preset: Option<String> = section.take("preset");
        let preset = preset.and_then(|name| match name.as_str() {
            "declared" => Some(Preset::Declared),
            "careful" => Some(Preset::Careful),
            _ => {
                section.problem("preset", format!("'{name}' is none of declared, careful"));
                None
            }
        });
        let seconds: Option<u64> = section.take("confirmation_seconds");
        let camel: Option<u64> = section.take("confirmationSeconds");
        let wrong = match (seconds, camel) {
            (Some(_), Some(_)) => Some("it is there twice".to_owned()),
            (seconds, camel) => match seconds.or(camel) {
                Some(0) => Some("must be at least 1".to_owned()),
                Some(long) if long > LONGEST => Some(format!("must be at most {LONGEST}, a week")),
                _ => None,
            },
        };
        if let Some(wrong) = wrong {
            section.problem("confirmation_seconds", wrong);
        }
        let seconds = seconds.or(camel);
        RawPolicy {
            rules,
            preset,
            confirmation: seconds.map(Duration::from_secs),
        }
    }
}

impl RawPolicy {
    pub(in crate::config) fn resolve(self) -> Policy {
        let default = Policy::default();
        Policy {
            rules: self.rules,
            preset: self.preset.unwrap_or_default(),
            confirmation_time: self.confirmation.unwrap_or(default.confirmation_time),
        }
    }
}
