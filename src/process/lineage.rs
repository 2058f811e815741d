//! Which process was started by which. The server adopts every process whose parent has ended, at
//! whatever depth below it, so that a program can't leave the server's descendants by letting its
//! parent end.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, set_child_subreaper, waitid,
};

/// A chain of parents is no longer than this.
const MOST_GENERATIONS: usize = 1000;
/// How often a chain of parents is read again that has changed while it was read.
const MOST_READINGS: usize = 5;
/// An ended process is looked at this often. One that is still there the next time has no owner:
/// ati's own children are waited for at once.
const REAP_INTERVAL: Duration = Duration::from_secs(5);

/// A process, told apart from a later one with the same id by when it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessId {
    pid: Pid,
    /// In the kernel's ticks since the machine started.
    started: u64,
}

impl ProcessId {
    pub fn own() -> io::Result<Self> {
        Self::of(getpid())
    }

    pub fn of(pid: Pid) -> io::Result<Self> {
        let started = read(pid)?.started;
        Ok(ProcessId { pid, started })
    }
}

/// Makes this process the parent of every descendant whose own parent has ended.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Waits for adopted processes that have ended, for ever.
pub async fn reap_adopted() {
    let mut before: Vec<Pid> = Vec::new();
    loop {
        tokio::time::sleep(REAP_INTERVAL).await;
        let ended: Vec<Pid> = children()
            .into_iter()
            .filter(|pid| has_ended(*pid))
            .collect();
        for pid in ended.iter().filter(|pid| before.contains(pid)) {
            let _ = waitid(
                WaitId::Pid(*pid),
                WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
            );
        }
        before = ended;
    }
}

/// The children of this process, those that have ended included.
fn children() -> Vec<Pid> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let lists = threads.filter_map(|thread| {
        let thread = thread.ok()?.path();
        std::fs::read_to_string(thread.join("children")).ok()
    });
    let pids = |list: String| -> Vec<Pid> {
        let numbers = list.split_whitespace();
        numbers
            .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
            .collect()
    };
    lists.flat_map(pids).collect()
}

/// Without taking its exit code away from whatever waits for it.
fn has_ended(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(child), options).is_ok_and(|status| status.is_some())
}

/// Whether one of these processes is this one or has, at whatever remove, started it.
pub fn descends_from(pid: Pid, ancestors: &[ProcessId]) -> io::Result<bool> {
    let mut failure = None;
    for _ in 0..MOST_READINGS {
        match walk_up(pid, ancestors) {
            Ok(found) => return Ok(found),
            // A parent may have ended after it was named as one.
            Err(e) => failure = Some(e),
        }
    }
    Err(failure.unwrap_or_else(|| io::Error::other("no reading")))
}

fn walk_up(pid: Pid, ancestors: &[ProcessId]) -> io::Result<bool> {
    let mut current = pid;
    let mut child_started = u64::MAX;
    for _ in 0..MOST_GENERATIONS {
        let stat = read(current)?;
        // No parent is younger than its child: this one has got the id of another.
        if stat.started > child_started {
            return Err(io::Error::other("a parent has ended"));
        }
        let id = ProcessId {
            pid: current,
            started: stat.started,
        };
        if ancestors.contains(&id) {
            return Ok(true);
        }
        match Pid::from_raw(stat.parent) {
            Some(parent) => current = parent,
            None => return Ok(false),
        }
        child_started = stat.started;
    }
    Err(io::Error::other("too many generations"))
}

/// Kills all descendants of this process but `spared` and what that one has started. Returns how
/// many there were.
pub fn kill_descendants(of: Pid, spared: Option<Pid>) -> usize {
    let found = descendants(of, spared);
    for pid in &found {
        let _ = kill_process(*pid, Signal::KILL);
    }
    found.len()
}

