//! MCP servers as manifests describe them, and the tools that they say they have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::provider::Http;
use crate::config::Section;
use crate::credential::Template;
use crate::egress;
use crate::error::Problem;

/// `provider:tool` has at most so many characters.
const LONGEST_NAME: usize = 128;
const LONGEST_DESCRIPTION: usize = 16 << 10;
/// A schema that is longer is no help to anybody.
const LONGEST_SCHEMA: usize = 256 << 10;

#[derive(Debug)]
pub struct Mcp {
    /// What is presented, and the URL where there is one.
    pub http: Http,
    pub transport: Transport,
}

#[derive(Debug, Hash)]
pub enum Transport {
    Stdio {
        command: String,
        args: Vec<String>,
        env: Vec<(String, Template)>,
    },
    Http {
        /// The variable in which a caller has another URL.
        url_env: Option<String>,
    },
}

impl Mcp {
    pub(super) fn read(
        s: &mut Section<'_>,
        egress: Option<&egress::Settings>,
        warnings: &mut Vec<Problem>,
    ) -> Self {
        let mut http = Http::read(s, egress, warnings);
        let url: String = s.take("mcp_url").unwrap_or_default();
        http.url = Some(Template::parse(&url));
        http.base_url = url;
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
        let transport = match kind.as_str() {
            "http" => Transport::Http { url_env },
            _ => Transport::Stdio {
                command,
                args,
                env: env.collect(),
            },
        };
        if !matches!(kind.as_str(), "stdio" | "http") {
            s.problem("mcp_transport", "expected 'stdio' or 'http'");
        }
        Mcp { http, transport }
    }

    /// What it can't be used without. Such manifests have always loaded, so it is no reason not to start.
    pub(super) fn lacks(&self) -> Option<&'static str> {
        match &self.transport {
            Transport::Stdio { command, .. } if command.is_empty() => Some("mcp_command"),
            Transport::Http { .. } if self.http.base_url.is_empty() => Some("mcp_url"),
            _ => None,
        }
    }

    /// Names of the keyring that a session needs.
    pub fn key_names(&self) -> Vec<&str> {
        let mut names = self.http.key_names();
        names.extend(self.env_keys());
        names
    }

    /// Those of them that a program gets as variables.
    pub fn env_keys(&self) -> Vec<&str> {
        match &self.transport {
            Transport::Stdio { env, .. } => env.iter().flat_map(|(_, it)| it.keys()).collect(),
            Transport::Http { .. } => Vec::new(),
        }
    }

    pub fn transport_name(&self) -> &'static str {
        match self.transport {
            Transport::Stdio { .. } => "stdio",
            Transport::Http { .. } => "http",
        }
    }
}

/// What a server said it has, and when. It is kept on disk, too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    /// Unix seconds.
    pub at: u64,
    /// The revision that was agreed upon.
    pub protocol: String,
    pub tools: Vec<Listed>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listed {
    /// As the server calls it.
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub input_schema: Value,
    /// Doing it twice is no worse than once.
    #[serde(default)]
    pub repeatable: bool,
}

impl From<rmcp::model::Tool> for Listed {
    fn from(tool: rmcp::model::Tool) -> Self {
        let hints = tool.annotations.unwrap_or_default();
        let yes = |hint: Option<bool>| hint == Some(true);
        let schema = serde_json::to_value(&tool.input_schema).unwrap_or_default();
        let reasonable = schema.to_string().len() <= LONGEST_SCHEMA;
        Listed {
            name: tool.name.into_owned(),
            description: harmless(&tool.description.unwrap_or_default()),
            input_schema: if reasonable {
                schema
            } else {
                json!({"type": "object"})
            },
            repeatable: yes(hints.read_only_hint) || yes(hints.idempotent_hint),
        }
    }
}

/// By the provider's name.
pub type Listings = BTreeMap<String, Arc<Listing>>;

impl Listing {
    /// Each tool with the name that it has here. Two that would have the same are one.
    pub fn named(&self, provider: &str) -> Vec<(String, &Listed)> {
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

/// Without what a path, a terminal or a scope could take for something else.
fn safe_name(name: &str) -> String {
    let safe = |c: char| match c {
        'A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '-' | '.' | '/' => c,
        _ => '_',
    };
    let name: String = name.chars().map(safe).collect();
    name.replace("..", "__")
}

/// Texts of strangers, for terminals and models.
fn harmless(text: &str) -> String {
    let end = text.floor_char_boundary(LONGEST_DESCRIPTION);
    let visible = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    text[..end].chars().filter(visible).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(names: &[&str]) -> Listing {
        let tool = |name: &&str| Listed {
            name: (*name).to_owned(),
            description: String::new(),
            input_schema: Value::Null,
            repeatable: false,
        };
        Listing {
            at: 0,
            protocol: String::new(),
            tools: names.iter().map(tool).collect(),
        }
    }

    #[test]
    fn names_of_strangers_are_made_harmless() {
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
        assert_eq!(harmless("a\u{1b}[0m\nb\r"), "a[0m\nb");
    }
}
