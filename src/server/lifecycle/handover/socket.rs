//! The upgrade socket: who connects to it, and what for.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tracing::{debug, info, warn};

use super::peer::{Distrust, Peer, Trust};
use super::successor::serve_successor;
use super::wire::{RELOAD, STATUS, UPGRADE, receive_line, send_refusal};
use super::{
    ANSWER_TIME, HandoverListeners, NamedSocket, STOPPING, Successor, bind_upgrade_socket,
};
use crate::backoff::Backoff;
use crate::server::control::Control;
use crate::telemetry::Throttle;
use crate::telemetry::metrics::METRICS;

/// How long a connection may take to say what it is for.
const FIRST_LINE_TIME: Duration = Duration::from_secs(5);
const LONGEST_FIRST_LINE: usize = 128;
/// How long a process that asks for the listeners waits for another one's hand-over to end. It
/// gives up itself after [`ANSWER_TIME`].
const TURN_TIME: Duration = Duration::from_secs(5);
/// Connections that are served at a time, so that one user's mistake doesn't take all threads.
const MOST_CONNECTIONS: usize = 16;
/// After a failure to accept, which is a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often a socket that another process has is tried again.
const CLAIM: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// The `reason` of `ati_refusals_total`.
const DISTRUSTED: &str = "upgrade_socket";
const TAKEN: &str = "another process is taking over from it";
const SAYS_NOTHING: &str = "it was not told what the connection is for; a proxy of another \
    version can't take over";

/// What the connections of the upgrade socket work with.
pub struct UpgradeSocket {
    listeners: Arc<HandoverListeners>,
    /// Gets each successor that is ready.
    ready: UnboundedSender<Successor>,
    control: Control,
    trust: Trust,
    runtime: Handle,
    /// For the warning about processes that aren't trusted: one of them could fill the log.
    throttle: Throttle,
    /// Held during a hand-over: successors are served one after the other.
    handing_over: Mutex<()>,
    connections: Connections,
}

/// The connections that are served.
#[derive(Default)]
struct Connections(Arc<AtomicUsize>);

impl Connections {
    /// None where there are too many.
    fn begin(&self) -> Option<ServedConnection> {
        let served = ServedConnection(self.0.clone());
        (self.0.fetch_add(1, Ordering::AcqRel) < MOST_CONNECTIONS).then_some(served)
    }
}

/// A connection that is served, counted until it ends, however it ends.
struct ServedConnection(Arc<AtomicUsize>);

impl Drop for ServedConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl UpgradeSocket {
    /// In a runtime.
    pub fn new(
        listeners: Arc<HandoverListeners>,
        ready: UnboundedSender<Successor>,
        control: Control,
        trust: Trust,
    ) -> Arc<Self> {
        Arc::new(UpgradeSocket {
            listeners,
            ready,
            control,
            trust,
            runtime: Handle::current(),
            throttle: Throttle::new(),
            handing_over: Mutex::new(()),
            connections: Connections::default(),
        })
    }

    /// The process at the other end, if it is answered.
    fn recognise(&self, stream: &UnixStream) -> Option<Peer> {
        let peer = match Peer::of(stream, &self.runtime) {
            Ok(peer) => peer,
            Err(e) => {
                debug!(error = %e, "a connection to the upgrade socket has no known process");
                send_refusal(stream, &e.to_string());
                return None;
            }
        };
        match self.trust.admit(&peer) {
            Ok(()) => Some(peer),
            Err(distrust) => {
                self.refuse(stream, &peer, &distrust);
                None
            }
        }
    }

    fn refuse(&self, stream: &UnixStream, peer: &Peer, distrust: &Distrust) {
        METRICS.refused(DISTRUSTED);
        send_refusal(stream, &format!("it trusts no process that {distrust}"));
        if self.throttle.is_due() {
            let program = peer.program().map(|path| path.display().to_string());
            let pid = peer.pid();
            warn!(pid, program, reason = %distrust, "a process is refused at the upgrade socket");
        }
    }

    /// One connection, to its end.
    fn converse(&self, stream: UnixStream, peer: &Peer) {
        match first_line(&stream) {
            Ok(line) => match line.as_str() {
                // A process that looks whether the socket is in use.
                "" => debug!("a connection to the upgrade socket ended without a request"),
                UPGRADE => self.upgrade(stream, peer, None),
                STATUS => answer(&stream, &self.control.status()),
                RELOAD if self.listeners.is_serving() => {
                    // A successor that is starting may have read its files before.
                    self.listeners.note_reload();
                    answer(&stream, &self.control.reload());
                }
                RELOAD => send_refusal(&stream, STOPPING),
                line => match line.split_once(' ') {
                    Some((UPGRADE, said)) => self.upgrade(stream, peer, Some(said)),
                    _ => send_refusal(&stream, "it does not know this request"),
                },
            },
            Err(e) => {
                debug!(error = %e, "a connection to the upgrade socket sent no request");
                send_refusal(&stream, SAYS_NOTHING);
            }
        }
    }

