//! A tool as `ati tool` shows it, from this machine or from a proxy: one shape for both.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::catalog::Tool;
use crate::catalog::mcp::Mcp;
use crate::cli::output;

/// Characters of a description in the rows of a list.
const LONGEST_DESCRIPTION: usize = 120;
/// Characters of it in tables and lines.
const LONGEST_CELL: usize = 80;

/// What an older proxy doesn't tell is None or empty.
pub struct Described<'a> {
    name: &'a str,
    provider: &'a str,
    provider_description: &'a str,
    handler: Option<&'a str>,
    /// How an MCP server is reached.
    transport: Option<&'a str>,
    method: Cow<'a, str>,
    endpoint: &'a str,
    /// A proxy keeps it to itself.
    base_url: Option<&'a str>,
    description: &'a str,
    scope: Option<&'a str>,
    category: Option<&'a str>,
    tags: Vec<&'a str>,
    hint: Option<&'a str>,
    pub skills: Vec<&'a str>,
    input_schema: &'a Value,
    examples: &'a [Value],
    /// What it does, as far as that is known.
    effects: Option<ShownEffects<'a>>,
    /// How it is used together with others.
    patterns: &'a [Value],
    /// The program behind the tool. A proxy keeps it to itself.
    command: Option<&'a str>,
    /// What the program says about itself, where it was asked.
    pub help_text: Option<String>,
}

struct ShownEffects<'a> {
    effects: Value,
    /// Who says so.
    source: &'a str,
    /// The names of those that no one says, and that ati has concluded.
    inferred: Vec<&'a str>,
}

impl<'a> From<&'a Tool> for Described<'a> {
    fn from(tool: &'a Tool) -> Self {
        let provider = &tool.provider;
        Described {
            name: &tool.name,
            provider: &provider.name,
            provider_description: &provider.description,
            handler: Some(provider.handler_name()),
            transport: provider.mcp().map(Mcp::transport_name),
            method: tool.invocation.listed_method().as_str().into(),
            endpoint: tool.invocation.listed_endpoint(),
            base_url: Some(provider.base_url().map_or("", |url| url.text.as_str())),
            description: &tool.description,
            scope: tool.scope.as_deref(),
            category: tool.category(),
            tags: tool.tags.iter().map(String::as_str).collect(),
            hint: tool.hint.as_deref(),
            skills: provider.skills.iter().map(String::as_str).collect(),
            input_schema: tool.input_schema(),
            examples: &tool.examples,
            patterns: tool.patterns(),
            effects: tool.shown_effects().map(|known| ShownEffects {
                effects: json!(known.effects),
                source: known.source.name(),
                inferred: known.inferred_names(),
            }),
            command: provider.cli().map(|cli| cli.command.as_str()),
            help_text: None,
        }
    }
}

impl<'a> Described<'a> {
    /// From an item of `/tools`, or from the answer of `/tools/{name}`. None where it has no name.
    pub fn from_answer(answer: &'a Value) -> Option<Self> {
        let text = |key: &str| answer[key].as_str();
        let list = |key: &str| {
            answer[key]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default()
        };
        let texts = |key: &str| list(key).iter().filter_map(Value::as_str).collect();
        Some(Described {
            name: text("name")?,
            provider: text("provider").unwrap_or_default(),
            provider_description: text("provider_description").unwrap_or_default(),
            handler: text("handler"),
            transport: text("transport"),
            method: text("method").unwrap_or_default().to_uppercase().into(),
            endpoint: text("endpoint").unwrap_or_default(),
            base_url: None,
            description: text("description").unwrap_or_default(),
            scope: text("scope"),
            category: text("category"),
            tags: texts("tags"),
            hint: text("hint"),
            skills: texts("skills"),
            input_schema: &answer["input_schema"],
            examples: list("examples"),
            patterns: list("patterns"),
            effects: answer["effects"].is_object().then(|| ShownEffects {
                effects: answer["effects"].clone(),
                source: text("effects_source").unwrap_or_default(),
                inferred: texts("effects_inferred"),
            }),
            command: None,
            help_text: None,
        })
    }

