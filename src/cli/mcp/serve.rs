use std::time::Duration;

use super::bridge::Bridge;
use super::local::LocalServer;
use super::stdio;
use crate::cli::local::Local;
use crate::cli::remote::Remote;
use crate::cli::runtime;
use crate::error::Failure;

#[derive(clap::Args)]
#[command(
    after_help = "The client starts this command and talks to it; it ends with its input. \
                  Standard output has messages only, standard error has the log.\n\
                  Manifests that change are read again, and so they are on SIGHUP. The client is \
                  told when the tools have changed."
)]
pub struct Args {
    /// Offer three tools, to find, describe and call the others, however many there are
    #[arg(long)]
    search: bool,

    /// How often to ask the proxy whether its tools have changed; 0 never asks
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    refresh: u64,
}

pub fn run(args: &Args) -> Result<u8, Failure> {
    crate::process::keep_descriptors_from_programs();
    let runtime = runtime()?;
    match Remote::from_environment()? {
        Some(remote) => {
            let refresh = Some(args.refresh).filter(|seconds| *seconds > 0);
            let bridge = Bridge::new(&remote, args.search, refresh.map(Duration::from_secs))?;
            runtime.block_on(stdio::serve(bridge));
        }
        None => {
            let local = Local::load()?;
            let server = LocalServer::new(local, args.search)?;
            runtime.block_on(async {
                let services = server.services();
                stdio::serve(server).await;
                crate::exec::mcp::close_all(&services.runtime).await;
                services.audit.flush();
            });
        }
    }
    // Threads that still wait for something don't hold up the end.
    runtime.shutdown_background();
    Ok(0)
}
