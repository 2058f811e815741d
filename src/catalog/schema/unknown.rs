//! Arguments that a schema doesn't have: mistakes of spelling, with the name that was meant.

use std::fmt;

use serde_json::{Map, Value};

use super::{Schema, Unfit, fold};
use crate::config;
use crate::text;

/// How many of them are named.
const MOST: usize = 3;
/// Properties that a name is compared with: a suggestion must not cost more than the call.
const MOST_COMPARED: usize = 500;
/// Characters of a name that are repeated.
const LONGEST: usize = 60;

/// An argument that the schema doesn't have.
#[derive(Debug, PartialEq, Eq)]
pub struct Unknown {
    name: String,
    nearest: Option<String>,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = text::clip_chars(&self.name, LONGEST);
        write!(f, "unknown argument '{name}'")?;
        match &self.nearest {
            Some(nearest) => write!(f, "; did you mean '{nearest}'?"),
            None => Ok(()),
        }
    }
}

impl Schema {
    /// None of a schema that doesn't name every argument.
    pub(super) fn unknown(&self, args: &Map<String, Value>) -> Vec<Unknown> {
        if !self.complete {
            return Vec::new();
        }
        args.keys()
            .filter(|name| self.property(name).is_none())
            .take(MOST)
            .map(|name| Unknown {
                name: name.clone(),
                nearest: self.nearest(name).map(str::to_owned),
            })
            .collect()
    }

    /// A missing argument may have been given under another name.
    pub(super) fn with_likely_name(&self, mut unfit: Unfit, unknown: &[Unknown]) -> Unfit {
        if unfit.missing && !unknown.is_empty() && self.property(&unfit.name).is_some() {
            let given: Vec<String> = unknown.iter().map(ToString::to_string).collect();
            unfit.what += &format!(" ({})", given.join(", "));
        } else if unfit.unknown
            && let Some(nearest) = self.nearest(&unfit.name)
        {
            unfit.what += &format!("; did you mean '{nearest}'?");
        }
        unfit
    }

    fn nearest(&self, name: &str) -> Option<&str> {
        if self.properties.len() > MOST_COMPARED {
            return None;
        }
        let folded = fold(text::clip_chars(name, LONGEST));
        let known: Vec<String> = self
            .properties
            .iter()
            .map(|property| fold(&property.name))
            .collect();
        let candidates: Vec<&str> = known.iter().map(String::as_str).collect();
        let nearest = config::nearest(&folded, &candidates)?;
        let place = known.iter().position(|one| one == nearest)?;
        Some(&self.properties[place].name)
    }
}

/// Whether a schema lists its arguments in one place and says nothing about further ones.
pub(super) fn names_every_argument(schema: &Value) -> bool {
    let holds_more = |part: &Value| {
        ["properties", "patternProperties", "$ref"]
            .iter()
            .any(|key| part.get(key).is_some())
    };
    let has_properties = schema["properties"]
        .as_object()
        .is_some_and(|properties| !properties.is_empty());
    let is_open = schema
        .get("additionalProperties")
        .is_some_and(|said| *said != Value::Bool(false));
    let in_parts = ["allOf", "anyOf", "oneOf"].iter().any(|key| {
        let parts = schema[*key].as_array();
        parts.is_some_and(|parts| parts.iter().any(holds_more))
    });
    let conditional = ["$ref", "patternProperties", "if", "dependentSchemas"]
        .iter()
        .any(|key| schema.get(key).is_some());
    has_properties && !is_open && !in_parts && !conditional
}
