//! The predecessor's side of a hand-over: what the running process gives to a new one.

use std::io::{self, BufRead};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::sync::mpsc::UnboundedSender;
use tracing::{info, warn};

use super::peer::Peer;
use super::wire::{MINE, READY, RELOAD, TOLD, YOURS};
use super::wire::{line_reader, receive_line, send_line, send_offer, send_refusal};
use super::{ANSWER_TIME, NamedSocket};
use crate::server::lifecycle::notify;
use crate::telemetry::otel;

/// How long a successor may take to get ready: it may have many files to read.
const START_TIME: Duration = Duration::from_secs(120);
const LONGEST_ANSWER: usize = 64;

pub const STOPPING: &str = "it is stopping";
const NOT_IN_CGROUP: &str = "systemd supervises it, and would not know the new process; \
    use systemctl kill --kill-whom=main -s SIGUSR2 on its unit";

/// The listeners that a successor may have, until the process stops.
pub struct HandoverListeners(Mutex<HandoverState>);

struct HandoverState {
    /// None once the process is stopping.
    listeners: Option<Vec<NamedSocket>>,
    /// The successor that got the listeners and isn't ready yet.
    pending: Option<UnixStream>,
    /// Whether a reload was asked for since the last offer.
    reload_since_offer: bool,
    /// Closed, it ends the thread that serves the upgrade socket.
    serving: Option<UnixStream>,
}

impl HandoverListeners {
    pub fn new(listeners: Vec<NamedSocket>) -> Arc<Self> {
        Arc::new(HandoverListeners(Mutex::new(HandoverState {
            listeners: Some(listeners),
            pending: None,
            reload_since_offer: false,
            serving: None,
        })))
    }

    /// A further listener. False once the process is stopping.
    pub fn add(&self, listener: NamedSocket) -> bool {
        let mut state = self.0.lock();
        let listeners = state.listeners.as_mut();
        listeners.map(|all| all.push(listener)).is_some()
    }

    /// The upgrade socket is served until the stream that this returns ends.
    pub fn serve(&self) -> io::Result<UnixStream> {
        let (kept, watched) = UnixStream::pair()?;
        let mut state = self.0.lock();
        if state.listeners.is_none() {
            return Err(io::Error::other(STOPPING));
        }
        state.serving = Some(kept);
        Ok(watched)
    }

    /// The upgrade socket is the successor's from now on.
    pub fn stop_serving(&self) {
        self.0.lock().serving = None;
    }

    /// Whether this process still answers for the service.
    pub fn is_serving(&self) -> bool {
        self.0.lock().serving.is_some()
    }

    /// Drops the sockets, so that they close with the accept loops. A successor that isn't ready
    /// yet is refused.
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.listeners = None;
        state.serving = None;
        if let Some(pending) = state.pending.take() {
            send_refusal(&pending, STOPPING);
        }
    }

    /// Notes that this process was asked to reload.
    pub fn note_reload(&self) {
        self.0.lock().reload_since_offer = true;
    }

    /// Whether the successor has to reload: it may have read its files before the request came.
    pub fn reload_since_offer(&self) -> bool {
        self.0.lock().reload_since_offer
    }

    fn offer(&self, stream: &UnixStream) -> io::Result<()> {
        let mut state = self.0.lock();
        state.reload_since_offer = false;
        let Some(listeners) = state.listeners.as_ref() else {
            return Err(io::Error::other(STOPPING));
        };
        send_offer(stream, listeners)?;
        state.pending = stream.try_clone().ok();
        Ok(())
    }

    fn clear_pending(&self) {
        self.0.lock().pending = None;
    }
}

/// A successor that is ready and waits for `yours`.
pub struct Successor {
    pub pid: u32,
    stream: UnixStream,
    /// Whether it took over. The thread that serves successors waits for this.
    took_over: mpsc::Sender<bool>,
}

impl Successor {
    /// Whether it still waits: its connection is open, and it has sent nothing more.
    pub fn is_waiting(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = recv(&self.stream, &mut [0_u8; 1][..], flags);
        matches!(peeked, Err(Errno::AGAIN))
    }

    /// Sends `yours` and waits for `mine`. True: the successor accepts. False: this process has to
    /// accept again.
    pub fn hand_over(&mut self) -> bool {
        let committed = self.commits_within(ANSWER_TIME);
        let _ = self.took_over.send(committed);
        committed
    }

    fn commits_within(&self, limit: Duration) -> bool {
        let mut reader = line_reader(&self.stream);
        let mut answer = String::new();
        let read = send_line(&self.stream, YOURS)
            .and_then(|()| self.stream.set_read_timeout(Some(limit)))
            .and_then(|()| reader.read_line(&mut answer));
        if read.is_err() {
            // From here on the successor's write of `mine` fails. One that succeeded before is in
            // the buffer, and counts: the successor accepts.
            let _ = self.stream.shutdown(Shutdown::Read);
            let _ = reader.read_line(&mut answer);
        }
        answer.trim_end() == MINE
    }

    /// systemd knows of the successor, which may now tell it that it is ready.
    pub fn confirm_announced(&self) {
        self.send(TOLD);
    }

    /// This process was asked to reload, which is the successor's to do.
    pub fn forward_reload(&self) {
        self.send(RELOAD);
    }

