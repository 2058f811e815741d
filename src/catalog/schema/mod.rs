//! A tool's `input_schema`: the arguments' names, where each goes, and their validation.

mod coerce;
mod digits;
mod partial;
mod steps;
mod style;
mod types;
mod unknown;
mod validation;

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use jsonschema::Validator;
use serde_json::{Map, Value};

pub use style::{Form, Style};
pub use types::Types;
pub use unknown::Unknown;
pub use validation::Converted;

use super::words::Words;
use coerce::Wanted;

#[derive(Debug, Default)]
pub struct Schema {
    /// As the manifest has it, for listings.
    pub value: Value,
    pub properties: Vec<Property>,
    by_name: HashMap<String, usize>,
    by_folded: HashMap<String, usize>,
    pub body: Body,
    /// Whether properties say where arguments go. Without that, all go to the query or to the body.
    pub located: bool,
    /// The schema names every argument, so a name that it doesn't have is probably a mistake.
    complete: bool,
    /// Compiled at its first use, once. None where the schema can't be compiled.
    validator: OnceLock<Option<Validator>>,
}

#[derive(Debug)]
pub struct Property {
    pub name: String,
    wanted: Wanted,
    default: Option<Value>,
    pub location: Option<Location>,
    pub style: Style,
    pub required: bool,
    /// `x-ati-name`: its name in the request, where it differs.
    wire_name: Option<String>,
    /// `x-ati-file`: a file part of a multipart form.
    pub file: bool,
    /// `x-ati-part-type`: the content type of its part.
    pub part_type: Option<String>,
}

/// `x-ati-param-location`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    Path,
    Query,
    Header,
    Cookie,
    Body,
}

/// How the body is made: `x-ati-body-encoding`, `x-ati-body-type`, `x-ati-body-argument`.
#[derive(Debug, Default)]
pub struct Body {
    pub encoding: Encoding,
    pub media_type: Option<String>,
    /// The argument that is the whole body.
    pub argument: Option<String>,
    /// `x-ati-body-required`: without arguments an empty body is sent.
    pub required: bool,
    /// `x-ati-body-optional`: without arguments no body is sent.
    pub optional: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Encoding {
    #[default]
    Json,
    Form,
    Multipart,
    Raw,
}

/// Arguments that can be sent.
#[derive(Debug, PartialEq)]
pub struct Prepared {
    pub args: Map<String, Value>,
    /// Arguments that the schema doesn't have, and doesn't forbid either.
    pub unknown: Vec<Unknown>,
}

/// Why arguments are refused. Never quotes a value.
#[derive(Debug, PartialEq, Eq)]
pub struct Unfit {
    pub name: String,
    pub what: String,
    pub missing: bool,
    /// The schema forbids it.
    unknown: bool,
}

impl Schema {
    /// From an untrusted server: a schema too costly to validate against is listed, but arguments
    /// aren't validated.
    pub fn untrusted(value: Value) -> Self {
        let reasonable = super::cost::is_reasonable(&value);
        let schema = Schema::new(value);
        if !reasonable {
            let _ = schema.validator.set(None);
        }
        schema
    }

    pub fn new(value: Value) -> Self {
        let required: HashSet<&str> = value["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let properties: Vec<Property> = value["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, schema)| {
                Property::new(name, schema, required.contains(name.as_str()), &value)
            })
            .collect();
        let (mut by_name, mut by_folded) = (HashMap::new(), HashMap::new());
        for (place, property) in properties.iter().enumerate() {
            by_name.insert(property.name.clone(), place);
            by_folded.entry(fold(&property.name)).or_insert(place);
        }
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let marked = value.get("x-ati-param-location").is_some();
        Schema {
            by_name,
            by_folded,
            body: Body {
                encoding: match value["x-ati-body-encoding"].as_str() {
                    Some("form") => Encoding::Form,
                    Some("multipart") => Encoding::Multipart,
                    Some("raw") => Encoding::Raw,
                    _ => Encoding::Json,
                },
                media_type: text("x-ati-body-type"),
                argument: text("x-ati-body-argument"),
                required: value["x-ati-body-required"] == true,
                optional: value["x-ati-body-optional"] == true,
            },
            located: marked
                || properties
                    .iter()
                    .any(|property| property.location.is_some()),
            complete: unknown::names_every_argument(&value),
            properties,
            value,
            validator: OnceLock::new(),
        }
    }

    pub fn property(&self, name: &str) -> Option<&Property> {
        self.by_name.get(name).map(|place| &self.properties[*place])
    }

    /// Compiles it, and says what about it can't be used.
    pub fn faults(&self) -> Vec<String> {
        if self.value.is_null() {
            return Vec::new();
        }
        let (validator, faults) = match validation::build(&self.value) {
            Ok(built) => {
                let without = |what| format!("arguments are checked without {what}");
                let left_out = built.left_out.into_iter().map(without);
                (Some(built.validator), left_out.collect())
            }
            Err(fault) => (None, vec![format!("arguments are not checked: {fault}")]),
        };
        let _ = self.validator.set(validator);
        faults
    }

    /// Converts, then validates.
    pub fn prepare(&self, args: Map<String, Value>, words: &Words<'_>) -> Result<Prepared, Unfit> {
        self.check(self.convert(args, words)?)
    }

