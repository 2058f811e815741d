//! `ati admin`: what an administrator does with the store.

mod keys;
mod place;
mod rewrap;

use super::Format;
use crate::error::Failure;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Issue, show and revoke virtual keys: on the proxy that ATI_PROXY_URL names, with
    /// ATI_ADMIN_TOKEN, or in the database that ATI_DB_URL names
    #[command(subcommand)]
    Keys(keys::Command),
    /// Put all credentials of the database under the master key in use, while proxies serve
    Rewrap(rewrap::Args),
}

pub fn run(command: Command, asked: Option<Format>) -> Result<u8, Failure> {
    match command {
        Command::Keys(command) => keys::run(command, asked),
        Command::Rewrap(args) => rewrap::run(&args, asked),
    }
}