    fn send(&self, message: &str) {
        if let Err(e) = send_line(&self.stream, message) {
            warn!(message, error = %e, "a message to the new process was not sent");
        }
    }

    /// This process goes on.
    pub fn refuse(self, why: &str) {
        send_refusal(&self.stream, why);
        let _ = self.took_over.send(false);
    }

    pub fn refuse_because_stopping(self) {
        self.refuse(STOPPING);
    }
}

/// Hands the listeners over to a process that asks for them, and says whether it took over. Each
/// that is ready is sent to `ready`. Blocks until the outcome is known. The process must be
/// trusted.
pub fn serve_successor(
    stream: UnixStream,
    peer: &Peer,
    listeners: &HandoverListeners,
    ready: &UnboundedSender<Successor>,
) -> bool {
    let (pid, since) = (peer.pid(), Instant::now());
    let negotiated = negotiate(&stream, pid, listeners);
    listeners.clear_pending();
    if let Err(e) = negotiated {
        send_refusal(&stream, &e.to_string());
        warn!(pid, error = %e, "nothing was handed over, and everything goes on");
        otel::work("handover", since.elapsed(), false);
        return false;
    }
    let (took_over, verdict) = mpsc::channel();
    let successor = Successor {
        pid,
        stream,
        took_over,
    };
    if let Err(unsent) = ready.send(successor) {
        unsent.0.refuse_because_stopping();
    }
    verdict.recv().unwrap_or(false)
}

/// Gives the listeners to a process that asks, and waits until it is ready.
fn negotiate(stream: &UnixStream, pid: u32, listeners: &HandoverListeners) -> io::Result<()> {
    if notify::is_supervised() && !is_in_own_cgroup(pid) {
        return Err(io::Error::other(NOT_IN_CGROUP));
    }
    info!(pid, "a new process asks for the listeners");
    listeners.offer(stream)?;
    let answer = receive_line(stream, LONGEST_ANSWER, START_TIME)?;
    if answer != READY {
        return Err(io::Error::other("the new process did not get ready"));
    }
    Ok(())
}

/// systemd accepts a new main process only from the unit's own control group.
fn is_in_own_cgroup(pid: u32) -> bool {
    let cgroup = |process: &str| std::fs::read_to_string(format!("/proc/{process}/cgroup")).ok();
    let own = cgroup("self");
    own.is_some() && own == cgroup(&pid.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::super::tests::named_sockets;
    use super::super::wire::receive_offer;
    use super::*;

    #[test]
    fn closed_listeners_are_refused_with_a_reason() {
        let (old, new) = UnixStream::pair().unwrap();
        let closed = HandoverListeners::new(named_sockets(&[("edge", "127.0.0.1:0")]));
        closed.close();
        assert_eq!(closed.offer(&old).unwrap_err().to_string(), STOPPING);
        // A successor that has them already, and isn't ready.
        let listeners = HandoverListeners::new(named_sockets(&[("edge", "127.0.0.1:0")]));
        listeners.offer(&old).unwrap();
        assert_eq!(receive_offer(&new).unwrap().1.len(), 1);
        listeners.close();
        let (offer, sockets) = receive_offer(&new).unwrap();
        assert_eq!(offer.refused.as_deref(), Some(STOPPING));
        assert!(sockets.is_empty());
    }

    fn waiting_successor() -> (Successor, UnixStream, mpsc::Receiver<bool>) {
        let (stream, other) = UnixStream::pair().unwrap();
        let (took_over, verdict) = mpsc::channel();
        let successor = Successor {
            pid: 1,
            stream,
            took_over,
        };
        (successor, other, verdict)
    }

    #[test]
    fn successor_that_is_gone_does_not_take_over() {
        let (mut successor, other, verdict) = waiting_successor();
        assert!(successor.is_waiting());
        drop(other);
        assert!(!successor.is_waiting());
        assert!(!successor.hand_over());
        assert!(!verdict.recv().unwrap());
        let (mut successor, mut other, verdict) = waiting_successor();
        other.write_all(b"mine\n").unwrap();
        assert!(successor.hand_over());
        assert!(verdict.recv().unwrap());
    }

    #[test]
    fn late_commit_counts_if_it_was_sent_and_fails_to_be_sent_after_the_timeout() {
        // The time is over, but `mine` was sent before.
        let (successor, mut other, _) = waiting_successor();
        other.write_all(b"mine\n").unwrap();
        assert!(successor.commits_within(Duration::ZERO));
        successor.confirm_announced();
        successor.forward_reload();
        let mut received = String::new();
        drop(successor);
        other.read_to_string(&mut received).unwrap();
        assert_eq!(received, "yours\ntold\nreload\n");
        // It was not sent before, and can't be sent now.
        let (successor, mut other, _) = waiting_successor();
        assert!(!successor.commits_within(Duration::from_millis(1)));
        assert!(other.write_all(b"mine\n").is_err());
    }

    #[test]
    fn reload_counts_for_the_successor_only_after_the_offer() {
        let (old, _new) = UnixStream::pair().unwrap();
        let listeners = HandoverListeners::new(named_sockets(&[("edge", "127.0.0.1:0")]));
        listeners.note_reload();
        listeners.offer(&old).unwrap();
        assert!(!listeners.reload_since_offer());
        listeners.note_reload();
        assert!(listeners.reload_since_offer());
    }
}
