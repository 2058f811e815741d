//! `ati proxy`: the server.

use std::io::IsTerminal;

use crate::config::{self, Environment, Flags, LogFormat};
use crate::error::Failure;
use crate::process;
use crate::server::{Server, Start};
use crate::telemetry::Audience;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    flags: Flags,

    /// Take over the listeners of the proxy that runs with the same settings; that one stops once
    /// this one serves
    #[arg(long)]
    upgrade: bool,
}

impl Args {
    /// Who reads the server's log.
    pub fn audience(&self) -> Audience {
        let as_text = match config::log_format(&self.flags) {
            LogFormat::Json => false,
            LogFormat::Text => true,
            LogFormat::Auto => std::io::stderr().is_terminal(),
        };
        if as_text {
            Audience::Operator
        } else {
            Audience::Machine
        }
    }
}

pub fn run(args: Args) -> Result<u8, Failure> {
    // First: threads that are started later inherit it.
    process::capabilities::keep_from_children();
    process::keep_descriptors_from_programs();
    process::huge_pages::forbid();
    log_panics();
    let env = Environment::read();
    // Only the default folder is created. One that was named has to be there, see config::resolve.
    let dir = args.flags.ati_dir.as_ref().unwrap_or(&env.ati_dir);
    let named = args.flags.ati_dir.is_some() || env.ati_dir_named;
    if !named || dir.is_dir() {
        super::init::ensure(dir);
    }
    let start = if args.upgrade {
        Start::Upgrade
    } else {
        Start::Fresh
    };
    Server::prepare(args.flags, env, start)?.run(std::future::pending())?;
    Ok(0)
}

/// Log where a panic happened. Its message stays out of the log: it may quote a request.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        tracing::error!(place, "panic");
    }));
}
