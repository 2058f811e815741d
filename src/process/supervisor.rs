//! The supervisor: a process of ati between the proxy and a resident child. It holds the read end
//! of the pipe that is the child's input. When the proxy ends, in whatever way, the pipe closes,
//! and the supervisor kills the child and everything that the child has started.

use std::ffi::OsString;
use std::io::stdin;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, kill_process, pidfd_open,
    set_child_subreaper, wait,
};

use super::lineage::kill_descendants;
use super::run_as::{Identity, become_user};

/// How long a child has to end after its input has closed.
const GRACE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(10);
/// Descendants are killed for so long. Processes that fork faster are left to the system's limits.
const KILL_TIME: Duration = Duration::from_secs(5);

/// Runs the program on the supervisor's own standard streams until the program ends, the input
/// closes or the parent process is gone. Returns the program's exit code. With an identity, both
/// run as that user.
pub fn supervise(
    program: &OsString,
    args: &[OsString],
    identity: Option<Identity>,
) -> std::io::Result<u8> {
    if let Some(identity) = identity {
        // As another user it could not.
        with_neutral_score("/proc/self/oom_score_adj", || become_user(identity))?;
    }
    let parent = getppid();
    let parent = parent.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    // A descendant whose parent has ended becomes a child of the supervisor, and is found.
    set_child_subreaper(Some(getpid()))?;
    let mut child = spawn_expendable(Command::new(program).args(args))?;
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

/// Resets the child's oom_score_adj to 0: it would inherit a negative one, and has to be killed
/// before the proxy and this supervisor when memory runs out. Without the permission to do so, the
/// child keeps the inherited one.
fn spawn_expendable(command: &mut Command) -> std::io::Result<Child> {
    with_neutral_score("/proc/self/oom_score_adj", || command.spawn())
}

/// Runs `spawn` while the score in this file is 0 instead of negative.
fn with_neutral_score<T>(file: &str, spawn: impl FnOnce() -> T) -> T {
    let inherited = std::fs::read_to_string(file).ok();
    let negative =
        inherited.filter(|score| score.trim().parse::<i32>().is_ok_and(|score| score < 0));
    if negative.is_some() {
        let _ = std::fs::write(file, "0");
    }
    let spawned = spawn();
    if let Some(score) = negative {
        let _ = std::fs::write(file, score.trim());
    }
    spawned
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
/// left.
fn kill_all(child: Option<Pid>) {
    if let Some(child) = child {
        let _ = kill_process(child, Signal::KILL);
    }
    let begun = Instant::now();
    while begun.elapsed() < KILL_TIME {
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        // Between the listing and a kill, a process may have forked.
        if kill_descendants(getpid(), None) == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_of_a_spared_process_is_not_spared_by_the_oom_killer() {
        // Few processes may lower the real score, so a file stands for it.
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("oom_score_adj");
        let path = file.to_str().unwrap();
        let score = || std::fs::read_to_string(&file).unwrap();
        for (before, inherited) in [("-100\n", "0"), ("0\n", "0\n"), ("300\n", "300\n")] {
            std::fs::write(&file, before).unwrap();
            assert_eq!(with_neutral_score(path, score), inherited);
            assert_eq!(score().trim(), before.trim());
        }
        // The real one, lowered where this process may do so.
        let real = "/proc/self/oom_score_adj";
        let before = std::fs::read_to_string(real).unwrap();
        let _ = std::fs::write(real, "-100");
        let lowered = std::fs::read_to_string(real).unwrap();
        let neutral = lowered.trim().parse::<i32>().unwrap().max(0);
        let mut command = Command::new("cat");
        let child = spawn_expendable(command.arg(real).stdout(std::process::Stdio::piped()));
        let said = child.unwrap().wait_with_output().unwrap().stdout;
        assert_eq!(String::from_utf8(said).unwrap().trim(), neutral.to_string());
        assert_eq!(std::fs::read_to_string(real).unwrap(), lowered);
        std::fs::write(real, before.trim()).unwrap();
    }
}
