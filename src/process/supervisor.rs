//! The supervisor: a process of ati between the proxy and a resident child. It holds the read end
//! of the pipe that is the child's input. When the proxy ends, in whatever way, the pipe closes,
//! and the supervisor kills the child and everything that the child has started.

use std::ffi::OsString;
use std::io::stdin;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process, pidfd_open,
    set_child_subreaper, wait,
};

use super::launch::{Launch, with_neutral_score};
use super::lineage::kill_descendants;
use super::run_as::{Identity, become_user};
use super::sandbox::Confinement;

/// How long a child has to end after its input has closed.
const GRACE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(10);
/// Descendants are killed for so long. Processes that fork faster are left to the system's limits.
const KILL_TIME: Duration = Duration::from_secs(5);

/// Runs the program on the supervisor's own standard streams until the program ends, the input
/// closes or the parent process is gone. Returns the program's exit code. With an identity, both
/// run as that user. With a confinement, the program is confined, and its supervisor isn't.
pub(super) fn supervise(
    program: &OsString,
    args: &[OsString],
    identity: Option<Identity>,
    confinement: Option<&Confinement>,
) -> std::io::Result<u8> {
    if let Some(identity) = identity {
        // As another user it could not.
        with_neutral_score("/proc/self/oom_score_adj", || become_user(identity))?;
    }
    let parent = getppid();
    let parent = parent.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    // A descendant whose parent has ended becomes a child of the supervisor, and is found.
    set_child_subreaper(Some(getpid()))?;
    let launch = Launch {
        program,
        args,
        env: None,
        stdin: stdin().as_fd().try_clone_to_owned()?,
        group: None,
        confinement,
    };
    let mut child = launch
        .start()
        .map_err(|e| std::io::Error::other(e.to_string()))?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let ended = Arc::new(AtomicBool::new(false));
    // Held by the one thread that kills.
    let killing = Arc::new(Mutex::new(()));
    {
        let (ended, killing) = (ended.clone(), killing.clone());
        std::thread::spawn(move || {
            wait_until_unneeded(parent.as_ref());
            let input_closed = Instant::now();
            while input_closed.elapsed() < GRACE && !ended.load(Ordering::Acquire) {
                std::thread::sleep(TICK);
            }
            let _turn = killing.lock();
            kill_all(pid.filter(|_| !ended.load(Ordering::Acquire)));
            std::process::exit(0);
        });
    }
    // Fails if the other thread has already waited for it; then it has ended as well.
    let status = child.wait();
    ended.store(true, Ordering::Release);
    let _turn = killing.lock();
    kill_all(None);
    let code = status.map_or(1, |status| {
        let signalled = status.signal().map(|signal| 128 + signal);
        status.code().or(signalled).unwrap_or(1)
    });
    Ok(u8::try_from(code).unwrap_or(1))
}

/// Waits until the input is closed or the parent is gone: a child can hold the pipe open, but not
/// keep the parent alive. The input isn't read, it belongs to the child.
fn wait_until_unneeded(parent: Option<&OwnedFd>) {
    let input = stdin();
    let closed = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    loop {
        let mut fds = vec![PollFd::new(&input, PollFlags::empty())];
        fds.extend(parent.map(|parent| PollFd::new(parent, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) if fds[0].revents().intersects(closed) => return,
            Ok(_)
                if fds
                    .get(1)
                    .is_some_and(|parent| !parent.revents().is_empty()) =>
            {
                return;
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Kills the child first, which is known even without `/proc`, then all descendants until none is
/// left. Returns how those ended that were waited for.
pub(super) fn kill_all(child: Option<Pid>) -> Vec<(Pid, WaitStatus)> {
    if let Some(child) = child {
        let _ = kill_process(child, Signal::KILL);
    }
    let mut ended = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < KILL_TIME {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(one)) => ended.push(one),
                // Without a child there is no further descendant.
                Err(rustix::io::Errno::CHILD) => return ended,
                Ok(None) | Err(_) => break,
            }
        }
        // Between the listing and a kill, a process may have forked.
        kill_descendants(getpid(), None);
        std::thread::sleep(Duration::from_millis(2));
    }
    ended
}
