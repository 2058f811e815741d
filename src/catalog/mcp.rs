//! MCP servers as manifests describe them, and the tools that they list.

pub mod param_headers;
pub mod relayed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::outbound::BaseUrl;
use crate::config::Section;
use crate::credential::Template;
use crate::egress;
use crate::process::RunAs;

/// Characters of `provider:tool`. A longer name is left out of the listing.
const LONGEST_NAME: usize = 128;
const LONGEST_DESCRIPTION: usize = 16 << 10;
/// A longer schema is replaced by `{"type": "object"}`.
const LONGEST_SCHEMA: usize = 256 << 10;

#[derive(Debug)]
pub struct Mcp {
    pub transport: Transport,
}

#[derive(Debug, Hash)]
pub enum Transport {
    /// A program that ati starts.
    Stdio {
        command: String,
        args: Vec<String>,
        env: Vec<(String, Template)>,
        /// The user that it runs as; ati's own where there is none.
        run_as: Option<RunAs>,
    },
    Http {
        url: BaseUrl,
        /// The variable in which a caller names another URL.
        url_env: Option<String>,
    },
}

impl Mcp {
    pub(super) fn read(s: &mut Section<'_>) -> Self {
        let url: String = s.take("mcp_url").unwrap_or_default();
        let kind: String = s
            .take("mcp_transport")
            .unwrap_or_else(|| "stdio".to_owned());
        let command: String = s.take("mcp_command").unwrap_or_default();
        let args = s.take("mcp_args").unwrap_or_default();
        let env: BTreeMap<String, String> = s.take("mcp_env").unwrap_or_default();
        let url_env: Option<String> = s.take("mcp_url_env");
        let env = env
            .into_iter()
            .map(|(name, value)| (name, Template::parse(&value)));
        let run_as: Option<String> = s.take("run_as");
        let run_as = run_as.and_then(|text| match RunAs::parse(&text) {
            Ok(_) if kind == "http" => {
                s.problem("run_as", "ati starts no program for mcp_transport = 'http'");
                None
            }
            Ok(run_as) => Some(run_as),
            Err(e) => {
                s.problem("run_as", e.to_string());
                None
            }
        });
        let transport = match kind.as_str() {
            "http" => Transport::Http {
                url: BaseUrl::with_keys(url),
                url_env,
            },
            _ => Transport::Stdio {
                command,
                args,
                env: env.collect(),
                run_as,
            },
        };
        if !matches!(kind.as_str(), "stdio" | "http") {
            s.problem("mcp_transport", "expected 'stdio' or 'http'");
        }
        Mcp { transport }
    }

    /// The field without which there is no server. Existing manifests load without it, so it is a
    /// warning.
    pub(super) fn lacks(&self) -> Option<&'static str> {
        match &self.transport {
            Transport::Stdio { command, .. } if command.is_empty() => Some("mcp_command"),
            Transport::Http { url, .. } if url.text.is_empty() => Some("mcp_url"),
            Transport::Stdio { .. } | Transport::Http { .. } => None,
        }
    }

    /// Names of the keyring entries in the URL or in the program's environment.
    pub(super) fn keys(&self) -> Vec<&str> {
        match &self.transport {
            Transport::Stdio { env, .. } => env.iter().flat_map(|(_, it)| it.keys()).collect(),
            Transport::Http { url, .. } => url.keys().collect(),
        }
    }

    /// The URL as the manifest has it, for messages.
    pub fn url_text(&self) -> &str {
        match &self.transport {
            Transport::Stdio { .. } => "",
            Transport::Http { url, .. } => &url.text,
        }
    }

    /// Host and port of the URL, for logs. A `${key}` in it stays as it is written.
    pub fn address(&self) -> String {
        address(self.url_text())
    }

    pub fn transport_name(&self) -> &'static str {
        match self.transport {
            Transport::Stdio { .. } => "stdio",
            Transport::Http { .. } => "http",
        }
    }
}

