//! SIGHUP for the running proxy, so that it loads the new keyring.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tracing::warn;

use super::super::file_failure;
use crate::error::{Code, Failure};

/// Which process is signalled.
#[derive(clap::Args)]
#[command(next_help_heading = "Signal to the running proxy")]
pub struct SignalTarget {
    /// The systemd unit to signal
    #[arg(long, default_value = "ati")]
    service: String,

    /// A file with the process id of the proxy, where it doesn't run under systemd
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,

    /// Send no signal
    #[arg(long)]
    no_signal: bool,
}

/// What became of the signal.
pub enum Signalled {
    /// --no-signal; the name of the service.
    Skipped(String),
    Sent {
        name: String,
        pid: i32,
    },
    /// No such process runs, and a warning said so.
    NotRunning,
}

impl Signalled {
    pub fn line(&self) -> Option<String> {
        match self {
            Signalled::Skipped(service) => {
                Some(format!("--no-signal set; skipping SIGHUP to {service}"))
            }
            Signalled::Sent { name, pid } => Some(format!("SIGHUP sent to {name} (pid {pid})")),
            Signalled::NotRunning => None,
        }
    }

    pub fn as_json(&self) -> Value {
        match self {
            Signalled::Skipped(_) => json!({"status": "skipped"}),
            Signalled::Sent { name, pid } => json!({"status": "sent", "to": name, "pid": pid}),
            Signalled::NotRunning => json!({"status": "not running"}),
        }
    }
}

impl SignalTarget {
    /// The unit or the process that was named, if one was.
    pub fn named(service: Option<String>, pid_file: Option<PathBuf>) -> Option<Self> {
        let named = service.is_some() || pid_file.is_some();
        named.then(|| SignalTarget {
            service: service.unwrap_or_else(|| "ati".to_owned()),
            pid_file,
            no_signal: false,
        })
    }

    /// Report a bad --pid-file before anything is changed.
    pub fn check(&self) -> Result<(), Failure> {
        match &self.pid_file {
            Some(path) if !self.no_signal => pid_of_file(path).map(drop),
            _ => Ok(()),
        }
    }

    /// Send SIGHUP. A proxy that isn't running is a warning, not a failure: it loads the new
    /// keyring when it starts.
    pub fn hang_up(&self) -> Result<Signalled, Failure> {
        let service = &self.service;
        if self.no_signal {
            return Ok(Signalled::Skipped(service.clone()));
        }
        let (name, pid) = match &self.pid_file {
            Some(path) => (path.display().to_string(), pid_of_file(path)?),
            None => (service.clone(), main_pid(service)),
        };
        let Some(pid) = pid else {
            warn!("{service} is not running; it takes the new keyring when it starts");
            return Ok(Signalled::NotRunning);
        };
        // The process may have ended, and its id may belong to another program now.
        let running = std::fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()));
        if !running.is_ok_and(|comm| comm.trim() == "ati") {
            warn!(
                "process {} of {name} is not ati (any more); no signal is sent",
                pid.as_raw_nonzero()
            );
            return Ok(Signalled::NotRunning);
        }
        kill_process(pid, Signal::HUP).map_err(|e| {
            let message = format!("SIGHUP to {name} (pid {})", pid.as_raw_nonzero());
            Failure::new(Code::ExecutionFailed, message).because(e)
        })?;
        Ok(Signalled::Sent {
            name,
            pid: pid.as_raw_nonzero().get(),
        })
    }
}

fn pid_of_file(path: &Path) -> Result<Option<Pid>, Failure> {
    let no_pid = || Failure::invalid(format!("{}: not a process id", path.display()));
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(file_failure(Code::InvalidValue, path, e)),
    };
    let pid: i32 = text.trim().parse().map_err(|_| no_pid())?;
    // 1 is init; kill(2) takes 0 and below for groups of processes.
    Pid::from_raw(pid)
        .filter(|_| pid > 1)
        .map(Some)
        .ok_or_else(no_pid)
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
