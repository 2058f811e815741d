//! One program for one call: it runs to its end under a supervisor, and when [`run`] returns, it
//! and everything that it has started is gone. If the caller leaves before that, or ati ends in
//! whatever way, the supervisor ends the program and removes the files of the call.

mod error;
mod output;

use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, getpgrp, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use super::lineage::{kill_descendants, kill_session};
use super::oversee::remove_all;
use super::plan::{Cause, HasNul, Plan, Report, Terms};
use super::resident::{EXECUTABLE, find_program};
use super::run_as::{RunAs, User};
use super::sandbox::{Confinement, Sandbox};
use super::{CHILDREN, capabilities, channel, role};
use crate::spool::{Spool, Spooled};

pub use super::plan::Status;
pub use error::ProgramError;
pub use output::Stderr;

/// A supervisor that has not ended this long after it should have is killed.
const SUPERVISOR_MARGIN: Duration = Duration::from_secs(10);
/// How long the end of the output is waited for once everything is gone.
const OUTPUT_END: Duration = Duration::from_secs(5);
/// A line of the supervisor is shorter.
const LONGEST_REPORT: usize = 64 << 10;

pub struct ProgramSpec {
    /// A path, or a name that is looked up in the `PATH` of `env`, or else in ati's own.
    pub program: String,
    /// As they are, whatever they contain: there is no shell.
    pub args: Vec<OsString>,
    /// Its whole environment. Values may be secrets.
    pub env: Vec<(String, Zeroizing<String>)>,
    /// The folder that it starts in; ati's own where there is none.
    pub cwd: Option<PathBuf>,
    pub stdin: Stdin,
    pub timeout: Duration,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// More bytes than this on stdout are an error.
    pub max_stdout: u64,
    /// Of stderr, so many bytes are kept: the first and the last ones.
    pub max_stderr: usize,
    /// Where stdout is collected.
    pub stdout: Spool,
    pub sandbox: Option<Sandbox>,
    /// What the sandbox has to open for this call: files with credentials.
    pub sandbox_read: Vec<PathBuf>,
    /// As `sandbox_read`, to be written too: the call's own folder.
    pub sandbox_write: Vec<PathBuf>,
    /// The user that it runs as; ati's own where there is none.
    pub run_as: Option<RunAs>,
    /// Files and folders that are removed when the program is gone. The supervisor does so, so that
    /// none is left if ati is killed, except where `run_as` is another user, who may not.
    pub remove: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdin {
    /// Nothing to read, and no terminal.
    Null,
    /// ati's own. The program is in ati's process group, so that it may read the terminal, and
    /// gets Ctrl-C as ati does.
    Inherit,
}

#[derive(Debug)]
pub struct ProgramOutcome {
    pub status: Status,
    pub stdout: Spooled,
    pub stderr: Stderr,
}

/// Runs it to its end, from the thread that owns all children.
pub async fn run(spec: ProgramSpec) -> Result<ProgramOutcome, ProgramError> {
    run_holding(spec, ()).await
}

/// As [`run`]. `held` is dropped when the program is gone, even where the caller has left before,
/// on a thread that may wait for the disk.
pub async fn run_holding(
    spec: ProgramSpec,
    held: impl Send + 'static,
) -> Result<ProgramOutcome, ProgramError> {
    let (timeout, grace) = (spec.timeout, spec.grace);
    let start = match Start::prepare(&spec) {
        Ok(start) => start,
        Err(error) => {
            let _ = tokio::task::spawn_blocking(move || drop(held)).await;
            return Err(error);
        }
    };
    let running = start.spawn(spec.stdin, grace, held).await?;
    let Running {
        control,
        stdout,
        stderr,
        supervisor,
        gone,
        lifeline,
    } = running;
    let (from_supervisor, to_supervisor) = control.into_split();
    let streams = async {
        let out = async {
            let collected = output::collect(stdout, spec.stdout, spec.max_stdout).await;
            if collected.is_err() {
                // The supervisor ends the program.
                drop(to_supervisor);
                return (collected, None);
            }
            (collected, Some(to_supervisor))
        };
        tokio::join!(out, output::collect_ends(stderr, spec.max_stderr))
    };
    tokio::pin!(streams);
    let longest = timeout
        .saturating_add(grace)
        .saturating_add(SUPERVISOR_MARGIN);
    let started = AtomicI32::new(0);
    let report = bounded(longest, last_report(from_supervisor, &started));
    tokio::pin!(report);
    // Whichever ends first: a program may close its output, or leave it to what it has started.
    let (report, ended) = tokio::select! {
        report = &mut report => (report, None),
        ended = &mut streams => (report.await, Some(ended)),
    };
    if report.is_none() {
        // It is killed, and what it has left behind.
        drop(lifeline);
        let main = Pid::from_raw(started.load(Ordering::Relaxed));
        kill_orphans(supervisor, main, spec.stdin);
    }
    let ended = match ended {
        Some(ended) => Some(ended),
        None => tokio::time::timeout(OUTPUT_END, streams).await.ok(),
    };
    let _ = gone.await;
    let ((stdout, _), stderr) = ended.ok_or(ProgramError::Lost)?;
    let (status, cause) = match report.ok_or(ProgramError::Lost)? {
        Report::Ended { status, cause } => (status, cause),
        Report::Failed(failure) => return Err(ProgramError::of_start(failure, &spec.program)),
        Report::Started(_) => return Err(ProgramError::Lost),
    };
    let stdout = stdout?;
    match cause {
        Some(Cause::Timeout) => Err(ProgramError::Timeout {
            after: timeout,
            stderr,
        }),
        Some(Cause::TooManyProcesses) => {
            let sandbox = spec.sandbox.as_ref();
            let limit = sandbox.and_then(|sandbox| sandbox.processes);
            Err(ProgramError::TooManyProcesses {
                limit: limit.unwrap_or_default(),
                stderr,
            })
        }
        Some(Cause::Unneeded) => Err(ProgramError::Lost),
        None => Ok(ProgramOutcome {
            status,
            stdout,
            stderr,
        }),
    }
}

async fn bounded<T>(longest: Duration, wait: impl Future<Output = Option<T>>) -> Option<T> {
    // Far beyond any clock, there is no limit.
    match tokio::time::Instant::now().checked_add(longest) {
        Some(deadline) => tokio::time::timeout_at(deadline, wait).await.ok().flatten(),
        None => wait.await,
    }
}

/// Kills the program of a supervisor that was killed.
fn kill_orphans(supervisor: Option<Pid>, main: Option<Pid>, stdin: Stdin) {
    if let Some(main) = main {
        kill_descendants(main, None);
        let _ = kill_process(main, Signal::KILL);
    }
    // With the terminal, the session is ati's own.
    if let Some(supervisor) = supervisor.filter(|_| stdin == Stdin::Null) {
        kill_session(supervisor);
    }
}

/// What the supervisor says at the end. None where it ends without a word.
async fn last_report(from: OwnedReadHalf, started: &AtomicI32) -> Option<Report> {
    let mut from = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        let read = from.read_until(b'\n', &mut line).await.ok()?;
        if read == 0 || line.len() > LONGEST_REPORT {
            return None;
        }
        match serde_json::from_slice(&line).ok()? {
            Report::Started(pid) => started.store(pid, Ordering::Relaxed),
            report => return Some(report),
        }
    }
}

