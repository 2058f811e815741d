//! The successor's side of a hand-over: what the new process asks of the running one.

use std::io::{self, BufRead};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};
use tokio::io::AsyncBufReadExt;
use tracing::warn;

use super::wire::{MINE, READY, RELOAD, TOLD, UPGRADE, VERSION, YOURS};
use super::wire::{line_reader, receive_offer, refusal_reason, send_line};
use super::{ANSWER_TIME, InheritedListeners, NamedSocket};
use crate::error::{Code, Failure};

/// An ending process closes its connections a moment before it is gone.
const EXIT_TIME: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Connects to the upgrade socket of a running process.
pub fn connect(socket: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_TIME))?;
    stream.set_write_timeout(Some(ANSWER_TIME))?;
    Ok(stream)
}

/// The running process, which still accepts.
pub struct Predecessor {
    stream: UnixStream,
    pid: u32,
}

impl Predecessor {
    /// Connects to the upgrade socket and receives the listeners.
    pub fn request_listeners(socket: &Path) -> Result<(Self, InheritedListeners), Failure> {
        let failed = |what: &str| {
            let message = format!("can't take over through {}: {what}", socket.display());
            Failure::new(Code::ExecutionFailed, message)
        };
        let broken = |e: io::Error| failed("the connection failed").because(e);
        let not_running = |e: io::Error| {
            failed("no process listens there").because(e).hint(
                "no proxy with this folder and conf runs, or it drains, or it has no upgrade \
                 socket, as its log says; start without --upgrade",
            )
        };
        // Another user's process could hand out sockets of its own.
        let owner = std::fs::metadata(socket).map_err(not_running)?.uid();
        if owner != rustix::process::geteuid().as_raw() && owner != 0 {
            return Err(failed("it belongs to another user"));
        }
        let stream = connect(socket).map_err(not_running)?;
        // If this fails, the read below says why.
        let _ = send_line(&stream, UPGRADE);
        let (offer, sockets) = receive_offer(&stream).map_err(broken)?;
        if let Some(why) = offer.refused {
            return Err(failed(&why));
        }
        if offer.version != VERSION || offer.listeners.len() != sockets.len() {
            return Err(failed("the running proxy is of another version"));
        }
        let listeners = offer.listeners.into_iter().zip(sockets);
        let listeners = listeners.map(|(offered, socket)| NamedSocket {
            name: offered.name,
            address: offered.address,
            socket,
        });
        let pid = offer.pid;
        let inherited = InheritedListeners(listeners.collect());
        Ok((Predecessor { stream, pid }, inherited))
    }

    /// Sends `ready`, waits without a limit until the predecessor has stopped accepting, and
    /// commits with `mine`. When this returns Ok, this process accepts. None: the predecessor died.
    pub fn take_over(self) -> Result<Option<PredecessorStream>, Failure> {
        let failed = |what: &str| {
            let message = format!("the running proxy did not hand over: {what}");
            Failure::new(Code::ExecutionFailed, message)
        };
        let died = || {
            warn!("the old process has died");
            Ok(None)
        };
        // If this fails, the read below says why.
        let _ = send_line(&self.stream, &format!("{READY} {}", std::process::id()));
        let _ = self.stream.set_read_timeout(None);
        let mut answer = String::new();
        match line_reader(&self.stream).read_line(&mut answer) {
            Ok(0) if is_alive(self.pid) => Err(failed("it closed the connection")),
            Ok(0) => died(),
            Ok(_) if answer.trim_end() == YOURS => match send_line(&self.stream, MINE) {
                Ok(()) => Ok(Some(PredecessorStream(self.stream))),
                // `mine` came too late: the predecessor accepts again, so this process must not.
                Err(_) if is_alive(self.pid) => Err(failed("it no longer waits for us")),
                Err(_) => died(),
            },
            Ok(_) => {
                let why = refusal_reason(&answer);
                Err(failed(
                    why.as_deref().unwrap_or("it sent an unknown message"),
                ))
            }
            Err(e) => Err(failed("the connection failed").because(e)),
        }
    }
}

/// The connection to a predecessor that drains.
pub struct PredecessorStream(UnixStream);

