//! Starts a program from its supervisor: at once, or through a second step that confines itself
//! before it becomes the program.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::channel;
use super::huge_pages;
use super::plan::Failure;
use super::resident::EXECUTABLE;
use super::role;
use super::sandbox::Confinement;

/// A folder of the sandbox may be on a machine that doesn't answer.
const CONFINING_TIME: Duration = Duration::from_secs(20);

/// A program and what it is started with. Its output is the supervisor's.
pub(super) struct Launch<'a> {
    pub program: &'a OsStr,
    pub args: &'a [OsString],
    /// The supervisor's own where there is none.
    pub env: Option<&'a [(OsString, OsString)]>,
    pub stdin: OwnedFd,
    /// The process group that it joins; 0 is one of its own. The supervisor's where there is none.
    pub group: Option<i32>,
    pub confinement: Option<&'a Confinement>,
}

impl Launch<'_> {
    pub fn start(self) -> Result<Child, Failure> {
        huge_pages::allow_again();
        match self.confinement {
            None => {
                let mut command = Command::new(self.program);
                self.prepare(&mut command);
                command.stdin(Stdio::from(self.stdin));
                spawn_expendable(&mut command).map_err(|e| Failure::exec(&e))
            }
            Some(confinement) => self.start_confined(confinement),
        }
    }

    fn prepare(&self, command: &mut Command) {
        command.args(self.args);
        if let Some(env) = self.env {
            let env = env.iter().map(|(name, value)| (name, value));
            command.env_clear().envs(env);
        }
        if let Some(group) = self.group {
            command.process_group(group);
        }
    }

    /// The second step is ati again, in the child. It gets what it has to know through a socket,
    /// and reports through it. The socket closes when the step becomes the program.
    fn start_confined(self, confinement: &Confinement) -> Result<Child, Failure> {
        let unready = |e: io::Error| Failure::Sandbox(e.to_string());
        let (mut ours, theirs) = UnixStream::pair().map_err(unready)?;
        let mut command = Command::new(EXECUTABLE.as_path());
        command.arg(role::CONFINE).arg("--").arg(self.program);
        self.prepare(&mut command);
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        // Too many bytes of arguments are found here.
        let mut child = spawn_expendable(&mut command).map_err(|e| match e.raw_os_error() {
            Some(libc::E2BIG) => Failure::Exec(libc::E2BIG),
            _ => unready(e),
        })?;
        // It holds the other end of the socket.
        drop(command);
        let mut tell = || {
            let message = serde_json::to_vec(confinement)?;
            channel::announce(&ours, message.len(), Some(self.stdin.as_fd()))?;
            ours.write_all(&message)?;
            ours.set_read_timeout(Some(CONFINING_TIME))?;
            let mut report = Vec::new();
            ours.read_to_end(&mut report)?;
            Ok::<_, io::Error>(report)
        };
        let failure = match tell() {
            Ok(report) if report.is_empty() => return Ok(child),
            Ok(report) => serde_json::from_slice(&report).unwrap_or_else(|e| unready(e.into())),
            Err(e) => unready(e),
        };
        let _ = child.kill();
        let _ = child.wait();
        Err(failure)
    }
}

pub(super) fn no_input() -> io::Result<OwnedFd> {
    Ok(File::open("/dev/null")?.into())
}

/// Resets the child's oom_score_adj to 0: it would inherit a negative one, and has to be killed
/// before the proxy and this supervisor when memory runs out. Without the permission to do so, the
/// child keeps the inherited one.
fn spawn_expendable(command: &mut Command) -> io::Result<Child> {
    with_neutral_score("/proc/self/oom_score_adj", || command.spawn())
}

/// Runs `spawn` while the score in this file is 0 instead of negative.
pub(super) fn with_neutral_score<T>(file: &str, spawn: impl FnOnce() -> T) -> T {
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
        let child = spawn_expendable(command.arg(real).stdout(Stdio::piped()));
        let said = child.unwrap().wait_with_output().unwrap().stdout;
        assert_eq!(String::from_utf8(said).unwrap().trim(), neutral.to_string());
        assert_eq!(std::fs::read_to_string(real).unwrap(), lowered);
        std::fs::write(real, before.trim()).unwrap();
    }
}