/// All that it takes to start a supervisor.
struct Start {
    message: Zeroizing<Vec<u8>>,
    user: Option<User>,
    remove: Vec<PathBuf>,
}

/// A supervisor with its program.
struct Running {
    control: UnixStream,
    stdout: ChildStdout,
    stderr: ChildStderr,
    /// Its process id, and its session where the program doesn't share ati's terminal.
    supervisor: Option<Pid>,
    /// Sent when the supervisor has been waited for, and the files of the call are removed.
    gone: oneshot::Receiver<()>,
    /// Dropped, it has a supervisor killed that doesn't end by itself.
    lifeline: oneshot::Sender<()>,
}

impl Start {
    fn prepare(spec: &ProgramSpec) -> Result<Self, ProgramError> {
        let not_started = |e: io::Error| ProgramError::of_spawn(&e, &spec.program);
        let program = find_program(&spec.program, &spec.env).map_err(not_started)?;
        let program = std::path::absolute(program).map_err(not_started)?;
        let user = spec.run_as.as_ref().map(RunAs::resolve).transpose();
        let user = user.map_err(|e| ProgramError::Spawn(e.to_string()))?;
        let confinement = spec.sandbox.as_ref().map(|sandbox| {
            let (read, write) = (spec.sandbox_read.clone(), spec.sandbox_write.clone());
            Confinement::new(sandbox.clone(), read, write)
        });
        let group = || getpgrp().as_raw_nonzero().get();
        let variable = |(name, value): &(String, Zeroizing<String>)| {
            (OsString::from(name), OsString::from(value.as_str()))
        };
        let mut plan = Plan {
            program: program.into(),
            args: spec.args.clone(),
            env: spec.env.iter().map(variable).collect(),
            terms: Terms {
                cwd: spec.cwd.clone(),
                timeout: spec.timeout,
                grace: spec.grace,
                terminal_group: (spec.stdin == Stdin::Inherit).then(group),
                identity: user.as_ref().map(|user| user.identity.to_string()),
                confinement,
                remove: spec.remove.clone(),
            },
        };
        let message = plan.to_message();
        plan.forget_env();
        let message = message.map_err(|e| ProgramError::Spawn(e.to_string()))?;
        let message = message.map_err(|HasNul| ProgramError::Nul)?;
        if message.len() > channel::LONGEST {
            return Err(ProgramError::TooLong);
        }
        Ok(Start {
            message,
            user,
            remove: spec.remove.clone(),
        })
    }

