use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use tracing::warn;

use super::super::output;
use crate::error::{Code, Failure};

/// The running proxy.
#[derive(clap::Args)]
pub struct Target {
    /// The systemd unit to signal
    #[arg(long, default_value = "ati")]
    service: String,

    /// A file with the proxy's process id, where there is no systemd
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,

    /// Signal nobody
    #[arg(long)]
    no_signal: bool,
}

impl Target {
    /// What can be known to be wrong before anything is changed.
    pub fn check(&self) -> Result<(), Failure> {
        match &self.pid_file {
            Some(path) if !self.no_signal => pid_of_file(path).map(drop),
            _ => Ok(()),
        }
    }

    /// SIGHUP. A service that doesn't run takes the new keyring when it starts: worth a word, and no failure.
    pub fn hang_up(&self) -> Result<(), Failure> {
        let service = &self.service;
        if self.no_signal {
            output::line(&format!("--no-signal set; skipping SIGHUP to {service}"));
            return Ok(());
        }
        let (name, pid) = match &self.pid_file {
            Some(path) => (path.display().to_string(), pid_of_file(path)?),
            None => (service.clone(), main_pid(service)),
        };
        let Some(pid) = pid else {
            warn!("{service} is not running; it takes the new keyring when it starts");
            return Ok(());
        };
        // The number of a process that ended may be anybody's by now.
        let running = std::fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()));
        if !running.is_ok_and(|comm| comm.trim() == "ati") {
            warn!(
                "process {} of {name} is not ati (any more); nobody is signalled",
                pid.as_raw_nonzero()
            );
            return Ok(());
        }
        kill_process(pid, Signal::HUP).map_err(|e| {
            let message = format!("SIGHUP to {name} (pid {}): {e}", pid.as_raw_nonzero());
            Failure::new(Code::ExecutionFailed, message)
        })?;
        output::line(&format!(
            "SIGHUP sent to {name} (pid {})",
            pid.as_raw_nonzero()
        ));
        Ok(())
    }
}

fn pid_of_file(path: &std::path::Path) -> Result<Option<Pid>, Failure> {
    let wrong = |why: &str| Failure::invalid(format!("{}: {why}", path.display()));
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(wrong(&e.to_string())),
    };
    let pid: i32 = text.trim().parse().map_err(|_| wrong("not a process id"))?;
    // 1 and below are everybody and nobody.
    Pid::from_raw(pid)
        .filter(|_| pid > 1)
        .map(Some)
        .ok_or_else(|| wrong("not a process id"))
}

fn main_pid(service: &str) -> Option<Pid> {
    let output = Command::new("systemctl")
        .args(["show", "--property=MainPID", "--value", service])
        .output()
        .ok()?;
    let pid: i32 = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .ok()?;
    Pid::from_raw(pid).filter(|_| pid > 1)
}
