//! The JSON Schema validator of a tool's arguments, and what it refuses in words.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationOptions, Validator};
use serde_json::{Map, Value, json};

use super::steps::{self, MOST_BACKTRACKS};
use super::{Prepared, Schema, Unfit, Unknown};
use crate::text;

/// Bytes of a compiled pattern: `\pL{40}` is five characters and a megabyte.
const LARGEST_PATTERN: usize = 128 << 10;
/// Characters of a pattern that a warning repeats.
const LONGEST_SHOWN: usize = 100;
/// Properties of a schema whose arguments are converted on a worker.
const MOST_PROPERTIES: usize = 1000;
/// Nodes of a schema that is compiled on a worker.
const SMALL: u64 = 100;

/// Arguments with the types of the schema, not yet validated.
#[derive(Debug)]
pub struct Converted {
    /// An object.
    pub(super) args: Value,
    pub(super) unknown: Vec<Unknown>,
}

/// A validator, and which parts of the schema it doesn't have.
pub(super) struct Built {
    pub validator: Validator,
    /// What was left out, and why, in words.
    pub left_out: Vec<String>,
}

impl Schema {
    /// Whether [`Schema::convert`] takes so little time that a worker may do it, for arguments of
    /// an ordinary size.
    pub fn is_small(&self) -> bool {
        self.properties.len() <= MOST_PROPERTIES
    }

    /// Whether [`Schema::check`] takes so little time that a worker may do it.
    pub fn is_cheap(&self, converted: &Converted) -> bool {
        let compiled = match self.validator.get() {
            Some(None) => return true,
            Some(Some(_)) => true,
            None => steps::nodes(&self.value) <= SMALL,
        };
        compiled && !steps::exceed(&self.value, &converted.args, steps::CHEAP)
    }

    /// Validates. A validation can't be interrupted, so one that would take too long isn't begun.
    pub fn check(&self, converted: Converted) -> Result<Prepared, Unfit> {
        let Some(validator) = self.validator() else {
            return Ok(converted.into_prepared());
        };
        if steps::exceed(&self.value, &converted.args, steps::MOST) {
            return Err(Unfit {
                name: "arguments".to_owned(),
                what: "too costly to check against the tool's schema: send fewer values".to_owned(),
                missing: false,
                unknown: false,
            });
        }
        if let Err(error) = validator.validate(&converted.args) {
            return Err(self.with_likely_name(unfit(&error), &converted.unknown));
        }
        Ok(converted.into_prepared())
    }

    /// None where arguments aren't validated.
    fn validator(&self) -> Option<&Validator> {
        if self.value.is_null() {
            return None;
        }
        let build = || {
            let built = build(&self.value).ok()?;
            for what in &built.left_out {
                tracing::warn!("a schema is used without {what}");
            }
            Some(built.validator)
        };
        self.validator.get_or_init(build).as_ref()
    }
}

impl Converted {
    fn into_prepared(self) -> Prepared {
        Prepared {
            args: match self.args {
                Value::Object(args) => args,
                _ => Map::new(),
            },
            unknown: self.unknown,
        }
    }
}

fn options() -> ValidationOptions<'static> {
    let patterns = PatternOptions::fancy_regex();
    let patterns = patterns
        .size_limit(LARGEST_PATTERN)
        .dfa_size_limit(LARGEST_PATTERN)
        .backtrack_limit(MOST_BACKTRACKS as usize);
    jsonschema::options().with_pattern_options(patterns)
}

/// Patterns in the wild are written for other engines. One that this engine can't compile is left
/// out, and must not disable the rest of the validation.
pub(super) fn build(schema: &Value) -> Result<Built, String> {
    let error = match options().build(schema) {
        Ok(validator) => {
            let left_out = Vec::new();
            return Ok(Built {
                validator,
                left_out,
            });
        }
        Err(error) => error.masked().to_string(),
    };
    let (mut usable, mut left_out) = (schema.clone(), Vec::new());
    remove_unusable(&mut usable, "", &mut left_out);
    if left_out.is_empty() {
        return Err(error);
    }
    match options().build(&usable) {
        Ok(validator) => Ok(Built {
            validator,
            left_out,
        }),
        Err(_) => Err(error),
    }
}

/// Removes the patterns of a schema that can't be compiled.
fn remove_unusable(schema: &mut Value, place: &str, left_out: &mut Vec<String>) {
    let Value::Object(keywords) = schema else {
        return;
    };
    let is_unusable = |pattern: &str| options().build(&json!({"pattern": pattern})).is_err();
    let shown = |pattern: &str| {
        let pattern = text::clip_chars(pattern, LONGEST_SHOWN).replace(char::is_control, " ");
        let place = if place.is_empty() { "its top" } else { place };
        format!("'{pattern}' of {place}, which can't be compiled")
    };
    if let Some(Value::String(pattern)) = keywords.get("pattern")
        && is_unusable(pattern)
    {
        left_out.push(format!("the pattern {}", shown(pattern)));
        keywords.shift_remove("pattern");
    }
    if let Some(Value::Object(patterns)) = keywords.get_mut("patternProperties") {
        let before = patterns.len();
        patterns.retain(|pattern, _| {
            let unusable = is_unusable(pattern);
            if unusable {
                left_out.push(format!("the pattern of names {}", shown(pattern)));
            }
            !unusable
        });
        if patterns.len() < before {
            // Which names are additional isn't known without the pattern.
            keywords.shift_remove("additionalProperties");
            keywords.shift_remove("unevaluatedProperties");
        }
    }
    for (keyword, sub) in keywords.iter_mut() {
        let below = |name: &str| match place {
            "" => name.to_owned(),
            place => format!("{place}.{name}"),
        };
        match (keyword.as_str(), sub) {
            // Values, and no schemas.
            ("const" | "enum" | "default" | "examples" | "example", _) => {}
            (
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
                | "dependencies",
                Value::Object(subs),
            ) => {
                for (name, sub) in subs.iter_mut() {
                    remove_unusable(sub, &below(name), left_out);
                }
            }
            (_, Value::Array(subs)) => {
                let subs = subs.iter_mut();
                subs.for_each(|sub| remove_unusable(sub, place, left_out));
            }
            (_, sub) => remove_unusable(sub, place, left_out),
        }
    }
}

pub(super) fn unfit(error: &jsonschema::ValidationError<'_>) -> Unfit {
    let path = error.instance_path().to_string();
    let path = path.trim_start_matches('/').replace('/', ".");
    let below = |name: &str| match path.as_str() {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    match error.kind() {
        ValidationErrorKind::Required { property } => Unfit {
            name: below(property.as_str().unwrap_or_default()),
            what: "is required".to_owned(),
            missing: true,
            unknown: false,
        },
        ValidationErrorKind::AdditionalProperties { unexpected } => Unfit {
            name: below(unexpected.first().map_or("", String::as_str)),
            what: "is not known to this tool".to_owned(),
            missing: false,
            unknown: path.is_empty(),
        },
        _ => Unfit {
            name: if path.is_empty() {
                "arguments".to_owned()
            } else {
                path
            },
            what: error.masked().to_string(),
            missing: false,
            unknown: false,
        },
    }
}
