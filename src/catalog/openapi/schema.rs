//! Converts OpenAPI schemas to self-contained JSON Schema. Each referenced schema is copied to
//! `$defs` once, however often and however deeply it refers to itself.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Map, Value, json};

use super::document::Document;

/// Bytes of one tool's schema. What exceeds it is replaced by a schema that accepts anything.
const MOST_DEFINITIONS: usize = 200;
const LARGEST_DEFINITIONS: usize = 256 << 10;

/// Levels of `allOf` within `allOf`.
const DEEPEST: usize = 32;
const DEEPEST_PARTS: usize = 4;
const MOST_PARTS: usize = 64;

/// Keywords that a JSON Schema validator ignores or reads differently.
const DROPPED: [&str; 8] = [
    "example",
    "examples",
    "xml",
    "externalDocs",
    "discriminator",
    "readOnly",
    "writeOnly",
    "nullable",
];
const TYPES: [&str; 7] = [
    "string", "number", "integer", "boolean", "array", "object", "null",
];

pub(super) struct Converter<'d> {
    document: &'d Document,
    /// The name in `$defs` of each reference.
    names: HashMap<String, Named>,
    queue: VecDeque<String>,
    /// The depth of the definition under conversion; None for an argument itself.
    level: Option<usize>,
    /// References in `allOf` of definitions so far.
    parts: usize,
    /// Bytes written in place so far.
    pub weight: usize,
}

#[derive(Clone)]
struct Named {
    name: String,
    /// The number of `allOf`s on the way to it.
    level: usize,
}

/// The fields of an object, `allOf` parts included.
#[derive(Default)]
pub(super) struct Fields {
    pub properties: Vec<(String, Value)>,
    places: HashMap<String, usize>,
    pub required: HashSet<String>,
    /// `anyOf` and `oneOf` that only list required fields.
    pub together: Vec<Value>,
}

impl<'d> Converter<'d> {
    pub fn new(document: &'d Document) -> Self {
        Converter {
            document,
            names: HashMap::new(),
            queue: VecDeque::new(),
            level: None,
            parts: 0,
            weight: 0,
        }
    }

    /// The schema of one argument. A reference is replaced by its target, so that listings show the
    /// type.
    pub fn property(&mut self, schema: Option<&Value>) -> Map<String, Value> {
        let Some(schema) = schema else {
            return Map::new();
        };
        let mut made = match self.document.resolve(schema) {
            // Past the limit anything is accepted.
            Ok(target) if self.weight < LARGEST_DEFINITIONS => {
                self.weight += weight(target);
                self.convert(target)
            }
            _ => json!({}),
        };
        // Keywords next to a reference count too.
        if let (Some(made), Some(description)) = (made.as_object_mut(), schema.get("description")) {
            made.insert("description".into(), description.clone());
        }
        match made {
            Value::Object(made) => made,
            _ => Map::new(),
        }
    }

    /// None for anything but an object with fields: then the body is one argument.
    pub fn flatten(&self, schema: &Value) -> Option<Fields> {
        let mut fields = Fields::default();
        let mut seen = HashSet::new();
        let found = self.collect(schema, &mut fields, &mut seen, 0);
        (found && !fields.properties.is_empty()).then_some(fields)
    }

