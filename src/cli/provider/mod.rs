//! Providers: where tools come from, and what becomes of them.

mod add;
mod download;
mod import;
mod list;
mod load;
mod name;
mod validate;
mod write;

use std::path::PathBuf;

use super::Format;
use crate::error::Failure;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Write a manifest for an MCP server
    AddMcp(add::Mcp),
    /// Write a manifest for a command-line program
    AddCli(add::Cli),
    /// Make tools of an OpenAPI document (2.0, 3.0 or 3.1; JSON or YAML)
    ImportOpenapi(import::Import),
    /// Show what an OpenAPI document would become
    InspectOpenapi(import::Inspect),
    /// List providers
    List {
        /// Ask every MCP server how it is
        #[arg(long)]
        live: bool,
    },
    /// Show one provider
    Info { name: String },
    /// Remove a provider's manifest
    Remove { name: String },
    /// Use a provider for a while, without a manifest
    Load(load::Load),
    /// Forget a provider that was loaded
    Unload { name: String },
    /// Check manifests, each on its own
    Validate {
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,

        /// Warnings fail the check too
        #[arg(long)]
        strict: bool,
    },
    /// Print the JSON Schema of manifests, for editors
    Schema,
}

pub fn run(command: Command, format: Format) -> Result<u8, Failure> {
    match command {
        Command::AddMcp(args) => add::mcp(&args),
        Command::AddCli(args) => add::cli(&args),
        Command::ImportOpenapi(args) => import::import(&args),
        Command::InspectOpenapi(args) => import::inspect(&args),
        Command::List { live } => list::list(live, format),
        Command::Info { name } => list::info(&name, format),
        Command::Remove { name } => list::remove(&name),
        Command::Load(args) => load::load(&args, format),
        Command::Unload { name } => load::unload(&name),
        Command::Validate { files, strict } => validate::validate(&files, strict, format),
        Command::Schema => validate::schema(),
    }
}
