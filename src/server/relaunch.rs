//! SIGUSR2: start the binary that is at our path now, which then asks for our listeners.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tracing::{error, info, warn};

/// How this process was started. Looked up at once: later, the path may lead to another binary, which is the point.
pub struct Relaunch {
    program: std::io::Result<PathBuf>,
    args: Vec<OsString>,
    under_way: Arc<AtomicBool>,
    /// The process that has taken over, 0 where none has.
    heir: Arc<AtomicU32>,
}

impl Relaunch {
    pub fn remember() -> Self {
        let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
        if !args.iter().any(|arg| arg == "--upgrade") {
            args.push("--upgrade".into());
        }
        Relaunch {
            program: program(),
            args,
            under_way: Arc::default(),
            heir: Arc::default(),
        }
    }

    /// Nothing goes on here any more.
    pub fn handed_over(&self, to: u32) {
        self.heir.store(to, Ordering::Release);
    }

    pub fn spawn(&self) {
        if self.under_way.swap(true, Ordering::AcqRel) {
            warn!("a new process is being started already");
            return;
        }
        let failed = |what: &dyn std::fmt::Display| {
            self.under_way.store(false, Ordering::Release);
            error!("the new process can't be started, and everything goes on: {what}");
        };
        let program = match &self.program {
            Ok(program) => program,
            Err(e) => return failed(e),
        };
        // The environment and the standard streams are inherited: it is the same service.
        let child = Command::new(program)
            .args(&self.args)
            // It names this process, and the new one would think that it isn't meant.
            .env_remove("WATCHDOG_PID")
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(e) => return failed(&e),
        };
        info!(pid = child.id(), program = %program.display(), "a new process was started");
        let (under_way, heir) = (self.under_way.clone(), self.heir.clone());
        let wait = move || {
            // It ends before us only where it failed, before it took over or while we drain.
            let status = child.wait();
            under_way.store(false, Ordering::Release);
            match (status, heir.load(Ordering::Acquire)) {
                (Ok(status), 0) => {
                    error!(%status, "the new process has ended, and everything goes on here");
                }
                // It was told to, while we drain.
                (Ok(status), heir) if heir == child.id() && status.success() => {
                    info!("the new process has drained and ended");
                }
                (Ok(status), heir) if heir == child.id() => error!(
                    %status,
                    "the new process has ended after it took over, and nobody accepts until it is started anew: by systemd, once this one has drained"
                ),
                (Ok(status), _) => {
                    warn!(%status, "a new process has ended that had not taken over")
                }
                (Err(e), _) => error!("the new process is out of sight: {e}"),
            }
        };
        let waiting = std::thread::Builder::new()
            .name("relaunch".into())
            .spawn(wait);
        if let Err(e) = waiting {
            warn!("nobody waits for the new process: {e}");
        }
    }
}

/// The path that we were called by, where it was one: a link in it may lead elsewhere by then. Otherwise the file that runs.
fn program() -> std::io::Result<PathBuf> {
    match std::env::args_os().next().map(PathBuf::from) {
        Some(name) if name.components().count() > 1 => std::path::absolute(name),
        _ => std::env::current_exe(),
    }
}
