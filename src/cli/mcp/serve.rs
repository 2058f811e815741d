use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::bridge::Bridge;
use super::local::LocalServer;
use super::stdio;
use crate::cli::local::Local;
use crate::cli::remote::Remote;
use crate::cli::runfile::Choice;
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

    /// Serve the functions of this Runfile, and nothing else; without a path those of the nearest
    /// one, here or in a folder above
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "")]
    runfile: Option<OsString>,

    /// Of a Runfile, only functions with `# @safe`
    #[arg(long, requires = "runfile")]
    readonly: bool,
}

pub fn run(args: &Args) -> Result<u8, Failure> {
    crate::process::keep_descriptors_from_programs();
    let runtime = runtime()?;
    if let Some(path) = &args.runfile {
        let path = Some(PathBuf::from(path)).filter(|path| !path.as_os_str().is_empty());
        let choice = Choice {
            path,
            readonly: args.readonly,
        };
        let local = Local::of_runfile(&choice)?;
        let server = LocalServer::new(local, args.search)?.of_runfile(choice);
        serve_here(&runtime, server);
        runtime.shutdown_background();
        return Ok(0);
    }
    match Remote::from_environment()? {
        Some(remote) => {
            let refresh = Some(args.refresh).filter(|seconds| *seconds > 0);
            let bridge = Bridge::new(&remote, args.search, refresh.map(Duration::from_secs))?;
            runtime.block_on(stdio::serve(bridge));
        }
        None => {
            let local = Local::load()?;
            let server = LocalServer::new(local, args.search)?;
            serve_here(&runtime, server);
        }
    }
    // Threads that still wait for something don't hold up the end.
    runtime.shutdown_background();
    Ok(0)
}

fn serve_here(runtime: &Runtime, server: LocalServer) {
    runtime.block_on(async {
        let services = server.services();
        stdio::serve(server).await;
        crate::exec::mcp::close_all(&services.runtime).await;
        services.audit.flush();
    });
}