    /// Resolves names, and nothing else: for a tool that reads its arguments itself.
    pub fn resolve_names(&self, args: Map<String, Value>) -> Prepared {
        let (args, _) = self.rename(args);
        let unknown = self.unknown(&args);
        Prepared { args, unknown }
    }

    /// Resolves names, fills in defaults and converts types. `words` are those of a command line,
    /// where the arguments come from one. Takes time with the number of arguments and properties,
    /// and not more.
    pub fn convert(&self, args: Map<String, Value>, words: &Words<'_>) -> Result<Converted, Unfit> {
        let (mut args, renamed) = self.rename(args);
        let in_body = |property: &Property| property.location == Some(Location::Body);
        let no_body = self.body.optional
            && !self
                .properties
                .iter()
                .any(|property| in_body(property) && args.contains_key(&property.name));
        for property in &self.properties {
            match args.get_mut(&property.name) {
                Some(value) => {
                    let old = renamed.iter().find(|(new, _)| *new == property.name);
                    let name = old.map_or(&property.name, |(_, old)| old);
                    let given = std::mem::take(value);
                    *value = property.convert(given, name, words)?;
                }
                None if no_body && in_body(property) => {}
                None => {
                    if let Some(default) = &property.default {
                        args.insert(property.name.clone(), default.clone());
                    }
                }
            }
        }
        let unknown = self.unknown(&args);
        Ok(Converted {
            args: Value::Object(args),
            unknown,
        })
    }

    /// The place of the property that a name stands for.
    fn meant(&self, name: &str) -> Option<usize> {
        let exact = self.by_name.get(name);
        exact.or_else(|| self.by_folded.get(&fold(name))).copied()
    }

    /// Whether it has an argument of this name, in any spelling.
    pub fn has(&self, name: &str) -> bool {
        self.meant(name).is_some()
    }

    /// Gives an argument the name of the property that differs from it only by case, `-` and `_`.
    /// Also gives the new and the old name of each.
    fn rename(&self, args: Map<String, Value>) -> (Map<String, Value>, Vec<(String, String)>) {
        let mut changes = Vec::new();
        if args.keys().all(|name| self.property(name).is_some()) {
            return (args, changes);
        }
        // Taken names: given exactly, or matched by an earlier argument.
        let mut taken: Vec<bool> = self
            .properties
            .iter()
            .map(|property| args.contains_key(&property.name))
            .collect();
        let mut renamed = Map::with_capacity(args.len());
        for (name, value) in args {
            let meant = match self.property(&name) {
                Some(_) => None,
                None => self
                    .by_folded
                    .get(&fold(&name))
                    .filter(|place| !taken[**place]),
            };
            let name = match meant {
                Some(place) => {
                    taken[*place] = true;
                    let new = &self.properties[*place].name;
                    changes.push((new.clone(), name));
                    new.clone()
                }
                None => name,
            };
            renamed.insert(name, value);
        }
        (renamed, changes)
    }
}

impl Property {
    /// `root` is the whole schema, which references point into.
    fn new(name: &str, schema: &Value, required: bool, root: &Value) -> Self {
        let location = match schema["x-ati-param-location"].as_str() {
            Some("path") => Some(Location::Path),
            Some("query") => Some(Location::Query),
            Some("cookie") => Some(Location::Cookie),
            Some("header") => Some(Location::Header),
            Some("body") => Some(Location::Body),
            _ => None,
        };
        let says_something = |default: &&Value| match default {
            Value::Null => false,
            Value::Array(list) => !list.is_empty(),
            Value::Object(map) => !map.is_empty(),
            _ => true,
        };
        let mut property = Property {
            name: name.to_owned(),
            wanted: Wanted {
                types: Types::of(schema, root),
                items: types::items(schema, root)
                    .map(|items| Types::of(items, root))
                    .unwrap_or_default(),
            },
            default: schema.get("default").filter(says_something).cloned(),
            location,
            style: Style::new(schema),
            required,
            wire_name: schema["x-ati-name"].as_str().map(str::to_owned),
            file: schema["x-ati-file"] == true,
            part_type: schema["x-ati-part-type"].as_str().map(str::to_owned),
        };
        if let Some(default) = property.default.take() {
            let converted = property.wanted.of_json(default.clone(), None);
            property.default = Some(converted.unwrap_or(default));
        }
        property
    }

    /// Its name in the request.
    pub fn wire_name(&self) -> &str {
        self.wire_name.as_deref().unwrap_or(&self.name)
    }

    /// The types of its value.
    pub fn types(&self) -> Types {
        self.wanted.types
    }

    /// The types of the items, where its value may be a list.
    pub fn item_types(&self) -> Types {
        self.wanted.items
    }

    /// Gives a value the type of the schema. `name` is the caller's spelling.
    fn convert(&self, value: Value, name: &str, words: &Words<'_>) -> Result<Value, Unfit> {
        let typed = if self.wanted.types.is_any() {
            None
        } else {
            words.typed(name, &value)
        };
        let converted = match typed {
            Some(values) => self.wanted.of_words(values),
            None => self.wanted.of_json(value, None),
        };
        converted.map_err(|what| Unfit {
            name: self.name.clone(),
            what,
            missing: false,
            unknown: false,
        })
    }
}

/// A name without case, `-` and `_`.
pub fn fold(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, '-' | '_'))
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests;