    async fn spawn(
        self,
        stdin: Stdin,
        grace: Duration,
        held: impl Send + 'static,
    ) -> Result<Running, ProgramError> {
        let children = CHILDREN.as_ref().ok_or(ProgramError::Lost)?;
        let failed = |e: io::Error| ProgramError::Spawn(e.to_string());
        let (ours, theirs) = StdUnixStream::pair().map_err(failed)?;
        let input = io::stdin();
        let input = (stdin == Stdin::Inherit).then(|| input.as_fd());
        channel::announce(&ours, self.message.len(), input).map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let mut control = UnixStream::from_std(ours).map_err(failed)?;
        let (lifeline, unneeded) = oneshot::channel();
        let (tell_gone, gone) = oneshot::channel();
        let (user, remove) = (self.user, self.remove);
        let spawned = children.spawn(async move {
            let mut child = spawn(theirs, stdin, user.is_some())?;
            let supervisor = pid_of(&child);
            let streams = (child.stdout.take(), child.stderr.take());
            tokio::spawn(async move {
                wait_for(child, unneeded, grace).await;
                let removed = tokio::task::spawn_blocking(move || {
                    // The supervisor has done so, unless it was killed.
                    remove_all(&remove);
                    drop(held);
                });
                let _ = removed.await;
                let _ = tell_gone.send(());
            });
            Ok::<_, io::Error>((supervisor, streams))
        });
        let spawned = spawned.await.map_err(|_| ProgramError::Lost)?;
        let (supervisor, (Some(stdout), Some(stderr))) = spawned.map_err(failed)? else {
            return Err(ProgramError::Lost);
        };
        // A supervisor that ends at once is found by its silence.
        let _ = control.write_all(&self.message).await;
        Ok(Running {
            control,
            stdout,
            stderr,
            supervisor,
            gone,
            lifeline,
        })
    }
}

fn spawn(control: StdUnixStream, stdin: Stdin, switches_users: bool) -> io::Result<Child> {
    let mut command = Command::new(EXECUTABLE.as_path());
    command
        .arg(role::OVERSEE)
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(control)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if stdin == Stdin::Inherit {
        // Out of reach of Ctrl-C: it has to end what doesn't end by itself.
        command.process_group(0);
    }
    if switches_users {
        capabilities::lend(capabilities::TO_SWITCH_USERS, || command.spawn())
    } else {
        command.spawn()
    }
}

fn pid_of(child: &Child) -> Option<Pid> {
    child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
}

/// Waits for a supervisor, and kills one that is needed no more and doesn't end by itself.
async fn wait_for(mut child: Child, unneeded: oneshot::Receiver<()>, grace: Duration) {
    let pid = pid_of(&child);
    tokio::select! {
        _ = child.wait() => return,
        _ = unneeded => {}
    }
    let longest = grace.saturating_add(SUPERVISOR_MARGIN);
    if tokio::time::timeout(longest, child.wait()).await.is_err() {
        if let Some(pid) = pid {
            kill_descendants(pid, None);
        }
        let _ = child.start_kill();
        let _ = child.wait().await;
    }
}
