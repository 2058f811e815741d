//! From the arguments of a call to the words of a command line. There is no shell, and no value can
//! turn into a flag.

use serde_json::{Map, Value};

use super::metadata::Command;
use super::parameter::{Kind, Parameter};

/// The words that a command is called with.
#[derive(Debug, Clone)]
pub struct Argv {
    path: Vec<String>,
    arguments: Vec<Named>,
    options: Vec<Named>,
}

/// A parameter under the name that callers use.
#[derive(Debug, Clone)]
struct Named {
    name: String,
    parameter: Parameter,
}

/// A value that can't be given to the program.
#[derive(Debug, PartialEq, Eq)]
pub struct Unsendable {
    pub name: String,
    pub what: String,
}

impl Argv {
    /// Of a command with the options that all commands have.
    pub fn new(command: &Command, global_options: &[Parameter]) -> Self {
        let mut names: Vec<String> = Vec::new();
        let mut named = |parameter: &Parameter| {
            let mut name = parameter.name.clone();
            if names.contains(&name) {
                name += "_option";
            }
            if names.contains(&name) {
                return None;
            }
            names.push(name.clone());
            Some(Named {
                name,
                parameter: parameter.clone(),
            })
        };
        let arguments = command.arguments.iter().filter_map(&mut named).collect();
        let own = &command.options;
        let is_new = |global: &&Parameter| !own.iter().any(|own| own.name == global.name);
        let global = global_options.iter().filter(is_new);
        Argv {
            path: command.path.clone(),
            arguments,
            options: own.iter().chain(global).filter_map(&mut named).collect(),
        }
    }

    /// The JSON Schema of the arguments.
    pub fn schema(&self) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for Named { name, parameter } in self.arguments.iter().chain(&self.options) {
            properties.insert(name.clone(), parameter.schema());
            if parameter.required && parameter.default.is_none() {
                required.push(Value::from(name.as_str()));
            }
        }
        let mut schema = Map::new();
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), properties.into());
        if !required.is_empty() {
            schema.insert("required".into(), required.into());
        }
        schema.insert("additionalProperties".into(), false.into());
        Value::Object(schema)
    }

    /// The command's own words, and the arguments that stand for themselves: a program may take one
    /// of these for a word of its command, which it doesn't do with the value of an option.
    pub fn command_words(&self, args: &Map<String, Value>) -> Vec<String> {
        let given = |one: &Named| given(&one.parameter, args.get(&one.name)).map(texts);
        let positional = self.arguments.iter().filter_map(given).flatten();
        self.path.iter().cloned().chain(positional).collect()
    }

    /// The command's own words, then arguments in their order, then options. Where an argument
    /// begins with `-`, options come first, and arguments follow `--`.
    pub fn words(&self, args: &Map<String, Value>) -> Result<Vec<String>, Unsendable> {
        let mut positional = Vec::new();
        let mut skipped: Option<&str> = None;
        for Named { name, parameter } in &self.arguments {
            let Some(value) = given(parameter, args.get(name)) else {
                skipped = skipped.or(Some(name));
                continue;
            };
            if let Some(skipped) = skipped {
                // It would be taken for the one that is missing.
                return Err(Unsendable {
                    name: name.clone(),
                    what: format!("it can be given only together with '{skipped}'"),
                });
            }
            positional.extend(texts(value));
        }
        let mut options = Vec::new();
        for Named { name, parameter } in &self.options {
            if let Some(value) = given(parameter, args.get(name)) {
                push_option(&mut options, name, parameter, value)?;
            }
        }
        let mut words = self.path.clone();
        if positional.iter().any(|word| word.starts_with('-')) {
            words.extend(options);
            words.push("--".to_owned());
            words.extend(positional);
        } else {
            words.extend(positional);
            words.extend(options);
        }
        Ok(words)
    }
}

/// The value that has to be sent. The tool knows its own default. An argument can't be left out
/// where others follow it, so its default is sent.
fn given<'a>(parameter: &Parameter, value: Option<&'a Value>) -> Option<&'a Value> {
    let value = value.filter(|value| !value.is_null())?;
    let is_default = parameter.default.as_ref() == Some(value);
    (!is_default || parameter.flags.is_empty()).then_some(value)
}

fn push_option(
    words: &mut Vec<String>,
    name: &str,
    parameter: &Parameter,
    value: &Value,
) -> Result<(), Unsendable> {
    let flag = parameter.flag();
    if parameter.kind == Kind::Boolean && !parameter.is_list() {
        match value.as_bool() {
            Some(true) => words.push(flag.to_owned()),
            // Without a word it would be true.
            _ if parameter.default == Some(Value::Bool(true)) => {
                words.push(format!("{flag}=false"));
            }
            _ => {}
        }
        return Ok(());
    }
    for text in texts(value) {
        if !text.starts_with('-') {
            words.extend([flag.to_owned(), text]);
        } else if flag.len() > 2 {
            words.push(format!("{flag}={text}"));
        } else {
            return Err(Unsendable {
                name: name.to_owned(),
                what: format!("it can't begin with '-': the tool has only '{flag}' for it"),
            });
        }
    }
    Ok(())
}

