//! The usage card that `--help` after a tool's name prints: its arguments, and an example.

use std::fmt::Write as _;

use serde_json::Value;

use super::files;
use crate::catalog::files::FileOperation;
use crate::catalog::schema::{Property, Schema, Types};
use crate::catalog::{Invocation, Tool, words};
use crate::cli::output::printable;
use crate::text::clip_chars;

/// Characters of a description, and values of a choice, that are shown.
const LONGEST: usize = 300;
const LONGEST_ABOUT: usize = 2000;
const MOST_CHOICES: usize = 12;
/// Arguments of a tool in a list of tools.
const MOST_BRIEF: usize = 8;
/// Columns of the names before the notes.
const WIDEST: usize = 32;

/// What a card is made of.
struct Card<'a> {
    name: &'a str,
    description: &'a str,
    hint: &'a str,
    schema: &'a Schema,
    examples: &'a [Value],
}

/// What a command line has in place of a file tool's own arguments.
struct ForFiles {
    schema: Schema,
    examples: [Value; 1],
}

impl ForFiles {
    fn new(operation: FileOperation, schema: &Value) -> Self {
        ForFiles {
            schema: Schema::new(files::on_command_line(operation, schema)),
            examples: [files::example(operation)],
        }
    }
}

/// None where `--help` is the tool's own: its schema has it, or it is a program.
pub fn of_tool(tool: &Tool) -> Option<String> {
    if tool.invocation.is_program() || tool.schema.has("help") {
        return None;
    }
    let files = match &tool.invocation {
        Invocation::Files(operation) => Some(ForFiles::new(*operation, tool.input_schema())),
        _ => None,
    };
    let card = Card {
        name: &tool.name,
        description: &tool.description,
        hint: tool.hint.as_deref().unwrap_or_default(),
        schema: files.as_ref().map_or(&tool.schema, |files| &files.schema),
        examples: files
            .as_ref()
            .map_or(&tool.examples[..], |files| &files.examples),
    };
    Some(card.text())
}

/// Whether `GET /tools/{name}` describes a program.
pub fn is_program(described: &Value) -> bool {
    described["handler"] == "cli"
}

/// As [`of_tool`], of what `GET /tools/{name}` says.
pub fn of_remote(described: &Value) -> Option<String> {
    let schema = Schema::new(described["input_schema"].clone());
    if is_program(described) || schema.has("help") {
        return None;
    }
    let text = |key: &str| described[key].as_str().unwrap_or_default();
    let examples = described["examples"].as_array();
    let files = files::operation(text("name"));
    let files = files.map(|operation| ForFiles::new(operation, &described["input_schema"]));
    let card = Card {
        name: text("name"),
        description: text("description"),
        hint: text("hint"),
        schema: files.as_ref().map_or(&schema, |files| &files.schema),
        examples: match &files {
            Some(files) => &files.examples,
            None => examples.map(Vec::as_slice).unwrap_or_default(),
        },
    };
    Some(card.text())
}

/// The line to type and the arguments, for a list of tools.
pub fn brief(tool: &Tool) -> String {
    match tool.invocation.is_program() {
        true => format!("ati run {} <words of the program>", printable(&tool.name)),
        false => brief_of(&tool.name, tool.input_schema()),
    }
}

/// The same, of a tool that another machine has.
pub fn brief_of(name: &str, input_schema: &Value) -> String {
    let files = files::operation(name);
    let schema = match files {
        Some(operation) => Schema::new(files::on_command_line(operation, input_schema)),
        None => Schema::new(input_schema.clone()),
    };
    let card = Card {
        name,
        description: "",
        hint: "",
        schema: &schema,
        examples: &[],
    };
    let mut text = card.usage();
    let (required, optional): (Vec<_>, Vec<_>) =
        schema.properties.iter().partition(|one| one.required);
    let all = required.into_iter().chain(optional);
    for property in all.take(MOST_BRIEF) {
        let _ = write!(text, "\n{}", card.line(property));
    }
    text
}