impl PredecessorStream {
    /// Waits, for a bounded time, until the predecessor has told systemd about this process. The
    /// listeners are this process's either way, so a failure is only logged.
    pub async fn wait_until_announced(self) -> Option<ForwardedReloads> {
        let announced = async {
            self.0.set_nonblocking(true)?;
            let stream = tokio::net::UnixStream::from_std(self.0)?;
            let mut lines = tokio::io::BufReader::new(stream).lines();
            let told = lines.next_line().await?.is_some_and(|line| line == TOLD);
            Ok::<_, io::Error>(told.then_some(ForwardedReloads(lines)))
        };
        let announced = tokio::time::timeout(ANSWER_TIME, announced).await;
        let reloads = announced.ok().and_then(Result::ok).flatten();
        if reloads.is_none() {
            warn!("the old process did not confirm that systemd knows of this process");
        }
        reloads
    }
}

/// Reloads that the predecessor was asked for: an operator, or a script, may still know its pid.
pub struct ForwardedReloads(tokio::io::Lines<tokio::io::BufReader<tokio::net::UnixStream>>);

impl ForwardedReloads {
    /// True for the next reload, false once the predecessor has ended.
    pub async fn next(&mut self) -> bool {
        matches!(self.0.next_line().await, Ok(Some(line)) if line == RELOAD)
    }
}

/// False where the process has ended, or ends within [`EXIT_TIME`].
fn is_alive(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => {
            let mut polled = [PollFd::new(&process, PollFlags::IN)];
            let ended = poll(&mut polled, Some(&EXIT_TIME));
            !ended.is_ok_and(|count| count > 0)
        }
        Err(Errno::SRCH) => false,
        Err(_) => test_kill_process(pid).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[tokio::test]
    async fn predecessor_stream_gives_reloads_after_told_until_it_ends() {
        for (sent, announced, reloads) in [
            ("told\n", true, 0),
            ("told\nreload\nreload\n", true, 2),
            ("reload\n", false, 0),
            ("", false, 0),
        ] {
            let (stream, mut other) = UnixStream::pair().unwrap();
            other.write_all(sent.as_bytes()).unwrap();
            drop(other);
            let forwarded = PredecessorStream(stream).wait_until_announced().await;
            assert_eq!(forwarded.is_some(), announced, "{sent}");
            let mut count = 0;
            if let Some(mut forwarded) = forwarded {
                while forwarded.next().await {
                    count += 1;
                }
            }
            assert_eq!(count, reloads, "{sent}");
        }
    }

    #[test]
    fn take_over_without_an_answer_succeeds_only_if_the_predecessor_died() {
        let take_over = |sent: &[u8], pid: u32| {
            let (stream, mut other) = UnixStream::pair().unwrap();
            other.write_all(sent).unwrap();
            drop(other);
            Predecessor { stream, pid }.take_over()
        };
        let (alive, dead) = (std::process::id(), i32::MAX as u32);
        // It lives, and closed the connection: before `yours`, or after it waited for `mine`.
        assert!(take_over(b"", alive).is_err());
        assert!(take_over(b"yours\n", alive).is_err());
        assert!(take_over(b"", dead).is_ok_and(|stream| stream.is_none()));
        assert!(take_over(b"yours\n", dead).is_ok_and(|stream| stream.is_none()));
        // A zombie: it has ended, and its parent hasn't waited for it yet.
        let mut child = std::process::Command::new("true").spawn().unwrap();
        assert!(take_over(b"", child.id()).is_ok());
        child.wait().unwrap();
        let refused = br#"{"version":1,"pid":1,"refused":"it is stopping"}"#;
        let error = take_over(&[refused, &b"\n"[..]].concat(), 1).err().unwrap();
        assert!(error.to_string().contains("it is stopping"));
    }

    #[test]
    fn take_over_fails_if_the_predecessor_no_longer_reads() {
        let (stream, mut other) = UnixStream::pair().unwrap();
        other.write_all(b"yours\n").unwrap();
        other.shutdown(std::net::Shutdown::Read).unwrap();
        let predecessor = Predecessor {
            stream,
            pid: std::process::id(),
        };
        let error = predecessor.take_over().err().unwrap().to_string();
        assert!(error.contains("no longer waits"), "{error}");
    }
}
