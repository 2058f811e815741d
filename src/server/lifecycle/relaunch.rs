//! SIGUSR2: starts the binary that is at this process's path now. The new process then asks for the
//! listeners.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tracing::{error, info, warn};
use zeroize::Zeroizing;

use super::handover::{self, Invitation, RELAUNCHED_BY};
use crate::process::capabilities;

/// How this process was started. Recorded at the start: the path may lead to another binary later,
/// which is what an upgrade is for.
pub struct Relaunch {
    program: std::io::Result<PathBuf>,
    args: Vec<OsString>,
    /// How the new process shows that it was started from here.
    invitation: Arc<Invitation>,
    /// Whether a new process runs that was started from here.
    under_way: Arc<AtomicBool>,
    /// The pid of the process that has taken over, 0 where none has.
    successor: Arc<AtomicU32>,
}

impl Relaunch {
    pub fn record() -> Self {
        let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
        if !args.iter().any(|arg| arg == "--upgrade") {
            args.push("--upgrade".into());
        }
        Relaunch {
            program: program(),
            args,
            invitation: Arc::default(),
            under_way: Arc::default(),
            successor: Arc::default(),
        }
    }

    pub fn invitation(&self) -> &Arc<Invitation> {
        &self.invitation
    }

    /// The file that an upgrade replaces.
    pub fn program(&self) -> Option<PathBuf> {
        self.program.as_ref().ok().cloned()
    }

    /// The process `to` has taken over, so its end means something else from now on.
    pub fn handed_over(&self, to: u32) {
        self.successor.store(to, Ordering::Release);
    }

    /// Starts the new process, unless one is being started already. Failures are logged: this
    /// process goes on.
    pub fn spawn(&self) {
        if self.under_way.swap(true, Ordering::AcqRel) {
            warn!("a new process is being started already");
            return;
        }
        match self.start() {
            Ok(child) => self.watch(child),
            Err(e) => {
                self.under_way.store(false, Ordering::Release);
                error!(error = %e, "the new process can't be started, and everything goes on");
            }
        }
    }

    fn start(&self) -> std::io::Result<Child> {
        let program = match &self.program {
            Ok(program) => program,
            Err(e) => return Err(std::io::Error::new(e.kind(), e.to_string())),
        };
        // The new process inherits environment, output and capabilities: it is the same service.
        let mut command = Command::new(program);
        command
            .args(&self.args)
            // It holds this process's pid, and the new one would not use systemd's watchdog.
            .env_remove("WATCHDOG_PID")
            .env(RELAUNCHED_BY, Invitation::variable())
            .stdin(Stdio::piped());
        let mut child = capabilities::lend(capabilities::at_start(), || command.spawn())?;
        if let Err(e) = self.invitation.send_to(&mut child) {
            // It may have ended already, which is logged below; otherwise it is refused.
            warn!(error = %e, "the new process was not invited to take over");
        }
        info!(pid = child.id(), program = %program.display(), "a new process was started");
        Ok(child)
    }

    /// Waits for the child on a thread of its own, and logs its end.
    fn watch(&self, mut child: Child) {
        let (under_way, successor) = (self.under_way.clone(), self.successor.clone());
        let invitation = self.invitation.clone();
        let wait = move || {
            // It ends before this process only if it failed, or while this one drains.
            let status = child.wait();
            invitation.withdraw(child.id());
            under_way.store(false, Ordering::Release);
            match status {
                Ok(status) => log_end(status, child.id(), successor.load(Ordering::Acquire)),
                Err(e) => error!(error = %e, "cannot wait for the new process"),
            }
        };
        let waiting = std::thread::Builder::new()
            .name("relaunch".into())
            .spawn(wait);
        if let Err(e) = waiting {
            warn!(error = %e, "no thread waits for the new process, its end will not be logged");
        }
    }
}

/// `successor` is the pid of the process that has taken over, or 0.
fn log_end(status: std::process::ExitStatus, pid: u32, successor: u32) {
    if successor == 0 {
        error!(%status, "the new process has ended, and everything goes on here");
    } else if successor != pid {
        warn!(%status, "a new process has ended that had not taken over");
    } else if status.success() {
        info!("the new process has drained and ended");
    } else {
        error!(
            %status,
            "the new process has ended after it took over, and no process accepts until it is \
             started anew: by systemd, once this one has drained"
        );
    }
}

/// What the process that has started this one by SIGUSR2 has given to it.
pub fn received_invitation() -> Option<Zeroizing<String>> {
    let started_by = std::env::var(RELAUNCHED_BY).ok();
    handover::received_invitation(started_by.as_deref())
}

/// The path that this process was called by, if it was a path: a symbolic link in it may point to a
/// new version by the time of an upgrade. Otherwise the file that runs.
fn program() -> std::io::Result<PathBuf> {
    match std::env::args_os().next().map(PathBuf::from) {
        Some(name) if name.components().count() > 1 => std::path::absolute(name),
        _ => std::env::current_exe(),
    }
}