    fn upgrade(&self, stream: UnixStream, peer: &Peer, invitation: Option<&str>) {
        if let Err(distrust) = self.trust.admit_successor(peer, invitation) {
            return self.refuse(&stream, peer, &distrust);
        }
        let Some(_turn) = self.handing_over.try_lock_for(TURN_TIME) else {
            return send_refusal(&stream, TAKEN);
        };
        if serve_successor(stream, peer, &self.listeners, &self.ready) {
            self.listeners.stop_serving();
        }
    }
}

/// Without its line break; empty where the connection ended.
fn first_line(stream: &UnixStream) -> io::Result<String> {
    stream.set_write_timeout(Some(ANSWER_TIME))?;
    receive_line(stream, LONGEST_FIRST_LINE, FIRST_LINE_TIME)
}

/// A command that has left needs no answer, so failures are ignored.
fn answer(mut stream: &UnixStream, value: &Value) {
    let _ = stream.write_all(format!("{}\n", json!({"answer": value})).as_bytes());
}

/// Serves the socket on a thread of its own, with a thread for each connection, until the process
/// stops or a successor has taken over. The socket is closed then: a process that is started while
/// this one drains has one of its own.
pub fn serve(socket: UnixListener, shared: Arc<UpgradeSocket>) -> io::Result<()> {
    let serving = shared.listeners.serve()?;
    socket.set_nonblocking(true)?;
    let accept = move || {
        while let Some(stream) = next_connection(&socket, &serving) {
            // Before it is counted: a process that isn't trusted takes no other's place.
            let Some(peer) = shared.recognise(&stream) else {
                continue;
            };
            let Some(served) = shared.connections.begin() else {
                send_refusal(&stream, "too many ask it at once");
                continue;
            };
            let of_thread = shared.clone();
            let converse = move || {
                let _served = served;
                of_thread.converse(stream, &peer);
            };
            let spawned = std::thread::Builder::new()
                .name("control".into())
                .spawn(converse);
            if let Err(e) = spawned {
                warn!(error = %e, "no thread for a connection to the upgrade socket");
            }
        }
    };
    std::thread::Builder::new()
        .name("upgrade".into())
        .spawn(accept)?;
    Ok(())
}

/// None once `serving` has ended.
fn next_connection(socket: &UnixListener, serving: &UnixStream) -> Option<UnixStream> {
    loop {
        let mut polled = [
            PollFd::new(socket, PollFlags::IN),
            PollFd::new(serving, PollFlags::IN),
        ];
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
        if !polled[1].revents().is_empty() {
            return None;
        }
        match socket.accept() {
            Ok((stream, _)) => return Some(stream),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => std::thread::sleep(ACCEPT_PAUSE),
        }
    }
}

/// Binds the socket once the process that has it is gone, which may be one that drains. Until then
/// this process can be neither upgraded nor asked.
pub async fn claim_later(path: PathBuf, shared: Arc<UpgradeSocket>) {
    let mut failures = 0;
    loop {
        failures += 1;
        tokio::time::sleep(CLAIM.delay(failures)).await;
        let Ok(socket) = bind_upgrade_socket(&path) else {
            continue;
        };
        let Ok(duplicate) = socket.as_fd().try_clone_to_owned() else {
            continue;
        };
        let added = shared.listeners.add(NamedSocket {
            name: super::UPGRADE.to_owned(),
            address: format!("unix:{}", path.display()),
            socket: duplicate,
        });
        if !added {
            return;
        }
        match serve(socket, shared) {
            Ok(()) => info!("the upgrade socket is this process's now: it can be upgraded"),
            Err(e) => warn!(error = %e, "this process can't be upgraded while it runs"),
        }
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_whose_thread_panics_gives_its_place_back() {
        let connections = Connections::default();
        for _ in 0..2 * MOST_CONNECTIONS {
            let served = connections.begin().unwrap();
            let panics = move || {
                let _served = served;
                panic!("on purpose");
            };
            assert!(std::thread::spawn(panics).join().is_err());
        }
        let held: Vec<_> = (0..MOST_CONNECTIONS)
            .map(|_| connections.begin().unwrap())
            .collect();
        assert!(connections.begin().is_none());
        // A refusal takes no place either.
        drop(held);
        assert_eq!(connections.0.load(Ordering::Acquire), 0);
    }
}
