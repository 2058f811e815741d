//! A process of ours between us and a child that stays. It holds the other end of the pipe that we write to: when that closes, however we
//! ended, it ends the child and everything that the child has started.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::stdin;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

/// How long a child that was told to end, by the end of its input, has for it.
const GRACE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(10);
/// Whoever forks faster than we kill for so long is left to the system's limits.
const HUNT: Duration = Duration::from_secs(5);

/// Run the program on our own standard streams until it ends or our input closes. Returns its exit code.
pub fn supervise(program: &OsString, args: &[OsString]) -> std::io::Result<u8> {
    // Whoever leaves its parents becomes our child, and can't hide.
    set_child_subreaper(Some(getpid()))?;
    let mut child = Command::new(program).args(args).spawn()?;
    let ended = Arc::new(AtomicBool::new(false));
    let hunting = Arc::new(Mutex::new(()));
    {
        let (ended, hunting) = (ended.clone(), hunting.clone());
        std::thread::spawn(move || {
            wait_for_hangup();
            let told = Instant::now();
            while told.elapsed() < GRACE && !ended.load(Ordering::Acquire) {
                std::thread::sleep(TICK);
            }
            let _one = hunting.lock().unwrap_or_else(PoisonError::into_inner);
            end_descendants();
            std::process::exit(0);
        });
    }
    let status = child.wait()?;
    ended.store(true, Ordering::Release);
    let _one = hunting.lock().unwrap_or_else(PoisonError::into_inner);
    end_descendants();
    let signalled = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(signalled).unwrap_or(1);
    Ok(u8::try_from(code).unwrap_or(1))
}

/// Nobody writes to our input any more. What is in it is the child's, so it isn't read.
fn wait_for_hangup() {
    let input = stdin();
    loop {
        let mut fds = [PollFd::new(&input, PollFlags::empty())];
        match poll(&mut fds, None) {
            Ok(_)
                if fds[0]
                    .revents()
                    .intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) =>
            {
                return;
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Kill until nobody is left: between a look and a kill, somebody may have been born.
fn end_descendants() {
    let begun = Instant::now();
    while begun.elapsed() < HUNT {
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        let found = descendants(getpid());
        if found.is_empty() {
            return;
        }
        for pid in found {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Children, their children, and so on.
fn descendants(of: Pid) -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        if let Some(parent) = parent(&stat) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![of.as_raw_nonzero().get()];
    while let Some(pid) = next.pop() {
        for child in children.remove(&pid).unwrap_or_default() {
            found.extend(Pid::from_raw(child));
            next.push(child);
        }
    }
    found
}

/// From `/proc/<pid>/stat`; the name in brackets may contain anything, brackets included. The dead who wait to be counted don't count.
fn parent(stat: &str) -> Option<i32> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z").then_some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_read_whatever_a_process_is_called() {
        assert_eq!(parent("12 (node) S 7 12 12 0"), Some(7));
        assert_eq!(parent("12 (a) b) R 1) S 7 12"), Some(7));
        assert_eq!(parent("12 (gone) Z 7 12"), None);
        assert_eq!(parent("nonsense"), None);
        let ours = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert!(parent(&ours).unwrap() > 0);
    }
}