    fn collect(
        &self,
        schema: &Value,
        fields: &mut Fields,
        seen: &mut HashSet<String>,
        depth: usize,
    ) -> bool {
        if depth > DEEPEST {
            return false;
        }
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str)
            && !seen.insert(reference.to_owned())
        {
            return true;
        }
        let Ok(target) = self.document.resolve(schema) else {
            return false;
        };
        let own = target["properties"].as_object();
        let parts = target["allOf"].as_array();
        let mut found = own.is_some();
        for (name, property) in own.into_iter().flatten() {
            if self.is_read_only(property, &mut 64) {
                continue;
            }
            match fields.places.get(name) {
                Some(place) => fields.properties[*place].1 = property.clone(),
                None => {
                    fields.places.insert(name.clone(), fields.properties.len());
                    fields.properties.push((name.clone(), property.clone()));
                }
            }
        }
        let required = target["required"].as_array().into_iter().flatten();
        fields
            .required
            .extend(required.filter_map(|name| name.as_str().map(str::to_owned)));
        for part in parts.into_iter().flatten() {
            found |= self.collect(part, fields, seen, depth + 1);
        }
        for key in ["anyOf", "oneOf"] {
            let Some(choices) = target[key].as_array() else {
                continue;
            };
            let plain = |key: &String| matches!(key.as_str(), "required" | "title" | "description");
            let only_required = |choice: &Value| {
                let choice = choice.as_object();
                choice.is_some_and(|choice| {
                    choice.contains_key("required") && choice.keys().all(plain)
                })
            };
            if choices.iter().all(only_required) {
                let choices = choices
                    .iter()
                    .map(|choice| json!({"required": choice["required"]}));
                let choices: Vec<Value> = choices.collect();
                fields.together.push(json!({key: choices}));
            } else if own.is_none() && parts.is_none() {
                return false;
            }
        }
        found
    }

    /// A schema whose references point into `$defs`.
    fn convert(&mut self, schema: &Value) -> Value {
        let Some(schema) = schema.as_object() else {
            return match schema {
                Value::Bool(truth) => json!(truth),
                _ => json!({}),
            };
        };
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            return match self.name(reference, self.level.unwrap_or(0)) {
                Some(name) => json!({"$ref": format!("#/$defs/{name}")}),
                None => json!({}),
            };
        }
        let nullable = schema.get("nullable").is_some_and(|truth| truth == true);
        let mut made = Map::new();
        for (key, value) in schema {
            if DROPPED.contains(&key.as_str())
                || (key.starts_with("x-") && !key.starts_with("x-ati"))
            {
                continue;
            }
            if let Some(value) = self.keyword(key, value, schema) {
                made.insert(key.clone(), value);
            }
        }
        bounds(schema, &mut made);
        if schema.get("type").is_some_and(|kind| kind == "file") {
            made.insert("type".into(), json!("string"));
            made.insert("x-ati-file".into(), json!(true));
        }
        if nullable {
            allow_null(&mut made);
        }
        Value::Object(made)
    }

    fn keyword(&mut self, key: &str, value: &Value, schema: &Map<String, Value>) -> Option<Value> {
        Some(match (key, value) {
            ("properties" | "patternProperties" | "dependentSchemas", Value::Object(map)) => {
                let mut made = Map::new();
                for (name, property) in map {
                    if !self.is_read_only(property, &mut 64) {
                        made.insert(name.clone(), self.convert(property));
                    }
                }
                Value::Object(made)
            }
            // Nested choices multiply with every level of an argument, and the caller chooses the
            // argument.
            ("anyOf" | "oneOf" | "not" | "if" | "then" | "else", value)
                if self.level.is_some() && has_reference(value) =>
            {
                return None;
            }
            ("allOf", Value::Array(list)) if self.level.is_some() => {
                let parts: Vec<Value> = list.iter().filter_map(|item| self.part(item)).collect();
                if parts.is_empty() {
                    return None;
                }
                Value::Array(parts)
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(list))
                if !list.is_empty() =>
            {
                Value::Array(list.iter().map(|item| self.convert(item)).collect())
            }
            (
                "items"
                | "additionalProperties"
                | "not"
                | "contains"
                | "propertyNames"
                | "if"
                | "then"
                | "else"
                | "unevaluatedProperties"
                | "unevaluatedItems",
                value @ (Value::Object(_) | Value::Bool(_)),
            ) => self.convert(value),
            ("required", Value::Array(names)) => {
                // A read-only field can't be sent, so it can't be required.
                let read_only = |name: &Value| {
                    let property = schema.get("properties")?.get(name.as_str()?)?;
                    Some(self.is_read_only(property, &mut 64))
                };
                let kept: Vec<Value> = names
                    .iter()
                    .filter(|name| name.is_string() && read_only(name) != Some(true))
                    .cloned()
                    .collect();
                if kept.is_empty() {
                    return None;
                }
                Value::Array(kept)
            }
            ("type", Value::String(kind)) if TYPES.contains(&kind.as_str()) => value.clone(),
            ("type", Value::Array(_)) => value.clone(),
            ("enum", Value::Array(list)) if !list.is_empty() => {
                Value::Array(list.iter().map(|item| of_type(item, schema)).collect())
            }
            (
                "description" | "title" | "format" | "pattern" | "contentMediaType"
                | "contentEncoding",
                Value::String(_),
            ) => value.clone(),
            ("default" | "const", _) => value.clone(),
            (
                "minimum" | "maximum" | "multipleOf" | "minLength" | "maxLength" | "minItems"
                | "maxItems" | "minProperties" | "maxProperties" | "exclusiveMinimum"
                | "exclusiveMaximum",
                Value::Number(_),
            ) => value.clone(),
            ("uniqueItems" | "deprecated", Value::Bool(_)) => value.clone(),
            (key, _) if key.starts_with("x-ati") => value.clone(),
            _ => return None,
        })
    }

    /// Set on the schema itself, on its reference's target, or on a part of its `allOf`.
    fn is_read_only(&self, property: &Value, steps: &mut usize) -> bool {
        let Some(left) = steps.checked_sub(1) else {
            return false;
        };
        *steps = left;
        let Ok(plain) = self.document.resolve(property) else {
            return false;
        };
        let mut parts = plain["allOf"].as_array().into_iter().flatten();
        property["readOnly"] == true
            || plain["readOnly"] == true
            || parts.any(|part| self.is_read_only(part, steps))
    }

    /// One part of a definition's `allOf`. Levels and parts are limited, because a part is visited
    /// once for every path to it.
    fn part(&mut self, item: &Value) -> Option<Value> {
        let Some(reference) = item.get("$ref").and_then(Value::as_str) else {
            return Some(self.convert(item));
        };
        let level = self.level.unwrap_or(0) + 1;
        let known = self.names.get(reference).map(|known| known.level);
        self.parts += 1;
        if level > DEEPEST_PARTS
            || self.parts > MOST_PARTS
            || known.is_some_and(|known| known < level)
        {
            return None;
        }
        let name = self.name(reference, level)?;
        Some(json!({"$ref": format!("#/$defs/{name}")}))
    }

    /// The name in `$defs` of a reference.
    fn name(&mut self, reference: &str, level: usize) -> Option<String> {
        if let Some(known) = self.names.get(reference) {
            return Some(known.name.clone());
        }
        self.document.find(reference).ok()?;
        if self.names.len() >= MOST_DEFINITIONS {
            return None;
        }
        let last = reference.rsplit('/').next().unwrap_or_default();
        let plain: String = last
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        let mut name = plain.clone();
        let mut number = 1;
        while self.names.values().any(|known| known.name == name) {
            number += 1;
            name = format!("{plain}_{number}");
        }
        let named = Named {
            name: name.clone(),
            level,
        };
        self.names.insert(reference.to_owned(), named);
        self.queue.push_back(reference.to_owned());
        Some(name)
    }

    /// The definitions: everything referenced, directly or through others.
    pub fn definitions(mut self) -> Map<String, Value> {
        let mut made = Map::new();
        let mut size = 0;
        while let Some(reference) = self.queue.pop_front() {
            self.level = self.names.get(&reference).map(|known| known.level);
            let target = self.document.find(&reference).map(Cow::Borrowed);
            let schema = match target {
                Ok(target) if size < LARGEST_DEFINITIONS => self.convert(&target),
                _ => json!({}),
            };
            size += weight(&schema);
            if let Some(known) = self.names.get(&reference) {
                made.insert(known.name.clone(), schema);
            }
        }
        made
    }
}

