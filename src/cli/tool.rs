//! `ati tool`: what tools there are.

use serde_json::{Value, json};
use tracing::warn;

use super::local::Local;
use super::remote::Remote;
use super::{Format, output};
use crate::catalog::{Invocation, Tool, search};
use crate::error::Failure;

#[derive(clap::Subcommand)]
pub enum Command {
    /// List the tools that you may use
    List {
        /// Only the tools of this provider
        #[arg(long, value_name = "NAME")]
        provider: Option<String>,
    },
    /// Show what a tool does and which arguments it takes
    Info {
        /// The tool's name
        name: String,
    },
    /// Find tools by words of their name, description, tags, category and provider
    Search {
        /// Words to look for
        #[arg(required = true, num_args = 1..)]
        query: Vec<String>,
    },
}

pub fn run(command: Command, format: Format) -> Result<u8, Failure> {
    match Remote::from_environment()? {
        Some(remote) => run_remote(&remote, command, format),
        None => {
            let local = match &command {
                Command::Info { name } => {
                    let mut local = Local::load_for(name)?;
                    local.discover_for(name)?;
                    local
                }
                Command::List { .. } | Command::Search { .. } => {
                    let mut local = Local::load()?;
                    local.discover()?;
                    local
                }
            };
            run_local(&local, command, format)
        }
    }?;
    Ok(0)
}

fn run_local(local: &Local, command: Command, format: Format) -> Result<(), Failure> {
    let visible = local.catalog().visible(&local.identity.scopes);
    match command {
        Command::List { provider } => {
            let tools: Vec<&Tool> = visible
                .map(AsRef::as_ref)
                .filter(|tool: &&Tool| {
                    provider
                        .as_ref()
                        .is_none_or(|name| *name == tool.provider.name)
                })
                .collect();
            if tools.is_empty() {
                warn!(
                    "No tools found. Manifests are in {}",
                    crate::config::ati_dir().join("manifests").display()
                );
            } else {
                list(&tools, format);
            }
        }
        Command::Info { name } => info(local.visible(&name)?, format),
        Command::Search { query } => {
            let query = query.join(" ");
            let found = search::search(visible, &query);
            if found.is_empty() {
                warn!("No tools match '{query}'");
            }
            let items: Vec<Value> = found.into_iter().map(|tool| found_item(tool)).collect();
            match format {
                Format::Json => output::pretty(&items),
                Format::Table if !items.is_empty() => output::value(&Value::Array(items), format),
                _ => items.iter().for_each(|item| summary(item, "tool")),
            }
        }
    }
    Ok(())
}

fn run_remote(remote: &Remote, command: Command, format: Format) -> Result<(), Failure> {
    let listed = match command {
        Command::Info { name } => {
            let tool = remote.tool(&name)?;
            output::value(&tool, format);
            return Ok(());
        }
        Command::List { provider } => {
            let query: Vec<(&str, &str)> = provider
                .iter()
                .map(|name| ("provider", name.as_str()))
                .collect();
            remote.get("tools", &query)?
        }
        Command::Search { query } => remote.get("tools", &[("search", &query.join(" "))])?,
    };
    let items = listed.as_array().map(Vec::as_slice).unwrap_or_default();
    if items.is_empty() {
        warn!("No tools found");
    }
    match format {
        Format::Json => output::pretty(&listed),
        Format::Text | Format::Table => items.iter().for_each(|item| summary(item, "name")),
    }
    Ok(())
}

/// Print one line: name, provider, the beginning of the description.
fn summary(item: &Value, name: &str) {
    let text = |key: &str| item[key].as_str().unwrap_or_default();
    let description: String = text("description").chars().take(80).collect();
    let line = format!("{:<40} {:<15} {description}", text(name), text("provider"));
    output::line(line.trim_end());
}

fn list(tools: &[&Tool], format: Format) {
    match format {
        Format::Json => {
            let items: Vec<Value> = tools
                .iter()
                .map(|tool| {
                    json!({
                        "description": tool.description,
                        "method": tool.invocation.listed_method().as_str(),
                        "provider": tool.provider.name,
                        "scope": tool.scope,
                        "tool": tool.name,
                    })
                })
                .collect();
            output::pretty(&items);
        }
        Format::Table | Format::Text => {
            let rows = tools.iter().map(|tool| {
                let description: String = tool.description.chars().take(80).collect();
                vec![description, tool.provider.name.clone(), tool.name.clone()]
            });
            output::table(&["DESCRIPTION", "PROVIDER", "TOOL"], rows);
        }
    }
}

fn found_item(tool: &Tool) -> Value {
    json!({
        "category": tool.provider.category,
        "description": tool.description,
        "handler": tool.provider.handler_name(),
        "provider": tool.provider.name,
        "tags": tool.tags,
        "tool": tool.name,
    })
}

fn info(tool: &Tool, format: Format) {
    let provider = &tool.provider;
    let base_url = provider.base_url().map_or("", |url| url.text.as_str());
    if format != Format::Text {
        let info = json!({
            "base_url": base_url,
            "description": tool.description,
            "endpoint": tool.invocation.listed_endpoint(),
            "input_schema": tool.input_schema(),
            "method": tool.invocation.listed_method().as_str(),
            "name": tool.name,
            "provider": provider.name,
            "scope": tool.scope,
            "skills": provider.skills,
        });
        output::value(&info, format);
        return;
    }
    let line = |label: &str, text: &str| {
        if !text.is_empty() {
            output::line(&format!("{:<13}{text}", format!("{label}:")));
        }
    };
    line("Tool", &tool.name);
    line(
        "Provider",
        &match provider.description.as_str() {
            "" => provider.name.clone(),
            description => format!("{} ({description})", provider.name),
        },
    );
    line("Handler", provider.handler_name());
    if let Invocation::Http(http) = &tool.invocation {
        let url = format!("{}{}", base_url.trim_end_matches('/'), http.endpoint);
        line("Endpoint", &format!("{} {url}", http.method));
    }
    if let Some(mcp) = provider.mcp() {
        line("Transport", &format!("MCP ({})", mcp.transport_name()));
    }
    line("Description", &tool.description);
    line("Scope", tool.scope.as_deref().unwrap_or("(none)"));
    line("Category", provider.category.as_deref().unwrap_or_default());
    line("Tags", &tool.tags.join(", "));
    line("Hint", tool.hint.as_deref().unwrap_or_default());
    line("Skills", &provider.skills.join(", "));
    if !tool.input_schema().is_null() {
        output::line("\nInput Schema:");
        output::pretty(tool.input_schema());
    }
    if !tool.examples.is_empty() {
        output::line("\nExamples:");
        for example in &tool.examples {
            let text = example
                .as_str()
                .map_or_else(|| example.to_string(), str::to_owned);
            output::line(&format!("  {text}"));
        }
    }
    output::line("\nUsage:");
    output::line(&usage(tool));
}

/// An example command with every required argument; with all of them where none is required.
fn usage(tool: &Tool) -> String {
    let all = &tool.schema.properties;
    let any_required = all.iter().any(|property| property.required);
    let mut usage = format!("  ati run {}", tool.name);
    for property in all
        .iter()
        .filter(|property| property.required || !any_required)
    {
        usage += &format!(" --{0} <{0}>", property.name);
    }
    usage
}
