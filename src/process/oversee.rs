//! The supervisor of one program that runs to its end. Its standard input is a socket to ati: it
//! gets the plan through it, reports through it, and ends the program when the other end closes,
//! in whatever way ati ended. It adopts all descendants of the program, and leaves when none is
//! left.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process, pidfd_open,
    set_child_subreaper, setsid, wait,
};

use super::channel;
use super::launch::{Launch, no_input, with_neutral_score};
use super::lineage::descendants;
use super::plan::{Cause, Failure, Plan, Report, Status, Terms};
use super::run_as::{Identity, become_user};
use super::supervisor::kill_all;

/// What a program leaves behind has so long to end by itself, if the program's grace is no shorter.
const LEFTOVER_GRACE: Duration = Duration::from_secs(1);
/// Processes are counted this often, where they are limited.
const COUNT_INTERVAL: Duration = Duration::from_millis(50);
/// Adopted processes that have ended are waited for at least this often.
const REAP_INTERVAL: Duration = Duration::from_secs(1);
/// While processes are ending.
const END_INTERVAL: Duration = Duration::from_millis(5);

pub(super) fn oversee() -> io::Result<u8> {
    let control = channel::take()?;
    // ati may have ended by now.
    let (message, stdin) = channel::receive(&control)?;
    let mut plan = Plan::from_message(&message)?;
    drop(message);
    let report = match begin(&mut plan, stdin) {
        Ok(main) => {
            tell(&control, &Report::Started(main.as_raw_nonzero().get()));
            let (status, cause) = Watch::new(main, &plan.terms).until_gone(&control);
            Report::Ended { status, cause }
        }
        Err(failure) => Report::Failed(failure),
    };
    // It may be in a folder that is removed.
    let _ = std::env::set_current_dir("/");
    remove_all(&plan.terms.remove);
    tell(&control, &report);
    Ok(0)
}

/// ati may have ended, and needs no report then.
fn tell(mut control: &UnixStream, report: &Report) {
    if let Ok(mut line) = serde_json::to_vec(report) {
        line.push(b'\n');
        let _ = control.write_all(&line);
    }
}

/// Starts the program.
fn begin(plan: &mut Plan, stdin: Option<OwnedFd>) -> Result<Pid, Failure> {
    let other = |e: io::Error| Failure::Other(e.to_string());
    let terms = &plan.terms;
    if terms.terminal_group.is_none() {
        // Without a terminal: a program must not ask the operator of ati for a password. Fails for
        // the leader of a group, which it isn't.
        let _ = setsid();
    }
    if let Some(identity) = &terms.identity {
        let identity: Identity = identity.parse().map_err(io::Error::other).map_err(other)?;
        // As another user it could not.
        with_neutral_score("/proc/self/oom_score_adj", || become_user(identity)).map_err(other)?;
    }
    // A descendant whose parent has ended becomes a child of the supervisor, and is found.
    set_child_subreaper(Some(getpid())).map_err(|e| other(e.into()))?;
    if let Some(cwd) = &terms.cwd {
        let unusable = |e| Failure::Folder(format!("{}: {e}", cwd.display()));
        std::env::set_current_dir(cwd).map_err(unusable)?;
    }
    let launch = Launch {
        program: &plan.program,
        args: &plan.args,
        env: Some(&plan.env),
        stdin: stdin.map_or_else(no_input, Ok).map_err(other)?,
        group: Some(terms.terminal_group.unwrap_or(0)),
        confinement: terms.confinement.as_ref(),
    };
    let child = launch.start()?;
    plan.forget_env();
    let lost = || other(io::Error::other("it has no process id"));
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // The handle isn't needed: the watch waits for all children.
    pid.ok_or_else(lost)
}

/// Files and folders of a call. What isn't there any more is as good as removed.
pub(super) fn remove_all(paths: &[PathBuf]) {
    if paths.is_empty() {
        return;
    }
    for path in paths {
        let is_folder = path.symlink_metadata().is_ok_and(|it| it.is_dir());
        let _ = if is_folder {
            crate::files::remove_tree(path)
        } else {
            std::fs::remove_file(path)
        };
    }
}

/// A running program with its descendants.
struct Watch {
    main: Pid,
    /// Readable when the program has ended.
    ended: Option<OwnedFd>,
    status: Option<Status>,
    deadline: Instant,
    grace: Duration,
    most_processes: Option<u64>,
    ending: Option<Ending>,
}

