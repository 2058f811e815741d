//! `ati tool`: what tools there are.

mod described;
mod export;
mod export_cmp;
mod stubs;

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tracing::warn;

use super::local::Local;
use super::remote::Remote;
use super::skill::registry_here;
use super::{Format, output, runtime};
use crate::catalog::{Tool, search};
use crate::error::{Code, Failure};
use crate::exec::cli::help;
use crate::policy::Test;
use described::Described;
use export::Exported;
use export_cmp::item;

#[derive(clap::Subcommand)]
pub enum Command {
    /// List the tools that you may use
    List {
        /// Only the tools of this provider
        #[arg(long, value_name = "NAME")]
        provider: Option<String>,

        /// Only tools with this effect: destructive, network, reversible=false; repeatable
        #[arg(long, value_name = "EFFECT", value_parser = Test::read_item)]
        effect: Vec<Test>,
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

        /// Only tools with this effect: destructive, network, reversible=false; repeatable
        #[arg(long, value_name = "EFFECT", value_parser = Test::read_item)]
        effect: Vec<Test>,
    },
    /// Describe the tools that you may use for agents of another convention
    Export(Export),
    /// Print typed functions over `ati run`, for agents that write code
    Stubs(stubs::Args),
}

#[derive(clap::Args)]
#[group(id = "convention", required = true, args = ["atip", "cmp"])]
pub struct Export {
    /// As ATIP metadata: each tool is a command below `ati run`
    #[arg(long)]
    atip: bool,

    /// As CMP tools, a folder for each provider, written into this folder
    #[arg(long, value_name = "DIR")]
    cmp: Option<PathBuf>,

    /// Only the tools of this provider
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
}

impl Export {
    fn takes(&self, provider: &str) -> bool {
        self.provider.as_ref().is_none_or(|name| name == provider)
    }
}

/// `asked`: the format that was asked for by name.
pub fn run(command: Command, format: Format, asked: Option<Format>) -> Result<u8, Failure> {
    match Remote::from_environment()? {
        Some(remote) => run_remote(&remote, command, format, asked),
        None => {
            let local = match &command {
                Command::Info { name } => {
                    let mut local = Local::load_for(name)?;
                    local.discover_for(name)?;
                    local
                }
                Command::List { .. }
                | Command::Search { .. }
                | Command::Export(_)
                | Command::Stubs(_) => {
                    let mut local = Local::load()?;
                    local.discover()?;
                    local
                }
            };
            run_local(&local, command, format, asked)
        }
    }?;
    Ok(0)
}

fn run_local(
    local: &Local,
    command: Command,
    format: Format,
    asked: Option<Format>,
) -> Result<(), Failure> {
    let visible = local.catalog().visible(&local.identity.scopes);
    match command {
        Command::List { provider, effect } => {
            let tools: Vec<Described<'_>> = visible
                .map(AsRef::as_ref)
                .filter(|tool: &&Tool| {
                    provider
                        .as_ref()
                        .is_none_or(|name| *name == tool.provider.name)
                        && tool.has_effects(&effect)
                })
                .map(Described::from)
                .collect();
            if tools.is_empty() {
                warn!(
                    "No tools found. Manifests are in {}",
                    crate::config::ati_dir().join("manifests").display()
                );
            }
            list(&tools, format);
        }
        Command::Info { name } => {
            let tool = local.visible(&name)?;
            let skills = registry_here();
            let mut described = Described::from(tool.as_ref());
            described.skills = skills.names_for(tool);
            if tool.invocation.is_program() {
                described.help_text = runtime()?.block_on(help::ask(&tool.provider));
            }
            info(&described, format);
        }
        Command::Export(args) => {
            let wanted = |tool: &&Arc<Tool>| args.takes(&tool.provider.name);
            let tools: Vec<&Arc<Tool>> = visible.filter(wanted).collect();
            check_provider(args.provider.as_deref(), tools.len())?;
            if let Some(folder) = &args.cmp {
                let tools = tools.into_iter().map(|tool| export_cmp::item(tool));
                return export_cmp::write(&tools.collect::<Vec<_>>(), folder, format);
            }
            let tools = tools.into_iter().map(|tool| Exported::from(tool.as_ref()));
            output::pretty(&export::atip(tools));
        }
        Command::Stubs(args) => {
            let wanted = |tool: &&Arc<Tool>| args.takes(&tool.provider.name);
            let tools: Vec<Value> = visible.filter(wanted).map(|tool| item(tool)).collect();
            check_provider(args.provider(), tools.len())?;
            stubs::print(&args, &tools, asked);
        }
        Command::Search { query, effect } => {
            let query = query.join(" ");
            let scopes = &local.identity.scopes;
            let wanted = |tool: &Tool| tool.has_effects(&effect);
            let found = local.catalog().search(&query, scopes, wanted, search::MOST);
            let tools: Vec<Described<'_>> = found
                .into_iter()
                .map(|tool| Described::from(tool.as_ref()))
                .collect();
            matches(&tools, &query, format);
        }
    }
    Ok(())
}

