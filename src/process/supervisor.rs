//! A process of ours between us and a child that stays. It holds the other end of the pipe that we write to: when that closes, however we
//! ended, it ends the child and everything that the child has started.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::stdin;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, kill_process, pidfd_open,
    set_child_subreaper, wait,
};

/// How long a child that was told to end, by the end of its input, has for it.
const GRACE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(10);
/// Whoever forks faster than we kill for so long is left to the system's limits.
const HUNT: Duration = Duration::from_secs(5);

/// Run the program on our own standard streams until it ends, our input closes, or whoever started us is gone. Returns its exit code.
pub fn supervise(program: &OsString, args: &[OsString]) -> std::io::Result<u8> {
    let parent = getppid();
    let parent = parent.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    // Whoever leaves its parents becomes our child, and can't hide.
    set_child_subreaper(Some(getpid()))?;
    let mut child = spawn_expendable(Command::new(program).args(args))?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let ended = Arc::new(AtomicBool::new(false));
    let hunting = Arc::new(Mutex::new(()));
    {
        let (ended, hunting) = (ended.clone(), hunting.clone());
        std::thread::spawn(move || {
            wait_for_the_end(parent.as_ref());
            let told = Instant::now();
            while told.elapsed() < GRACE && !ended.load(Ordering::Acquire) {
                std::thread::sleep(TICK);
            }
            let _one = hunting.lock().unwrap_or_else(PoisonError::into_inner);
            end_all(pid.filter(|_| !ended.load(Ordering::Acquire)));
            std::process::exit(0);
        });
    }
    // The other thread may have counted it already; then it has ended, too.
    let status = child.wait();
    ended.store(true, Ordering::Release);
    let _one = hunting.lock().unwrap_or_else(PoisonError::into_inner);
    end_all(None);
    let code = status.map_or(1, |status| {
        let signalled = status.signal().map(|signal| 128 + signal);
        status.code().or(signalled).unwrap_or(1)
    });
    Ok(u8::try_from(code).unwrap_or(1))
}

/// Where memory runs out, the child goes before the appliance, whose place in that order it would inherit; and before us, who end what it has
/// started. Whoever has a place behind others may give it up, and have it back. Where that can't be done, it stays as it is.
fn spawn_expendable(command: &mut Command) -> std::io::Result<Child> {
    with_neutral_score("/proc/self/oom_score_adj", || command.spawn())
}

/// Runs `spawn` while the score in this file is 0 instead of negative.
fn with_neutral_score<T>(file: &str, spawn: impl FnOnce() -> T) -> T {
    let ours = std::fs::read_to_string(file).ok();
    let spared = ours.filter(|score| score.trim().parse::<i32>().is_ok_and(|score| score < 0));
    if spared.is_some() {
        let _ = std::fs::write(file, "0");
    }
    let spawned = spawn();
    if let Some(score) = spared {
        let _ = std::fs::write(file, score.trim());
    }
    spawned
}

/// Nobody writes to our input any more, or nobody is there to: a child can keep the pipe open, but not its reader's parent alive. What is in
/// the pipe is the child's, so it isn't read.
fn wait_for_the_end(parent: Option<&OwnedFd>) {
    let input = stdin();
    let over = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    loop {
        let mut fds = vec![PollFd::new(&input, PollFlags::empty())];
        fds.extend(parent.map(|parent| PollFd::new(parent, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) if fds[0].revents().intersects(over) => return,
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

/// The child first, which is known even where `/proc` isn't there; then until nobody is left.
fn end_all(child: Option<Pid>) {
    if let Some(child) = child {
        let _ = kill_process(child, Signal::KILL);
    }
    let begun = Instant::now();
    while begun.elapsed() < HUNT {
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        // Between a look and a kill, somebody may have been born.
        if end_descendants(getpid()) == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Kill everybody below this process. Returns how many there were.
pub fn end_descendants(of: Pid) -> usize {
    let found = descendants(of);
    for pid in &found {
        let _ = kill_process(*pid, Signal::KILL);
    }
    found.len()
}

/// Children, their children, and so on, but for those who only wait to be counted.
fn descendants(of: Pid) -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<(i32, bool)>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        if let Some((parent, lives)) = standing(&stat) {
            children.entry(parent).or_default().push((pid, lives));
        }
    }
    let mut found = Vec::new();
    let mut next = vec![of.as_raw_nonzero().get()];
    while let Some(pid) = next.pop() {
        for (child, lives) in children.remove(&pid).unwrap_or_default() {
            found.extend(Pid::from_raw(child).filter(|_| lives));
            next.push(child);
        }
    }
    found
}

/// From `/proc/<pid>/stat`: the parent, and whether it lives. The name in brackets may contain anything, brackets included. One whose first thread
/// has ended looks dead, and isn't while it has others.
fn standing(stat: &str) -> Option<(i32, bool)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let threads: u32 = fields
        .nth(15)
        .and_then(|field| field.parse().ok())
        .unwrap_or(1);
    Some((parent, state != "Z" || threads > 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_read_whatever_a_process_is_called() {
        assert_eq!(standing("12 (node) S 7 12 12 0"), Some((7, true)));
        assert_eq!(standing("12 (a) b) R 1) S 7 12"), Some((7, true)));
        assert_eq!(standing("12 (gone) Z 7 12"), Some((7, false)));
        let headless = "12 (a) Z 7 12 12 0 -1 4 0 0 0 0 0 0 0 0 20 0 2 0 99";
        assert_eq!(standing(headless), Some((7, true)));
        assert_eq!(standing("nonsense"), None);
        let ours = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert!(standing(&ours).unwrap().1);
    }

    #[test]
    fn a_child_is_not_spared_where_memory_runs_out() {
        // Few processes may lower the real score, so a file stands for it.
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("oom_score_adj");
        let path = file.to_str().unwrap();
        let score = || std::fs::read_to_string(&file).unwrap();
        for (ours, inherited) in [("-100\n", "0"), ("0\n", "0\n"), ("300\n", "300\n")] {
            std::fs::write(&file, ours).unwrap();
            assert_eq!(with_neutral_score(path, score), inherited);
            assert_eq!(score().trim(), ours.trim());
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