    /// A row of `ati tool list`.
    pub fn list_row(&self) -> Value {
        json!({
            "description": shortened(self.description, LONGEST_DESCRIPTION),
            "method": self.method,
            "name": self.name,
            "provider": self.provider,
            "scope": self.scope,
            "tool": self.name,
        })
    }

    /// A row of `ati tool search`.
    pub fn search_row(&self) -> Value {
        json!({
            "category": self.category,
            "description": shortened(self.description, LONGEST_DESCRIPTION),
            "handler": self.handler,
            "name": self.name,
            "provider": self.provider,
            "tags": self.tags,
            "tool": self.name,
        })
    }

    /// The cells under DESCRIPTION, PROVIDER, TOOL.
    pub fn cells(&self) -> Vec<String> {
        vec![
            shortened(self.description, LONGEST_CELL).into_owned(),
            self.provider.to_owned(),
            self.name.to_owned(),
        ]
    }

    /// One line: name, provider, the beginning of the description.
    pub fn line(&self) -> String {
        let description = shortened(self.description, LONGEST_CELL);
        let line = format!("{:<40} {:<15} {description}", self.name, self.provider);
        output::printable(line.trim_end())
    }

    pub fn info(&self) -> Value {
        let mut info = json!({
            "base_url": self.base_url,
            "category": self.category,
            "description": self.description,
            "endpoint": self.endpoint,
            "handler": self.handler,
            "hint": self.hint,
            "input_schema": self.input_schema,
            "method": self.method,
            "name": self.name,
            "provider": self.provider,
            "scope": self.scope,
            "skills": self.skills,
            "tags": self.tags,
        });
        if let Some(known) = &self.effects {
            info["effects"] = known.effects.clone();
            info["effects_source"] = json!(known.source);
            if !known.inferred.is_empty() {
                info["effects_inferred"] = json!(known.inferred);
            }
        }
        if !self.patterns.is_empty() {
            info["patterns"] = json!(self.patterns);
        }
        if let Some(text) = &self.help_text {
            info["help_text"] = json!(text);
        }
        info
    }

    /// Whether the tool is a program, which gets words in place of named arguments.
    fn is_program(&self) -> bool {
        self.handler == Some("cli")
    }

    pub fn print(&self) {
        let line = |label: &str, text: &str| {
            if !text.is_empty() {
                output::line(&format!("{:<13}{text}", format!("{label}:")));
            }
        };
        line("Tool", self.name);
        line(
            "Provider",
            &match self.provider_description {
                "" => self.provider.to_owned(),
                description => format!("{} ({description})", self.provider),
            },
        );
        line("Handler", self.handler.unwrap_or_default());
        match self.transport {
            Some(transport) => line("Transport", &format!("MCP ({transport})")),
            None if self.is_program() => line("Command", self.command.unwrap_or_default()),
            None if self.handler == Some("atip") => {
                let command = self.command.unwrap_or(self.provider);
                line("Command", format!("{command} {}", self.endpoint).trim_end());
            }
            None if matches!(self.handler, Some("cmp" | "runfile")) => {
                line("Command", self.endpoint);
            }
            None => {
                let base = self.base_url.unwrap_or_default().trim_end_matches('/');
                let url = format!("{base}{}", self.endpoint);
                // A file tool has none.
                if !url.is_empty() {
                    line("Endpoint", &format!("{} {url}", self.method));
                }
            }
        }
        line("Description", self.description);
        line("Scope", self.scope.unwrap_or("(none)"));
        line("Category", self.category.unwrap_or_default());
        line("Tags", &self.tags.join(", "));
        line("Hint", self.hint.unwrap_or_default());
        line("Skills", &self.skills.join(", "));
        if let Some(known) = &self.effects {
            let mut who = match known.source {
                "inferred" => "inferred".to_owned(),
                source => format!("declared by: {source}"),
            };
            if !known.inferred.is_empty() {
                who += &format!("; inferred: {}", known.inferred.join(", "));
            }
            line("Effects", &format!("{} ({who})", known.effects));
        }
        if !self.input_schema.is_null() {
            output::line("\nInput Schema:");
            output::pretty(self.input_schema);
        }
        if let Some(text) = &self.help_text {
            output::line("\nCLI Usage (from --help):");
            output::line(text);
        }
        if !self.examples.is_empty() {
            output::line("\nExamples:");
            for example in self.examples {
                let text = example
                    .as_str()
                    .map_or_else(|| example.to_string(), str::to_owned);
                output::line(&format!("  {text}"));
            }
        }
        if !self.patterns.is_empty() {
            output::line("\nPatterns:");
            self.patterns.iter().for_each(print_pattern);
        }
        output::line("\nUsage:");
        output::line(&self.usage());
    }