impl Card<'_> {
    fn text(&self) -> String {
        let mut card = printable(self.name);
        for text in [self.description, self.hint] {
            let text = one_line(text, LONGEST_ABOUT);
            if !text.is_empty() {
                let _ = write!(card, "\n{text}");
            }
        }
        let _ = write!(card, "\n\nUsage:\n  {}", self.usage());
        card += "\n\nArguments:";
        let all = &self.schema.properties;
        if all.is_empty() {
            card += "\n  The tool describes none. --name value is sent as it is.";
        }
        let (required, optional): (Vec<_>, Vec<_>) = all.iter().partition(|one| one.required);
        for property in required.into_iter().chain(optional) {
            let _ = write!(card, "\n{}", self.line(property));
        }
        card += "\n\nExample:";
        for example in self.shown_examples() {
            let _ = write!(card, "\n  {example}");
        }
        card
    }

    fn usage(&self) -> String {
        let mut usage = format!("ati run {}", printable(self.name));
        let mut optional = self.schema.properties.is_empty();
        for property in &self.schema.properties {
            if property.required {
                let _ = write!(usage, " {}", flag(property));
            } else {
                optional = true;
            }
        }
        if optional {
            usage += " [--NAME VALUE]...";
        }
        usage
    }

    /// `  --query <string>   required; The words to look for; one of a, b`
    fn line(&self, property: &Property) -> String {
        let schema = self.described(property);
        let mut notes: Vec<String> = Vec::new();
        if property.required {
            notes.push("required".to_owned());
        }
        let description = schema["description"].as_str().unwrap_or_default();
        let description = one_line(description, LONGEST);
        notes.extend(Some(description).filter(|text| !text.is_empty()));
        if let Some(choices) = choices(schema) {
            notes.push(format!("one of {choices}"));
        }
        for (key, word) in [("minimum", "at least"), ("maximum", "at most")] {
            if schema[key].is_number() {
                notes.push(format!("{word} {}", schema[key]));
            }
        }
        if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
            notes.push(format!("default {}", shown(default)));
        }
        if property.types().has(Types::ARRAY) {
            notes.push("repeat it for several".to_owned());
        }
        let line = format!("  {:<WIDEST$}  {}", flag(property), notes.join("; "));
        line.trim_end().to_owned()
    }

    fn described(&self, property: &Property) -> &Value {
        &self.schema.value["properties"][&property.name]
    }

    /// The manifest's own examples, or one with every required argument.
    fn shown_examples(&self) -> Vec<String> {
        let own: Vec<String> = self
            .examples
            .iter()
            .filter_map(|example| Some(one_line(example.as_str()?, LONGEST)))
            .collect();
        if !own.is_empty() {
            return own;
        }
        let mut example = format!("ati run {}", quoted(&printable(self.name)));
        let all = &self.schema.properties;
        let required = all.iter().filter(|property| property.required);
        let first = all.iter().filter(|_| all.iter().all(|one| !one.required));
        for property in required.chain(first.take(1)) {
            let value = self.sample(property);
            let name = quoted(&format!("--{}", printable(&property.name)));
            let _ = write!(example, " {name} {}", quoted(&value));
        }
        vec![example]
    }

    fn sample(&self, property: &Property) -> String {
        let schema = self.described(property);
        let written = [
            schema.get("example"),
            schema["examples"].get(0),
            schema.get("default"),
            schema.get("const"),
            schema["enum"].get(0),
            schema["items"]["enum"].get(0),
        ];
        let written = written.into_iter().flatten().find(|one| !one.is_null());
        if let Some(value) = written {
            let text = shown(value);
            // What would be read as something else is written as a JSON string literal.
            let is_text = value.is_string() && !property.types().has(Types::STRING);
            return if is_text && words::read(&text) != *value {
                value.to_string()
            } else {
                text
            };
        }
        let types = property.types();
        let types = match types.has(Types::ARRAY) && !property.item_types().is_any() {
            true => property.item_types(),
            false => types,
        };
        let sample = match schema["format"].as_str() {
            Some("date") => "2026-01-31",
            Some("date-time") => "2026-01-31T12:00:00Z",
            Some("email") => "user@example.com",
            Some("uri" | "url") => "https://example.com/",
            Some("uuid") => "00000000-0000-4000-8000-000000000000",
            _ if types.is_any() || types.has(Types::STRING) => "text",
            _ if types.has(Types::INTEGER) => "1",
            _ if types.has(Types::NUMBER) => "1.5",
            _ if types.has(Types::BOOLEAN) => "true",
            _ if types.has(Types::OBJECT) => "{\"name\": \"value\"}",
            _ if types.has(Types::ARRAY) => "[1, 2]",
            _ => "null",
        };
        sample.to_owned()
    }
}

