use crate::config::{Environment, Flags};
use crate::error::Failure;
use crate::server::{Server, Start};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    flags: Flags,

    /// Take the listeners of the proxy that runs with the same settings; it ends once this one serves
    #[arg(long)]
    upgrade: bool,
}

pub fn run(args: Args) -> Result<u8, Failure> {
    log_panics();
    let env = Environment::read();
    super::init::ensure(args.flags.ati_dir.as_ref().unwrap_or(&env.ati_dir));
    let start = if args.upgrade {
        Start::Upgrade
    } else {
        Start::Fresh
    };
    Server::prepare(args.flags, env, start)?.run(std::future::pending())?;
    Ok(0)
}

/// A defect of ours ends one request, not the log: where it happened, without what it happened to.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        tracing::error!(place, "panic");
    }));
}
