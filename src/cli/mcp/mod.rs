//! `ati mcp`: the tools as an MCP server over standard streams.

mod bridge;
mod elicitation;
mod input;
mod local;
mod long_line;
mod serve;
mod stdio;

use crate::error::Failure;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Serve the tools to an MCP client over standard input and output: those of this machine, or
    /// those of the proxy that ATI_PROXY_URL names
    Serve(serve::Args),
}

pub fn run(command: &Command) -> Result<u8, Failure> {
    match command {
        Command::Serve(args) => serve::run(args),
    }
}
