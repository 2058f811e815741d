//! `ati tool export`: the tools that a caller may use, described for agents of other conventions.

use serde_json::{Map, Value, json};

use crate::catalog::Tool;
use crate::cli::agent;

/// A tool as far as it is known: from this machine or from a proxy.
pub struct Exported {
    pub name: String,
    pub description: String,
    pub input_schema: Value,
    /// An ATIP object, where effects are known.
    pub effects: Option<Value>,
    pub examples: Vec<Value>,
}

impl From<&Tool> for Exported {
    fn from(tool: &Tool) -> Self {
        Exported {
            name: tool.name.clone(),
            description: tool.description.clone(),
            input_schema: tool.input_schema().clone(),
            effects: tool.known_effects().map(|known| json!(known.effects)),
            examples: tool.examples.clone(),
        }
    }
}

impl Exported {
    /// From an item of `/tools`. None where it has no name.
    pub fn from_answer(answer: &Value) -> Option<Self> {
        Some(Exported {
            name: answer["name"].as_str()?.to_owned(),
            description: answer["description"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            input_schema: answer["input_schema"].clone(),
            effects: Some(answer["effects"].clone()).filter(Value::is_object),
            examples: answer["examples"].as_array().cloned().unwrap_or_default(),
        })
    }

    /// A command below `ati run`.
    fn command(&self) -> Value {
        let description = match self.description.lines().next().unwrap_or_default() {
            "" => &self.name,
            line => line,
        };
        let mut command = json!({"description": description});
        let options = self.options();
        if !options.is_empty() {
            command["options"] = options.into();
        }
        if let Some(effects) = &self.effects {
            command["effects"] = effects.clone();
        }
        let texts = self.examples.iter().filter(|example| example.is_string());
        let texts: Vec<Value> = texts.cloned().collect();
        if !texts.is_empty() {
            command["examples"] = texts.into();
        }
        command
    }

    fn options(&self) -> Vec<Value> {
        let schema = &self.input_schema;
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let properties = schema["properties"].as_object().into_iter().flatten();
        properties
            .filter(|(name, _)| !name.contains(|c: char| c.is_whitespace() || c == '='))
            .map(|(name, property)| option(name, property, required.contains(&name.as_str())))
            .collect()
    }
}

fn option(name: &str, property: &Value, required: bool) -> Value {
    let kind = property["type"].as_str().unwrap_or("string");
    let choices = property["enum"].as_array().filter(|list| !list.is_empty());
    let kind = match (kind, property["format"].as_str()) {
        _ if choices.is_some() => "enum",
        ("integer" | "number" | "boolean" | "array", _) => kind,
        ("string", Some("uri")) => "url",
        ("string", Some("file-path")) => "file",
        ("string", Some("directory-path")) => "directory",
        // An object is given as its JSON text.
        _ => "string",
    };
    let description = property["description"].as_str().unwrap_or(name);
    let mut option = json!({
        "name": name,
        "flags": [format!("--{name}")],
        "type": kind,
        "description": description,
        "required": required,
    });
    if let Some(choices) = choices {
        option["enum"] = choices.clone().into();
    }
    if !property["default"].is_null() {
        option["default"] = property["default"].clone();
    }
    option
}

/// One document: each tool is a command below `ati run`.
pub fn atip(tools: impl IntoIterator<Item = Exported>) -> Value {
    let mut commands = Map::new();
    for tool in tools {
        commands.insert(tool.name.clone(), tool.command());
    }
    agent::of_tools(commands)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::catalog::atip::metadata::Metadata;
    use crate::catalog::json_reader::Findings;

    #[test]
    fn tools_become_valid_commands_with_their_effects() {
        let catalog = Catalog::from_text(
            "[provider]\nname = 'p'\nbase_url = 'http://h'\n\
             [[tools]]\nname = 'p:wipe'\nmethod = 'DELETE'\ndescription = 'Wipes'\n\
             [tools.input_schema]\ntype = 'object'\nrequired = ['id']\n\
             properties = {id = {type = 'integer'}, how = {enum = ['a', 'b']}, deep = {type = 'object'}}",
        );
        let document = atip(
            catalog
                .tools()
                .iter()
                .map(|tool| Exported::from(tool.as_ref())),
        );
        let mut found = Findings::default();
        let metadata = Metadata::read(&document, &mut found).unwrap();
        assert!(found.is_empty(), "{found:?}");
        assert_eq!(metadata.commands[0].path, ["run", "p:wipe"]);
        assert_eq!(metadata.commands[0].effects.destructive, Some(true));
        let shown = &document["commands"]["run"]["commands"]["p:wipe"];
        let options = shown["options"].as_array().unwrap();
        let kind = |name: &str| {
            let option = options
                .iter()
                .find(|option| option["name"] == name)
                .unwrap();
            (option["type"].as_str().unwrap(), option["required"] == true)
        };
        assert_eq!(kind("id"), ("integer", true));
        assert_eq!(kind("how"), ("enum", false));
        assert_eq!(kind("deep"), ("string", false));
    }
}
