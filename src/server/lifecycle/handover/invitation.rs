//! The invitation of a process that SIGUSR2 starts: a random text that only this process and the
//! one that it has started know. It is written to the new process's stdin, because arguments and
//! variables can be read by every process of the same user.

use std::io::{self, Read, Write};
use std::process::Child;

use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{getpid, getppid};
use tracing::warn;
use zeroize::Zeroizing;

/// Holds the pid of the process that wrote an invitation to stdin. A process that inherits the
/// variable from further above has another parent, and doesn't read its stdin.
pub const VARIABLE: &str = "ATI_RELAUNCHED_BY";
/// Bytes of randomness. On the wire they are hexadecimal.
const LENGTH: usize = 32;
/// The parent writes it as soon as the process runs.
const PATIENCE: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// The process that this one has started to take over from it.
#[derive(Default)]
pub struct Invitation(Mutex<Option<Invited>>);

struct Invited {
    pid: u32,
    secret: Zeroizing<String>,
}

impl Invitation {
    /// The value of [`VARIABLE`] for a child.
    pub fn variable() -> String {
        getpid().as_raw_nonzero().to_string()
    }

    /// Invites the process that has just been started, whose stdin is a pipe. It asks for the
    /// listeners only after it has read the secret, so that its pid is known here by then.
    pub fn send_to(&self, child: &mut Child) -> io::Result<()> {
        let mut random = Zeroizing::new([0; LENGTH]);
        let filled = SystemRandom::new().fill(&mut *random);
        filled.map_err(|_| io::Error::other("no random numbers"))?;
        let secret = Zeroizing::new(hex::encode(*random));
        let line = Zeroizing::new(format!("{}\n", *secret));
        *self.0.lock() = Some(Invited {
            pid: child.id(),
            secret,
        });
        let stdin = child.stdin.take();
        let mut stdin = stdin.ok_or_else(|| io::Error::other("it has no stdin"))?;
        stdin.write_all(line.as_bytes())
    }

    /// The process has ended.
    pub fn withdraw(&self, pid: u32) {
        let mut invited = self.0.lock();
        if invited.as_ref().is_some_and(|one| one.pid == pid) {
            *invited = None;
        }
    }

    pub fn is_for(&self, pid: u32) -> bool {
        self.0.lock().as_ref().is_some_and(|one| one.pid == pid)
    }

    /// The process that was invited last, if it hasn't ended.
    pub fn pid(&self) -> Option<u32> {
        self.0.lock().as_ref().map(|one| one.pid)
    }

    /// Whether this process was started to take over and says what it was given.
    pub fn admits(&self, pid: u32, secret: &str) -> bool {
        let invited = self.0.lock();
        invited
            .as_ref()
            .is_some_and(|one| one.pid == pid && *one.secret == secret)
    }
}

/// The invitation that this process was started with, if it was started by SIGUSR2. Its stdin is
/// empty from then on.
pub fn received(started_by: Option<&str>) -> Option<Zeroizing<String>> {
    let parent = getppid()?.as_raw_nonzero().to_string();
    if started_by != Some(parent.as_str()) {
        return None;
    }
    let received = read_line(io::stdin());
    let emptied =
        std::fs::File::open("/dev/null").and_then(|null| Ok(rustix::stdio::dup2_stdin(null)?));
    if let Err(e) = emptied {
        warn!(error = %e, "stdin can't be closed");
    }
    match received {
        Ok(secret) => Some(secret),
        Err(e) => {
            warn!(error = %e, "the process that started this one has not invited it");
            None
        }
    }
}

fn read_line(mut input: impl Read + std::os::fd::AsFd) -> io::Result<Zeroizing<String>> {
    let mut line = Zeroizing::new(vec![0; 2 * LENGTH]);
    let mut filled = 0;
    while filled < line.len() {
        let mut polled = [PollFd::new(&input, PollFlags::IN)];
        if poll(&mut polled, Some(&PATIENCE))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let read = input.read(&mut line[filled..])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        filled += read;
    }
    let text = std::str::from_utf8(&line).map_err(io::Error::other)?;
    Ok(Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn invitation_admits_the_process_that_it_was_sent_to_and_no_other() {
        let invitation = Invitation::default();
        let mut child = Command::new("head")
            .args(["-n", "1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id();
        assert!(!invitation.is_for(pid));
        invitation.send_to(&mut child).unwrap();
        let output = child.wait_with_output().unwrap().stdout;
        let secret = read_line(io::Cursor::new(output).into_pipe()).unwrap();
        assert_eq!(secret.len(), 2 * LENGTH);
        assert!(invitation.is_for(pid) && !invitation.is_for(pid + 1));
        assert!(invitation.admits(pid, &secret));
        assert!(!invitation.admits(pid + 1, &secret));
        assert!(!invitation.admits(pid, "") && !invitation.admits(pid, &secret[1..]));
        invitation.withdraw(pid + 1);
        assert_eq!(invitation.pid(), Some(pid));
        invitation.withdraw(pid);
        assert!(!invitation.admits(pid, &secret));
    }

    trait IntoPipe {
        fn into_pipe(self) -> io::PipeReader;
    }

    impl IntoPipe for io::Cursor<Vec<u8>> {
        fn into_pipe(self) -> io::PipeReader {
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(self.get_ref()).unwrap();
            reader
        }
    }

    #[test]
    fn process_without_an_invitation_leaves_its_stdin_alone() {
        assert!(received(None).is_none());
        assert!(received(Some("1 or so")).is_none());
        assert!(read_line(io::Cursor::new(b"short\n".to_vec()).into_pipe()).is_err());
    }
}