    /// An example command with every required argument; with all of them where none is required.
    fn usage(&self) -> String {
        let required: Vec<&str> = self.input_schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let all = self.input_schema["properties"].as_object();
        let names = || all.into_iter().flat_map(|all| all.keys());
        let any_required = names().any(|name| required.contains(&name.as_str()));
        let mut usage = format!("  ati run {}", self.name);
        if self.is_program() {
            usage += " -- <args>...";
        }
        for name in names().filter(|name| !any_required || required.contains(&name.as_str())) {
            usage += &format!(" --{name} <{name}>");
        }
        usage
    }
}

/// A name with what it is for, and a line for each step.
fn print_pattern(pattern: &Value) {
    let text = |value: &Value| output::printable(value.as_str().unwrap_or_default());
    let line = format!(
        "  {}: {}",
        text(&pattern["name"]),
        text(&pattern["description"])
    );
    output::line(line.trim_end_matches([':', ' ']));
    for step in pattern["steps"].as_array().into_iter().flatten() {
        output::line(&format!("    {}", text(&step["command"])));
    }
}

/// At most `most` characters. A text that is cut ends with an ellipsis, which counts too.
fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => text.into(),
        Some(_) => {
            let kept = crate::text::clip_chars(text, most - 1);
            format!("{}…", kept.trim_end()).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_is_cut_to_characters_with_the_ellipsis_among_them() {
        let exact = "ü".repeat(120);
        assert_eq!(shortened(&exact, 120), exact);
        let cut = shortened(&"ü".repeat(121), 120).into_owned();
        assert_eq!((cut.chars().count(), cut.chars().last()), (120, Some('…')));
    }

    #[test]
    fn answer_of_an_older_proxy_is_shown_as_far_as_it_goes() {
        let answer = json!({"name": "a:b", "provider": "a", "method": "Get", "tags": ["x"]});
        let row = Described::from_answer(&answer).unwrap().list_row();
        assert_eq!(
            row,
            json!({"description": "", "method": "GET", "name": "a:b", "provider": "a", "scope": null, "tool": "a:b"})
        );
        let row = Described::from_answer(&answer).unwrap().search_row();
        assert_eq!(
            (&row["category"], &row["tags"]),
            (&Value::Null, &json!(["x"]))
        );
        assert!(Described::from_answer(&json!({"provider": "a"})).is_none());
        assert!(Described::from_answer(&json!("a:b")).is_none());
    }

    #[test]
    fn usage_has_the_required_arguments_or_all_where_none_is_required() {
        let usage = |schema: Value| {
            let answer = json!({"name": "t", "input_schema": schema});
            Described::from_answer(&answer).unwrap().usage()
        };
        let properties = json!({"q": {}, "max": {}});
        assert_eq!(
            usage(json!({"properties": properties, "required": ["q", "absent"]})),
            "  ati run t --q <q>"
        );
        assert_eq!(
            usage(json!({"properties": properties})),
            "  ati run t --q <q> --max <max>"
        );
        assert_eq!(usage(Value::Null), "  ati run t");
    }
}