/// `--query <string>`; a list's type has dots behind it.
fn flag(property: &Property) -> String {
    let kind = |types: Types| {
        let names: Vec<&str> = types.names().filter(|name| *name != "null").collect();
        match names.as_slice() {
            [] => "value".to_owned(),
            names => names.join("|"),
        }
    };
    let name = printable(&property.name);
    if property.types().names().eq(["array"]) {
        format!("--{name} <{}>...", kind(property.item_types()))
    } else {
        format!("--{name} <{}>", kind(property.types()))
    }
}

fn choices(schema: &Value) -> Option<String> {
    let values = schema["enum"].as_array();
    let values = values.or_else(|| schema["items"]["enum"].as_array())?;
    let mut names: Vec<String> = values.iter().take(MOST_CHOICES).map(shown).collect();
    if values.len() > MOST_CHOICES {
        names.push("…".to_owned());
    }
    Some(names.join(", "))
}

/// A value on one line.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    one_line(&text, LONGEST)
}

/// Descriptions come from upstreams: they may have lines, and anything else.
fn one_line(text: &str, longest: usize) -> String {
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let kept = clip_chars(&joined, longest);
    let cut = if kept.len() < joined.len() { "…" } else { "" };
    printable(&format!("{kept}{cut}"))
}

/// A word for a shell.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn card_has_arguments_types_and_an_example() {
        let described = json!({
            "name": "shop:find", "description": "Find\nthings\u{1b}[31m", "hint": "be brief",
            "input_schema": {
                "type": "object",
                "required": ["query", "status"],
                "properties": {
                    "limit": {"type": "integer", "default": 10, "maximum": 50},
                    "query": {"type": "string", "description": "Words to look for"},
                    "status": {"type": "array", "items": {"type": "string", "enum": ["it's", "paid"]}},
                    "anything": {},
                },
            },
        });
        let card = of_remote(&described).unwrap();
        let expected = "\
shop:find
Find things [31m
be brief

Usage:
  ati run shop:find --query <string> --status <string>... [--NAME VALUE]...

Arguments:
  --query <string>                  required; Words to look for
  --status <string>...              required; one of it's, paid; repeat it for several
  --limit <integer>                 at most 50; default 10
  --anything <value>

Example:
  ati run shop:find --query text --status 'it'\\''s'";
        assert_eq!(card, expected);
    }

    #[test]
    fn help_of_a_tool_that_has_it_is_its_own() {
        let with = |schema: Value| of_remote(&json!({"name": "t", "input_schema": schema}));
        assert!(with(json!({"properties": {"help": {}}})).is_none());
        assert!(of_remote(&json!({"name": "t", "handler": "cli"})).is_none());
        let bare = with(Value::Null).unwrap();
        assert!(bare.contains("ati run t [--NAME VALUE]..."), "{bare}");
        assert!(bare.contains("The tool describes none"), "{bare}");
    }
}