/// A list is several words, everything else is one.
fn texts(value: &Value) -> Vec<String> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match value {
        Value::Array(items) => items.iter().map(text).collect(),
        one => vec![text(one)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::atip::metadata::Metadata;
    use crate::catalog::json_reader::Findings;
    use serde_json::json;

    fn argv(command: Value) -> Argv {
        let document = json!({
            "atip": "0.6", "name": "t", "version": "1", "description": "d",
            "commands": {"sub": {"description": "s", "commands": {"leaf": command}}},
            "globalOptions": [{"name": "verbose", "flags": ["-v"], "type": "boolean", "description": "v"}],
        });
        let mut found = Findings::default();
        let metadata = Metadata::read(&document, &mut found).unwrap();
        assert!(found.problems.is_empty(), "{found:?}");
        Argv::new(&metadata.commands[0], &metadata.global_options)
    }

    fn tool() -> Argv {
        argv(json!({
            "description": "l",
            "arguments": [
                {"name": "from", "type": "string"},
                {"name": "to", "type": "file", "variadic": true, "required": false},
            ],
            "options": [
                {"name": "state", "flags": ["-s", "--state"], "type": "enum", "enum": ["open", "-x"], "default": "open"},
                {"name": "draft", "flags": ["--draft"], "type": "boolean"},
                {"name": "color", "flags": ["--color"], "type": "boolean", "default": true},
                {"name": "n", "flags": ["-n"], "type": "integer"},
                {"name": "label", "flags": ["--label"], "type": "array"},
            ],
        }))
    }

    fn words(args: Value) -> Result<Vec<String>, Unsendable> {
        tool().words(args.as_object().unwrap())
    }

    #[test]
    fn words_are_path_then_arguments_then_options() {
        let got = words(json!({
            "label": ["a", "b"], "n": 5, "draft": true, "state": "open", "verbose": true,
            "from": "x y", "to": ["1", "2"], "color": true,
        }));
        let expected = [
            "sub", "leaf", "x y", "1", "2", "--draft", "-n", "5", "--label", "a", "--label", "b",
            "-v",
        ];
        assert_eq!(got.unwrap(), expected);
        let got = words(json!({"from": "x", "draft": false, "color": false}));
        assert_eq!(got.unwrap(), ["sub", "leaf", "x", "--color=false"]);
    }

    #[test]
    fn value_that_begins_with_a_dash_is_never_a_flag() {
        let got = words(json!({"from": "--help", "label": ["--x", "y"]}));
        let expected = ["sub", "leaf", "--label=--x", "--label", "y", "--", "--help"];
        assert_eq!(got.unwrap(), expected);
        let error = words(json!({"from": "x", "n": -5})).unwrap_err();
        assert_eq!(error.name, "n");
        assert!(error.what.contains("can't begin with '-'"));
    }

    #[test]
    fn argument_is_not_taken_for_the_one_before_it() {
        let error = words(json!({"to": ["a"]})).unwrap_err();
        assert_eq!(error.what, "it can be given only together with 'from'");
    }

    #[test]
    fn schema_has_every_argument_with_its_type() {
        assert_eq!(
            tool().schema(),
            json!({
                "type": "object",
                "properties": {
                    "from": {"type": "string"},
                    "to": {"type": "array", "items": {"type": "string", "format": "file-path"}},
                    "state": {"type": "string", "enum": ["open", "-x"], "default": "open"},
                    "draft": {"type": "boolean"},
                    "color": {"type": "boolean", "default": true},
                    "n": {"type": "integer"},
                    "label": {"type": "array", "items": {"type": "string"}},
                    "verbose": {"type": "boolean", "description": "v"},
                },
                "required": ["from"],
                "additionalProperties": false,
            })
        );
    }

    #[test]
    fn names_that_are_used_twice_stay_apart() {
        let twice = argv(json!({
            "description": "l",
            "arguments": [{"name": "id", "type": "string"}],
            "options": [{"name": "id", "flags": ["--id"], "type": "string"},
                        {"name": "verbose", "flags": ["--loud"], "type": "boolean"}],
        }));
        let args = json!({"id": "a", "id_option": "b", "verbose": true});
        let words = twice.words(args.as_object().unwrap()).unwrap();
        assert_eq!(words, ["sub", "leaf", "a", "--id", "b", "--loud"]);
    }
}
