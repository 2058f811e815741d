//! An argument or an option of an ATIP command.

use serde_json::{Map, Value, json};

use crate::catalog::json_reader::{Findings, Object};

#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    pub name: String,
    pub kind: Kind,
    pub description: String,
    pub required: bool,
    pub default: Option<Value>,
    /// It may be given several times.
    pub variadic: bool,
    pub choices: Vec<Value>,
    /// Of an option: at least one. An argument has none.
    pub flags: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    String,
    Integer,
    Number,
    Boolean,
    File,
    Directory,
    Url,
    Enum,
    Array,
}

const KINDS: &[(&str, Kind)] = &[
    ("string", Kind::String),
    ("integer", Kind::Integer),
    ("number", Kind::Number),
    ("boolean", Kind::Boolean),
    ("file", Kind::File),
    ("directory", Kind::Directory),
    ("url", Kind::Url),
    ("enum", Kind::Enum),
    ("array", Kind::Array),
];

impl Parameter {
    pub fn read_argument(mut o: Object<'_>, strict: bool, found: &mut Findings) -> Option<Self> {
        let argument = Parameter::read(&mut o, true, strict, found);
        o.finish(found);
        argument
    }

    pub fn read_option(mut o: Object<'_>, strict: bool, found: &mut Findings) -> Option<Self> {
        let mut option = Parameter::read(&mut o, false, strict, found);
        let flags = o.texts("flags", found);
        // Variables are set by `[provider.atip_env]`, and not by callers.
        o.text("envVar", found);
        let place = o.place("flags");
        if flags.is_empty() {
            found.problem(&place, "an option needs at least one flag");
            option = None;
        }
        for flag in flags.iter().filter(|flag| !is_flag(flag)) {
            let message = format!("'{flag}' is no flag: one begins with '-', and is one word");
            found.problem(&place, message);
            option = None;
        }
        o.finish(found);
        option.map(|option| Parameter { flags, ..option })
    }

    fn read(
        o: &mut Object<'_>,
        required: bool,
        strict: bool,
        found: &mut Findings,
    ) -> Option<Self> {
        let name = o.needed_text("name", found)?;
        let kind = match o.text("type", found) {
            // Documents of the first version often leave it out.
            None => {
                if strict {
                    found.warning(&o.place("type"), "it is missing; 'string' is assumed");
                }
                Kind::String
            }
            Some(text) => match KINDS.iter().find(|(name, _)| *name == text) {
                Some((_, kind)) => *kind,
                None => {
                    let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
                    let message = format!("'{text}' is none of {}", names.join(", "));
                    found.problem(&o.place("type"), message);
                    return None;
                }
            },
        };
        let description = o.text("description", found).unwrap_or_default();
        if strict && description.is_empty() {
            found.warning(&o.place("description"), "it is missing");
        }
        let choices = o.items("enum", found).to_vec();
        if kind == Kind::Enum && choices.is_empty() {
            found.problem(&o.place("enum"), "the values of an enum are missing");
            return None;
        }
        Some(Parameter {
            name,
            kind,
            description,
            required: o.flag("required", found).unwrap_or(required),
            default: o.get("default").cloned(),
            variadic: o.flag("variadic", found).unwrap_or(false),
            choices,
            flags: Vec::new(),
        })
    }

    /// Whether it takes a list.
    pub fn is_list(&self) -> bool {
        self.variadic || self.kind == Kind::Array
    }

    /// The JSON Schema of its value.
    pub fn schema(&self) -> Value {
        let mut one = Map::new();
        match self.kind {
            Kind::String | Kind::Array => one.insert("type".into(), "string".into()),
            Kind::Integer => one.insert("type".into(), "integer".into()),
            Kind::Number => one.insert("type".into(), "number".into()),
            Kind::Boolean => one.insert("type".into(), "boolean".into()),
            Kind::File | Kind::Directory | Kind::Url => {
                let format = match self.kind {
                    Kind::File => "file-path",
                    Kind::Directory => "directory-path",
                    _ => "uri",
                };
                one.insert("format".into(), format.into());
                one.insert("type".into(), "string".into())
            }
            Kind::Enum if self.choices.iter().all(Value::is_string) => {
                one.insert("type".into(), "string".into())
            }
            Kind::Enum => None,
        };
        if !self.choices.is_empty() {
            one.insert("enum".into(), self.choices.clone().into());
        }
        let mut schema = match self.is_list() {
            true => json!({"type": "array", "items": one}),
            false => Value::Object(one),
        };
        if !self.description.is_empty() {
            schema["description"] = json!(self.description);
        }
        if let Some(default) = &self.default {
            schema["default"] = default.clone();
        }
        schema
    }

    /// The flag that is used: the first long one, or else the first.
    pub fn flag(&self) -> &str {
        let long = self.flags.iter().find(|flag| flag.starts_with("--"));
        long.or(self.flags.first()).map_or("", String::as_str)
    }
}

/// `-s`, `--state`, `-state`.
fn is_flag(flag: &str) -> bool {
    let name = flag.trim_start_matches('-');
    flag.starts_with('-')
        && !name.is_empty()
        && !flag.contains(|c: char| c.is_whitespace() || c.is_control() || c == '=')
}
