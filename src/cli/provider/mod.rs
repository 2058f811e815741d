//! `ati provider`: the manifests that tools come from.

mod add;
mod download;
mod import;
mod inspect;
mod install_skills;
mod list;
mod load;
mod name;
mod scan;
mod scan_cmp;
mod validate;
mod write;

use std::path::PathBuf;

use super::Format;
use crate::error::Failure;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Write a manifest for an MCP server
    AddMcp(add::AddMcp),
    /// Write a manifest for a command-line program
    AddCli(add::AddCli),
    /// Write a manifest for an OpenAPI document (2.0, 3.0 or 3.1; JSON or YAML)
    ImportOpenapi(import::Import),
    /// Show the tools that an OpenAPI document would give
    InspectOpenapi(inspect::Inspect),
    /// List providers
    List {
        /// Connect to every MCP server, and show whether it answers
        #[arg(long)]
        live: bool,
    },
    /// Show one provider; an MCP server is asked whether it answers
    Info {
        /// The provider's name
        name: String,
    },
    /// Remove a provider's manifest
    Remove {
        /// The provider's name
        name: String,
    },
    /// Use a provider for a limited time, without a manifest
    Load(load::Load),
    /// Remove a provider that was loaded
    Unload {
        /// The provider's name
        name: String,
    },
    /// Find the programs of this machine that describe themselves (ATIP), and shims for others
    Scan(scan::Scan),
    /// Check manifests, ATIP metadata and shims, CMP folders and Runfiles, each on its own
    Validate {
        /// Files to check, a folder agent-tools, the folder of a CMP tool, or one with a Runfile
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,

        /// Fail on warnings too
        #[arg(long)]
        strict: bool,
    },
    /// Print the JSON Schema of manifests, for editors
    Schema,
    /// Install the skills that a provider's manifest names
    InstallSkills(install_skills::Args),
}

pub fn run(command: Command, asked: Option<Format>) -> Result<u8, Failure> {
    let format = asked.unwrap_or(Format::Json);
    match command {
        Command::AddMcp(args) => add::mcp(&args, asked),
        Command::AddCli(args) => add::cli(&args, asked),
        Command::ImportOpenapi(args) => import::import(&args, asked),
        Command::InspectOpenapi(args) => inspect::inspect(&args, asked),
        Command::List { live } => list::list(live, asked),
        Command::Info { name } => list::info(&name, format),
        Command::Remove { name } => list::remove(&name, asked),
        Command::Load(args) => load::load(&args, asked),
        Command::Unload { name } => load::unload(&name, asked),
        Command::Scan(args) if args.cmp => scan_cmp::scan(asked),
        Command::Scan(args) => scan::scan(&args, asked),
        Command::Validate { files, strict } => validate::validate(&files, strict, format),
        Command::Schema => validate::schema(),
        Command::InstallSkills(args) => install_skills::run(&args, asked),
    }
}