/// Kills all processes of a session, which is named after the process that made it.
pub(super) fn kill_session(session: Pid) {
    let session = session.as_raw_nonzero().get();
    for _ in 0..MOST_READINGS {
        let all = processes();
        let found = all.filter(|(_, stat)| stat.session == session && stat.lives);
        let found: Vec<Pid> = found.filter_map(|(pid, _)| Pid::from_raw(pid)).collect();
        for pid in &found {
            let _ = kill_process(*pid, Signal::KILL);
        }
        // Between the listing and a kill, a process may have forked.
        if found.is_empty() {
            return;
        }
    }
}

fn processes() -> impl Iterator<Item = (i32, Stat)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse::<i32>().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        Some((pid, Stat::parse(&stat)?))
    })
}

/// Children, their children, and so on, without zombies.
pub(super) fn descendants(of: Pid, spared: Option<Pid>) -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<(i32, bool)>> = HashMap::new();
    for (pid, stat) in processes() {
        let siblings = children.entry(stat.parent).or_default();
        siblings.push((pid, stat.lives));
    }
    let spared = spared.map(|pid| pid.as_raw_nonzero().get());
    let mut found = Vec::new();
    let mut next = vec![of.as_raw_nonzero().get()];
    while let Some(pid) = next.pop() {
        for (child, lives) in children.remove(&pid).unwrap_or_default() {
            if spared == Some(child) {
                continue;
            }
            found.extend(Pid::from_raw(child).filter(|_| lives));
            next.push(child);
        }
    }
    found
}

/// What ati reads of `/proc/<pid>/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: i32,
    session: i32,
    /// A process whose first thread has ended is shown as a zombie, but lives while it has other
    /// threads.
    lives: bool,
    /// In the kernel's ticks since the machine started.
    started: u64,
}

impl Stat {
    /// The name in brackets may contain anything, brackets included.
    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
        Some(Stat {
            parent: fields.get(1)?.parse().ok()?,
            session: fields
                .get(3)
                .and_then(|it| it.parse().ok())
                .unwrap_or_default(),
            lives: *fields.first()? != "Z" || number(17).is_some_and(|threads| threads > 1),
            started: number(19).unwrap_or_default(),
        })
    }
}

fn read(pid: Pid) -> io::Result<Stat> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))?;
    Stat::parse(&stat).ok_or_else(|| io::Error::other("/proc can't be read"))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn parent_is_read_whatever_the_process_is_called() {
        let stat = |text: &str| Stat::parse(text).map(|stat| (stat.parent, stat.lives));
        assert_eq!(stat("12 (node) S 7 12 12 0"), Some((7, true)));
        assert_eq!(stat("12 (a) b) R 1) S 7 12"), Some((7, true)));
        assert_eq!(stat("12 (gone) Z 7 12"), Some((7, false)));
        let headless = "12 (a) Z 7 12 12 0 -1 4 0 0 0 0 0 0 0 0 20 0 2 0 99";
        assert_eq!(stat(headless), Some((7, true)));
        assert_eq!(Stat::parse(headless).unwrap().started, 99);
        assert_eq!(stat("nonsense"), None);
        assert!(read(getpid()).unwrap().lives);
    }

    #[test]
    fn grandchild_descends_from_this_process_and_a_stranger_does_not() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        let grandchild = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        let own = ProcessId::own().unwrap();
        assert!(descends_from(grandchild, &[own]).unwrap());
        assert!(descends_from(own.pid, &[own]).unwrap());
        let parent = rustix::process::getppid().unwrap();
        assert!(!descends_from(parent, &[own]).unwrap());
        // Another process that had this one's id before.
        let former = ProcessId {
            started: own.started - 1,
            ..own
        };
        assert!(!descends_from(grandchild, &[former]).unwrap());
        let of_child = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(descendants(own.pid, None).contains(&grandchild));
        assert!(!descendants(own.pid, Some(of_child)).contains(&grandchild));
        assert_eq!(kill_descendants(of_child, None), 1);
        child.wait().unwrap();
        assert!(descends_from(grandchild, &[own]).is_err());
    }
}
