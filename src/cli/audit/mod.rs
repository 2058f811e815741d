//! `ati audit`: the log of tool calls.

mod database;
mod filter;
mod remote_call;
mod show;
mod verify;

use std::path::PathBuf;

use super::Format;
use crate::config::{AUDIT_FILE, Environment};
use crate::error::Failure;
use filter::FilterArgs;
pub use remote_call::RemoteCall;
use show::{Count, Shown};

#[derive(clap::Subcommand)]
pub enum Command {
    /// Show the most recent tool calls, and requests to routes where they are audited
    Tail {
        /// How many to show
        #[arg(short = 'n', long = "count", default_value_t = 20)]
        count: usize,

        #[command(flatten)]
        filter: FilterArgs,
    },
    /// Show the tool calls and requests that match every given option
    Search {
        #[command(flatten)]
        filter: FilterArgs,
    },
    /// Check the hash chain of audit files: exit code 1 names the first line that doesn't fit
    Verify(verify::Args),
}

pub fn run(command: Command, asked: Option<Format>) -> Result<u8, Failure> {
    let env = Environment::read();
    let (count, filter) = match command {
        Command::Tail { count, filter } => (Count::Last(count), filter),
        Command::Search { filter } => (Count::All, filter),
        Command::Verify(args) => return verify::run(args, &path(&env), asked),
    };
    let shown = Shown {
        count,
        filter: filter.filter(),
        follows: filter.follow,
        asked,
    };
    match &env.database_url {
        Some(database) if !filter.wants_file() => database::show(database, &shown),
        _ => show::file(filter.file(&env), &shown),
    }
}

/// The audit log of this machine.
pub fn path(env: &Environment) -> PathBuf {
    let set = env.audit_file.clone();
    set.unwrap_or_else(|| env.ati_dir.join(AUDIT_FILE))
}
