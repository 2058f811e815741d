//! `ati skill`: documents that teach an agent how to use tools.

mod bundled;
mod copy;
mod diff;
mod examples;
mod generate;
mod git;
mod init;
pub mod install;
mod list;
mod place;
mod remove;
mod show;
mod source;
mod sync;
mod twins;
mod validate;
mod verify;
mod view;

use std::path::PathBuf;

pub use examples::EXAMPLES;
pub use view::{View, registry_here};

use super::{Format, skillati};
use crate::error::{Code, Failure};

#[derive(clap::Subcommand)]
pub enum Command {
    /// List the skills that you may use
    List(list::Filters),
    /// Print a skill's text
    Show {
        /// The skill's name
        name: String,

        /// What is known about it, instead of its text
        #[arg(long)]
        meta: bool,

        /// Also the names of its reference documents
        #[arg(long)]
        refs: bool,
    },
    /// Find skills by words of their name, description, keywords and tools
    Search {
        /// Words to look for
        #[arg(required = true, num_args = 1..)]
        query: Vec<String>,
    },
    /// Show what is known about a skill
    Info {
        /// The skill's name
        name: String,
    },
    /// Print a skill's text for an agent
    Read {
        /// The skill's name
        #[arg(required_unless_present = "tool")]
        name: Option<String>,

        /// The skills of this tool, in place of one by its name
        #[arg(long, value_name = "TOOL")]
        tool: Option<String>,

        /// Also the texts of its reference documents
        #[arg(long)]
        with_refs: bool,
    },
    /// Show which skills your scopes load by themselves
    Resolve {
        /// A JSON file with other scopes: {"scopes": [...]}
        #[arg(long, value_name = "FILE")]
        scopes: Option<PathBuf>,
    },
    /// Install skills from a folder or a git repository
    Install(install::Args),
    /// Remove an installed skill
    Remove {
        /// The skill's name
        name: String,
    },
    /// Write the beginning of a new skill
    Init(init::Args),
    /// Check an installed skill, or one in a folder
    Validate(validate::Args),
    /// Compare an installed skill with the digests of its installation
    Verify {
        /// The skill's name; without it, all of them
        name: Option<String>,
    },
    /// Show how an installed skill differs from its source
    Diff {
        /// The skill's name
        name: String,
    },
    /// Replace an installed skill by what its source has now
    Update(sync::Update),
    /// Read skills of a remote catalogue; the same as `ati skillati`
    #[command(subcommand)]
    Fetch(skillati::Command),
}

pub fn run(command: Command, asked: Option<Format>) -> Result<u8, Failure> {
    let format = asked.unwrap_or(Format::Json);
    match command {
        Command::List(filters) => list::list(&filters, format),
        Command::Search { query } => list::search(&query.join(" "), format),
        Command::Resolve { scopes } => list::resolve(scopes.as_deref(), format),
        Command::Show {
            name, meta: true, ..
        }
        | Command::Info { name } => show::info(&name, format),
        Command::Show { name, refs, .. } => show::show(&name, refs, asked),
        Command::Read {
            name,
            tool,
            with_refs,
        } => show::read(name.as_deref(), tool.as_deref(), with_refs, asked),
        Command::Install(args) => install::run(&args, asked),
        Command::Remove { name } => remove::run(&name, asked),
        Command::Init(args) => init::run(&args, asked),
        Command::Validate(args) => validate::run(&args, asked),
        Command::Verify { name } => verify::run(name.as_deref(), asked),
        Command::Diff { name } => sync::diff(&name, asked),
        Command::Update(args) => sync::update(&args, asked),
        Command::Fetch(command) => skillati::run(command, format),
    }
}

/// Where a skill that a manifest names can be had.
pub fn source_of(named: &str) -> Result<source::Source, Failure> {
    source::Source::parse(named, false)
}

/// No skill of this name, or none that the caller may see.
fn not_found(name: &str) -> Failure {
    let message = format!("Skill '{name}' not found. Run 'ati skill list' to see what there is.");
    Failure::new(Code::ExecutionFailed, message)
}