/// Host and port of a URL, without user, path and query, which could hold a credential. Also for
/// a text that becomes a URL once its `${key}`s are filled in.
pub fn address(url: &str) -> String {
    match egress::host_and_port(url) {
        Some(address) => address.into(),
        // The whole URL is a credential's.
        None => url
            .split(['/', '?', '#'])
            .next()
            .unwrap_or_default()
            .to_owned(),
    }
}

/// A server's list of its tools. The listing cache keeps it on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    /// Unix seconds.
    pub at: u64,
    /// The protocol revision of the session that listed them.
    pub protocol: String,
    pub tools: Vec<ListedTool>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListedTool {
    /// The name at the server.
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub input_schema: Value,
    /// The server says that a second call does no harm.
    #[serde(default)]
    pub repeatable: bool,
    #[serde(default)]
    pub details: Arc<ToolDetails>,
}

/// What a server says about a tool, for clients that speak MCP themselves.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolDetails {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Value>,
}

impl From<rmcp::model::Tool> for ListedTool {
    fn from(tool: rmcp::model::Tool) -> Self {
        let details = ToolDetails::of(&tool);
        let hints = tool.annotations.unwrap_or_default();
        let yes = |hint: Option<bool>| hint == Some(true);
        let mut schema = serde_json::to_value(&tool.input_schema).unwrap_or_default();
        clean_schema(&mut schema);
        let reasonable = schema.to_string().len() <= LONGEST_SCHEMA;
        ListedTool {
            name: tool.name.into_owned(),
            description: printable(&tool.description.unwrap_or_default()),
            input_schema: if reasonable {
                schema
            } else {
                json!({"type": "object"})
            },
            repeatable: yes(hints.read_only_hint) || yes(hints.idempotent_hint),
            details: Arc::new(details),
        }
    }
}

impl ToolDetails {
    fn of(tool: &rmcp::model::Tool) -> Self {
        let cleaned = |value: Value| {
            let mut value = value;
            clean_schema(&mut value);
            let told = value.as_object().is_some_and(|members| !members.is_empty());
            (told && value.to_string().len() <= LONGEST_SCHEMA).then_some(value)
        };
        let json = |value: Result<Value, _>| value.ok().and_then(cleaned);
        let output = tool.output_schema.as_ref();
        let annotations = tool.annotations.as_ref();
        ToolDetails {
            title: tool.title.as_deref().map(printable),
            output_schema: output.and_then(|schema| json(serde_json::to_value(schema))),
            annotations: annotations.and_then(|hints| json(serde_json::to_value(hints))),
        }
    }
}

/// By provider name.
pub type Listings = BTreeMap<String, Arc<Listing>>;

impl Listing {
    /// Each tool with its name in the catalogue. Of two with the same name the first stays.
    pub fn named(&self, provider: &str) -> Vec<(String, &ListedTool)> {
        let mut seen = BTreeSet::new();
        let mut named = Vec::new();
        for tool in &self.tools {
            let name = format!("{provider}:{}", safe_name(&tool.name));
            let fits = !tool.name.is_empty() && name.len() <= LONGEST_NAME;
            if fits && seen.insert(name.clone()) {
                named.push((name, tool));
            }
        }
        named
    }
}

/// Replaces characters that mean something in a path, a terminal or a scope.
pub(super) fn safe_name(name: &str) -> String {
    let safe = |c: char| match c {
        'A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '-' | '.' | '/' => c,
        _ => '_',
    };
    let name: String = name.chars().map(safe).collect();
    name.replace("..", "__")
}

/// A server's text without what a terminal or a model could act on, and a person doesn't see.
fn printable(text: &str) -> String {
    let end = text.floor_char_boundary(LONGEST_DESCRIPTION);
    text[..end].chars().filter(|c| is_visible(*c)).collect()
}