fn run_remote(
    remote: &Remote,
    command: Command,
    format: Format,
    asked: Option<Format>,
) -> Result<(), Failure> {
    match command {
        Command::Info { name } => {
            let answer = remote.tool(&name)?;
            info(
                &Described::from_answer(&answer).ok_or_else(foreign)?,
                format,
            );
        }
        Command::List { provider, effect } => {
            let effects: Vec<String> = effect.iter().map(ToString::to_string).collect();
            let query: Vec<(&str, &str)> = provider
                .iter()
                .map(|name| ("provider", name.as_str()))
                .chain(effects.iter().map(|effect| ("effect", effect.as_str())))
                .collect();
            let answer = remote.get("tools", &query)?;
            let tools = listed(&answer)?;
            if tools.is_empty() {
                warn!("No tools found. 'ati auth status' shows what your token allows");
            }
            list(&tools, format);
        }
        Command::Export(args) => {
            let query: Vec<(&str, &str)> = args
                .provider
                .iter()
                .map(|name| ("provider", name.as_str()))
                .collect();
            let answer = remote.get("tools", &query)?;
            let items = answer.as_array().ok_or_else(foreign)?;
            check_provider(args.provider.as_deref(), items.len())?;
            if let Some(folder) = &args.cmp {
                return export_cmp::write(items, folder, format);
            }
            let tools: Option<Vec<Exported>> = items.iter().map(Exported::from_answer).collect();
            output::pretty(&export::atip(tools.ok_or_else(foreign)?));
        }
        Command::Stubs(args) => {
            let answer = remote.get("tools", &args.query())?;
            let items = answer.as_array().ok_or_else(foreign)?;
            check_provider(args.provider(), items.len())?;
            stubs::print(&args, items, asked);
        }
        Command::Search { query, effect } => {
            let query = query.join(" ");
            let effects: Vec<String> = effect.iter().map(ToString::to_string).collect();
            let effects = effects.iter().map(|effect| ("effect", effect.as_str()));
            let asked: Vec<(&str, &str)> = [("search", query.as_str())]
                .into_iter()
                .chain(effects)
                .collect();
            let answer = remote.get("tools", &asked)?;
            matches(&listed(&answer)?, &query, format);
        }
    }
    Ok(())
}

/// A file that describes no tools looks like success: where a provider is named, it isn't.
fn check_provider(named: Option<&str>, found: usize) -> Result<(), Failure> {
    match named {
        Some(name) if found == 0 => {
            let message = format!("no provider '{name}' has tools that you may use");
            let failure = Failure::new(Code::ProviderNotFound, message);
            Err(failure.hint("'ati tool list' shows the tools and their providers"))
        }
        _ => Ok(()),
    }
}

/// The tools of an answer of `/tools`.
fn listed(answer: &Value) -> Result<Vec<Described<'_>>, Failure> {
    let items = answer.as_array().ok_or_else(foreign)?;
    items
        .iter()
        .map(|item| Described::from_answer(item).ok_or_else(foreign))
        .collect()
}

fn foreign() -> Failure {
    let message = "Proxy request failed: its answer is not that of an ATI proxy";
    Failure::new(Code::UpstreamError, message).hint("ATI_PROXY_URL says where the proxy is")
}

fn list(tools: &[Described<'_>], format: Format) {
    match format {
        Format::Json => {
            let rows: Vec<Value> = tools.iter().map(Described::list_row).collect();
            output::pretty(&rows);
        }
        Format::Table | Format::Text if tools.is_empty() => {}
        Format::Table | Format::Text => {
            let rows = tools.iter().map(Described::cells);
            output::table(&["DESCRIPTION", "PROVIDER", "TOOL"], rows);
        }
    }
}

fn matches(tools: &[Described<'_>], query: &str, format: Format) {
    if tools.is_empty() {
        warn!("No tools match '{query}'");
    }
    let mut rows: Vec<Value> = tools.iter().map(Described::search_row).collect();
    match format {
        Format::Json => output::pretty(&rows),
        Format::Text => tools.iter().for_each(|tool| output::line(&tool.line())),
        Format::Table if tools.is_empty() => {}
        Format::Table => {
            // The same as `tool`: one column is enough.
            for row in rows.iter_mut().filter_map(Value::as_object_mut) {
                row.shift_remove("name");
            }
            output::value(&Value::Array(rows), format);
        }
    }
}

fn info(tool: &Described<'_>, format: Format) {
    match format {
        Format::Text => tool.print(),
        Format::Json | Format::Table => output::value(&tool.info(), format),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_provider_without_tools_is_an_error() {
        let failure = check_provider(Some("nope"), 0).unwrap_err();
        assert_eq!(failure.code, Code::ProviderNotFound);
        assert!(failure.message.contains("'nope'"));
        assert!(check_provider(None, 0).is_ok() && check_provider(Some("p"), 1).is_ok());
    }
}