fn has_reference(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.contains_key("$ref") || map.values().any(has_reference),
        Value::Array(list) => list.iter().any(has_reference),
        _ => false,
    }
}

/// An enum value of its schema's type: YAML reads `1` as a number even where `type` is string.
fn of_type(item: &Value, schema: &Map<String, Value>) -> Value {
    match (schema.get("type").and_then(Value::as_str), item) {
        (Some("string"), Value::Number(_) | Value::Bool(_)) => Value::String(item.to_string()),
        (Some("integer" | "number"), Value::String(text)) => match serde_json::from_str(text) {
            Ok(number @ Value::Number(_)) => number,
            _ => item.clone(),
        },
        _ => item.clone(),
    }
}

/// The approximate size of a value's text, without writing it.
fn weight(value: &Value) -> usize {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| key.len() + 4 + weight(value))
            .sum(),
        Value::Array(list) => list.iter().map(|item| 1 + weight(item)).sum(),
        Value::String(text) => text.len() + 2,
        _ => 4,
    }
}

/// 3.0 has `exclusiveMinimum: true` next to `minimum`.
fn bounds(schema: &Map<String, Value>, made: &mut Map<String, Value>) {
    for (bound, exclusive) in [
        ("minimum", "exclusiveMinimum"),
        ("maximum", "exclusiveMaximum"),
    ] {
        if schema.get(exclusive).is_some_and(|truth| truth == true)
            && let Some(value) = made.shift_remove(bound)
        {
            made.insert(exclusive.to_owned(), value);
        }
    }
}

fn allow_null(schema: &mut Map<String, Value>) {
    match schema.get_mut("type") {
        Some(kind @ Value::String(_)) => *kind = json!([kind.clone(), "null"]),
        Some(Value::Array(kinds)) if !kinds.iter().any(|kind| kind == "null") => {
            kinds.push(json!("null"));
        }
        _ => {}
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
}