/// False for control characters, for characters without width, for marks that turn the direction
/// of text, and for tags and variation selectors, in which a whole text can be hidden.
fn is_visible(c: char) -> bool {
    let hidden = matches!(
        c,
        '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}'
            | '\u{e0100}'..='\u{e01ef}'
    );
    !hidden && (!c.is_control() || matches!(c, '\n' | '\t'))
}

/// The descriptions in a schema reach agents, too. Names of properties and what arguments are
/// compared with (`enum`, `pattern`) stay as they are: a call has to match them.
fn clean_schema(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                match (name.as_str(), member) {
                    ("title" | "description" | "$comment", Value::String(text)) => {
                        if !text.chars().all(is_visible) {
                            *text = printable(text);
                        }
                    }
                    (_, member) => clean_schema(member),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(clean_schema),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(names: &[&str]) -> Listing {
        let tool = |name: &&str| ListedTool {
            name: (*name).to_owned(),
            description: String::new(),
            input_schema: Value::Null,
            repeatable: false,
            details: Arc::default(),
        };
        Listing {
            at: 0,
            protocol: String::new(),
            tools: names.iter().map(tool).collect(),
        }
    }

    #[test]
    fn address_of_a_url_has_neither_user_nor_path() {
        for (url, expected) in [
            ("https://mcp.example.com/mcp?key=x", "mcp.example.com:443"),
            ("http://user:secret@h:8080/x@y", "h:8080"),
            ("http://[::1]:9/", "[::1]:9"),
            ("https://[::1]", "[::1]:443"),
            (
                "https://${tenant}.example.com/mcp",
                "${tenant}.example.com:443",
            ),
            ("${whole_url}/mcp", "${whole_url}"),
            ("HTTPS://h?q", "h:443"),
            ("", ""),
        ] {
            assert_eq!(address(url), expected, "{url}");
        }
    }

    #[test]
    fn tool_names_of_a_server_are_sanitised() {
        let long = "x".repeat(200);
        let listing = listing(&[
            "echo",
            "../../etc/passwd",
            "a b\u{1b}[31m",
            "a b",
            "a_b",
            "",
            &long,
            "ns/tool",
        ]);
        let named = listing.named("p");
        let names: Vec<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "p:echo",
                "p:__/__/etc/passwd",
                "p:a_b__31m",
                "p:a_b",
                "p:ns/tool"
            ]
        );
        // The server's own name is what it is called by.
        assert_eq!(named[1].1.name, "../../etc/passwd");
        assert_eq!(printable("a\u{1b}[0m\nb\r"), "a[0m\nb");
    }

    #[test]
    fn description_with_invisible_characters_reaches_agents_without_them() {
        let hidden: String = "obey"
            .chars()
            .map(|c| char::from_u32(0xe0000 + c as u32).unwrap())
            .collect();
        let text = |word: &str| {
            format!("{word}\u{202e}\u{2066}\u{200b}\u{200d}{hidden}\u{e007f}\u{e0161}\u{fe0f} ä\n")
        };
        let tool: rmcp::model::Tool = serde_json::from_value(json!({
            "name": format!("na{hidden}me"),
            "description": text("tool"),
            "inputSchema": {
                "type": "object",
                "title": text("title"),
                "properties": {
                    "description": {"type": "string", "description": text("one")},
                    "default": {"anyOf": [{"description": text("two")}]},
                    "e": {"enum": [text("kept")]},
                },
            },
        }))
        .unwrap();
        let tool = ListedTool::from(tool);
        assert_eq!(tool.description, "tool ä\n");
        let schema = &tool.input_schema;
        assert_eq!(schema["title"], "title ä\n");
        let properties = &schema["properties"];
        assert_eq!(properties["description"]["description"], "one ä\n");
        assert_eq!(properties["default"]["anyOf"][0]["description"], "two ä\n");
        // What an argument has to be equal to.
        assert_eq!(properties["e"]["enum"][0], text("kept"));
        let listing = Listing {
            at: 0,
            protocol: String::new(),
            tools: vec![tool],
        };
        assert!(listing.named("p")[0].0.is_ascii());
    }
}
