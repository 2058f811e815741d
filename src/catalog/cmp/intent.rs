//! One intent of a CMP tool: how a person says it, the command that does it, its parameters.

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value, json};

use super::template::Template;
use crate::catalog::json_reader::{Findings, Object};

/// What begins a pattern that is a regular expression.
const EXPRESSION: &str = "re:";
/// Bytes of a compiled expression: those of documents can be made to grow.
const LARGEST_EXPRESSION: usize = 256 << 10;

#[derive(Debug)]
pub struct Intent {
    /// As people say it, the plain ones.
    pub patterns: Vec<String>,
    pub expressions: Vec<Regex>,
    pub command: Template,
    pub parameters: Vec<Parameter>,
    /// What the program prints, as a JSON Schema.
    pub returns: Option<Value>,
    pub confirm: bool,
    pub destructive: bool,
    pub idempotent: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    pub name: String,
    pub kind: Kind,
    pub required: bool,
    pub default: Option<Value>,
    pub description: Option<String>,
    pub choices: Option<Vec<Value>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    String,
    Integer,
    Number,
    Boolean,
    Object,
    Strings,
    Integers,
    /// A list of anything.
    List,
}

impl Kind {
    const NAMES: [(&'static str, Kind); 8] = [
        ("string", Kind::String),
        ("integer", Kind::Integer),
        ("boolean", Kind::Boolean),
        ("array<string>", Kind::Strings),
        ("array<integer>", Kind::Integers),
        // Not in the specification, and used all the same.
        ("number", Kind::Number),
        ("object", Kind::Object),
        ("array", Kind::List),
    ];

    fn named(name: &str) -> Option<Self> {
        let plain: String = name.chars().filter(|c| !c.is_whitespace()).collect();
        let mut all = Self::NAMES.iter();
        all.find(|(known, _)| known.eq_ignore_ascii_case(&plain))
            .map(|(_, kind)| *kind)
    }

    fn schema(self) -> Map<String, Value> {
        let schema = match self {
            Kind::String => json!({"type": "string"}),
            Kind::Integer => json!({"type": "integer"}),
            Kind::Number => json!({"type": "number"}),
            Kind::Boolean => json!({"type": "boolean"}),
            Kind::Object => json!({"type": "object"}),
            Kind::Strings => json!({"type": "array", "items": {"type": "string"}}),
            Kind::Integers => json!({"type": "array", "items": {"type": "integer"}}),
            Kind::List => json!({"type": "array"}),
        };
        match schema {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }

    /// Whether its values are numbers or truth values, which can't be taken for options.
    pub fn is_text(self) -> bool {
        matches!(
            self,
            Kind::String | Kind::Strings | Kind::List | Kind::Object
        )
    }
}

impl Intent {
    /// None where it can't be used, which is noted.
    pub fn read(mut o: Object<'_>, wraps: Option<&str>, found: &mut Findings) -> Option<Self> {
        let before = found.problems.len();
        let (mut patterns, mut expressions) = (Vec::new(), Vec::new());
        let place = o.place("patterns");
        for (index, pattern) in o.texts("patterns", found).into_iter().enumerate() {
            let place = format!("{place}[{index}]");
            match pattern.strip_prefix(EXPRESSION) {
                None if pattern.trim().is_empty() => found.warning(&place, "it is empty"),
                None => patterns.push(pattern),
                Some(text) => match expression(text) {
                    Ok(expression) => expressions.push(expression),
                    Err(e) => {
                        // Its last line is the reason, the others draw the place.
                        let text = e.to_string();
                        let why = text.lines().last().unwrap_or_default();
                        let why = why.trim_start_matches("error: ");
                        found.warning(&place, format!("no regular expression: {why}"));
                    }
                },
            }
        }
        if patterns.is_empty() && expressions.is_empty() {
            found.warning(&place, "there is none, so that no search finds it");
        }
        let mut parameters = Vec::new();
        if let Some(list) = o.object("params", found) {
            for (name, value) in list.members() {
                let place = list.place(name);
                parameters.extend(Parameter::read(name, value, &place, found));
            }
        }
        let place = o.place("command");
        let command = o.needed_text("command", found)?;
        let command = match Template::parse(&command, wraps) {
            Ok(template) => template,
            Err(why) => {
                found.problem(&place, why.to_string());
                return None;
            }
        };
        for warning in command.warnings() {
            found.warning(&place, warning);
        }
        for name in command.placeholders() {
            if !parameters.iter().any(|known| known.name == name) {
                let message =
                    format!("{{{name}}} is no parameter; it is taken for a required text");
                found.warning(&place, message);
                parameters.push(Parameter {
                    name: name.to_owned(),
                    kind: Kind::String,
                    required: true,
                    default: None,
                    description: None,
                    choices: None,
                });
            }
        }
        for parameter in &parameters {
            if !command.placeholders().any(|name| name == parameter.name) {
                let message = format!("the command doesn't use the parameter '{}'", parameter.name);
                found.warning(&place, message);
            }
        }
        let intent = Intent {
            patterns,
            expressions,
            command,
            parameters,
            returns: o.get("returns").cloned(),
            confirm: o.flag("confirm", found).unwrap_or(false),
            destructive: o.flag("destructive", found).unwrap_or(false),
            idempotent: o.flag("idempotent", found).unwrap_or(true),
        };
        o.get("description");
        o.finish(found);
        (found.problems.len() == before).then_some(intent)
    }

    /// The schema of its arguments.
    pub fn schema(&self) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for parameter in &self.parameters {
            let mut schema = parameter.kind.schema();
            if let Some(text) = &parameter.description {
                schema.insert("description".to_owned(), text.as_str().into());
            }
            if let Some(default) = &parameter.default {
                schema.insert("default".to_owned(), default.clone());
            }
            if let Some(choices) = &parameter.choices {
                let key = "enum".to_owned();
                match schema.get_mut("items").and_then(Value::as_object_mut) {
                    Some(items) => items.insert(key, choices.clone().into()),
                    None => schema.insert(key, choices.clone().into()),
                };
            }
            if parameter.required {
                required.push(Value::from(parameter.name.as_str()));
            }
            properties.insert(parameter.name.clone(), schema.into());
        }
        let mut schema = json!({"type": "object", "properties": properties});
        if !required.is_empty() {
            schema["required"] = required.into();
        }
        schema
    }

    pub fn has_patterns(&self) -> bool {
        !self.patterns.is_empty() || !self.expressions.is_empty()
    }

    /// Whether a query says this intent: a plain pattern in it, or an expression that it fits.
    pub fn is_meant_by(&self, query: &str) -> bool {
        let query = query.to_lowercase();
        let said = |pattern: &String| query.contains(&pattern.trim().to_lowercase());
        self.patterns.iter().any(said)
            || self.expressions.iter().any(|known| known.is_match(&query))
    }
}

fn expression(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text)
        .case_insensitive(true)
        .size_limit(LARGEST_EXPRESSION)
        .build()
}

impl Parameter {
    fn read(name: &str, value: &Value, place: &str, found: &mut Findings) -> Option<Self> {
        if !super::is_placeholder_name(name) {
            let message = "a name has letters, digits, '_' and '-', and begins with no digit";
            found.problem(place, message);
            return None;
        }
        let mut o = Object::open(value, place, found)?;
        let kind = match o.text("type", found) {
            None => Kind::String,
            Some(text) => Kind::named(&text).unwrap_or_else(|| {
                let known: Vec<&str> = Kind::NAMES.iter().map(|(name, _)| *name).collect();
                let message = format!("unknown type '{text}'; known are {}", known.join(", "));
                found.problem(&o.place("type"), message);
                Kind::String
            }),
        };
        let choices = o.get("enum").is_some();
        let choices = choices.then(|| o.items("enum", found).to_vec());
        let parameter = Parameter {
            name: name.to_owned(),
            kind,
            required: o.flag("required", found).unwrap_or(false),
            default: o.get("default").cloned(),
            description: o.text("description", found),
            choices,
        };
        o.finish(found);
        Some(parameter)
    }
}