/// After SIGTERM.
struct Ending {
    cause: Option<Cause>,
    /// When SIGKILL follows.
    kill: Instant,
}

impl Watch {
    fn new(main: Pid, terms: &Terms) -> Self {
        let now = Instant::now();
        let sandbox = terms.confinement.as_ref().map(|it| &it.sandbox);
        Watch {
            main,
            ended: pidfd_open(main, PidfdFlags::empty()).ok(),
            status: None,
            // A timeout of centuries is none.
            deadline: now.checked_add(terms.timeout).unwrap_or(now + YEAR),
            grace: terms.grace,
            most_processes: sandbox.and_then(|sandbox| sandbox.processes),
            ending: None,
        }
    }

    /// How the program ended, and why where the supervisor ended it. When this returns, the program
    /// and all its descendants are gone.
    fn until_gone(mut self, control: &UnixStream) -> (Status, Option<Cause>) {
        let mut connected = true;
        while self.has_children() {
            let now = Instant::now();
            match &self.ending {
                Some(ending) if now >= ending.kill => {
                    self.kill();
                    break;
                }
                Some(_) => {}
                None if self.status.is_some() => self.end(None, self.grace.min(LEFTOVER_GRACE)),
                None if !connected => self.end(Some(Cause::Unneeded), self.grace),
                None if now >= self.deadline => self.end(Some(Cause::Timeout), self.grace),
                None if self.has_too_many() => {
                    self.end(Some(Cause::TooManyProcesses), Duration::ZERO);
                }
                None => {}
            }
            connected &= self.wait_for_change(control, connected);
        }
        let cause = self.ending.and_then(|ending| ending.cause);
        // Without a status the kernel has lost it: a signal is the nearest to it.
        let killed = Status::Signal(Signal::KILL.as_raw());
        (self.status.unwrap_or(killed), cause)
    }

    /// Waits for the children that have ended. Whether there are others: then there may be further
    /// descendants, too, and otherwise there are none.
    fn has_children(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.main => self.status = status_of(status),
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn has_too_many(&self) -> bool {
        let most = self.most_processes;
        most.is_some_and(|most| descendants(getpid(), None).len() as u64 > most)
    }

    /// Asks all processes to end. SIGKILL follows after the grace.
    fn end(&mut self, cause: Option<Cause>, grace: Duration) {
        self.ending = Some(Ending {
            cause,
            kill: Instant::now() + grace,
        });
        if grace.is_zero() {
            return;
        }
        for pid in descendants(getpid(), None) {
            let _ = kill_process(pid, Signal::TERM);
            // A stopped one would not notice.
            let _ = kill_process(pid, Signal::CONT);
        }
    }

    fn kill(&mut self) {
        let main = self.main;
        let reaped = kill_all(self.status.is_none().then_some(main));
        let status = reaped.into_iter().find(|(pid, _)| *pid == main);
        if let Some((_, status)) = status {
            self.status = status_of(status);
        }
    }

    /// Waits until the program ends, the socket closes, or it is time to look again. Whether the
    /// socket is still open.
    fn wait_for_change(&self, control: &UnixStream, connected: bool) -> bool {
        let now = Instant::now();
        let pause = match &self.ending {
            Some(ending) => END_INTERVAL.min(ending.kill.saturating_duration_since(now)),
            None => {
                let counting = self
                    .most_processes
                    .map_or(REAP_INTERVAL, |_| COUNT_INTERVAL);
                // A kernel without such descriptors doesn't tell when it ends.
                let ended = if self.ended.is_some() {
                    REAP_INTERVAL
                } else {
                    END_INTERVAL
                };
                let left = self.deadline.saturating_duration_since(now);
                counting.min(ended).min(left)
            }
        };
        let mut fds = Vec::with_capacity(2);
        if connected {
            fds.push(PollFd::new(control, PollFlags::IN));
        }
        // It stays readable once the program has ended.
        if let Some(ended) = self.ended.as_ref().filter(|_| self.status.is_none()) {
            fds.push(PollFd::from_borrowed_fd(ended.as_fd(), PollFlags::IN));
        }
        let pause = Timespec::try_from(pause).ok();
        let _ = poll(&mut fds, pause.as_ref());
        // ati sends nothing more: whatever comes is the end.
        !connected || fds[0].revents().is_empty()
    }
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

fn status_of(status: WaitStatus) -> Option<Status> {
    let code = status.exit_status().map(Status::Code);
    code.or_else(|| status.terminating_signal().map(Status::Signal))
}
