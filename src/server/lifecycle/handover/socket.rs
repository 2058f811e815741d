//! The upgrade socket: who connects to it, and what for.

use std::io::{self, BufRead, BufReader, Read, Write};
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
use tokio::sync::mpsc::UnboundedSender;
use tracing::{debug, info, warn};

use super::successor::serve_successor;
use super::wire::{RELOAD, STATUS, UPGRADE, send_refusal};
use super::{
    ANSWER_TIME, HandoverListeners, NamedSocket, STOPPING, Successor, bind_upgrade_socket,
};
use crate::backoff::Backoff;
use crate::server::control::Control;

/// How long a connection may take to say what it is for.
const FIRST_LINE_TIME: Duration = Duration::from_secs(5);
const LONGEST_FIRST_LINE: u64 = 64;
/// Connections that are served at a time, so that one user's mistake doesn't take all threads.
const MOST_CONNECTIONS: usize = 16;
/// After a failure to accept, which is a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often a socket that another process has is tried again.
const CLAIM: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

const SAYS_NOTHING: &str = "it was not told what the connection is for; a proxy of another \
    version can't take over";

/// What the connections of the upgrade socket work with.
pub struct UpgradeSocket {
    listeners: Arc<HandoverListeners>,
    /// Gets each successor that is ready.
    ready: UnboundedSender<Successor>,
    control: Control,
    /// Held during a hand-over: successors are served one after the other.
    handing_over: Mutex<()>,
    connections: AtomicUsize,
}

impl UpgradeSocket {
    pub fn new(
        listeners: Arc<HandoverListeners>,
        ready: UnboundedSender<Successor>,
        control: Control,
    ) -> Arc<Self> {
        Arc::new(UpgradeSocket {
            listeners,
            ready,
            control,
            handing_over: Mutex::new(()),
            connections: AtomicUsize::new(0),
        })
    }

    /// One connection, to its end.
    fn converse(&self, stream: UnixStream) {
        match first_line(&stream) {
            Ok(line) => match line.as_str() {
                // A process that looks whether the socket is in use.
                "" => debug!("a connection to the upgrade socket ended without a request"),
                UPGRADE => {
                    let _turn = self.handing_over.lock();
                    if serve_successor(stream, &self.listeners, &self.ready) {
                        self.listeners.stop_serving();
                    }
                }
                STATUS => answer(&stream, &self.control.status()),
                RELOAD if self.listeners.is_serving() => {
                    // A successor that is starting may have read its files before.
                    self.listeners.note_reload();
                    answer(&stream, &self.control.reload());
                }
                RELOAD => send_refusal(&stream, STOPPING),
                _ => send_refusal(&stream, "it does not know this request"),
            },
            Err(e) => {
                debug!(error = %e, "a connection to the upgrade socket sent no request");
                send_refusal(&stream, SAYS_NOTHING);
            }
        }
    }
}

/// Without its line break; empty where the connection ended.
fn first_line(stream: &UnixStream) -> io::Result<String> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(FIRST_LINE_TIME))?;
    stream.set_write_timeout(Some(ANSWER_TIME))?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST_FIRST_LINE)).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
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
            if shared.connections.fetch_add(1, Ordering::AcqRel) >= MOST_CONNECTIONS {
                shared.connections.fetch_sub(1, Ordering::AcqRel);
                send_refusal(&stream, "too many ask it at once");
                continue;
            }
            let of_thread = shared.clone();
            let converse = move || {
                of_thread.converse(stream);
                of_thread.connections.fetch_sub(1, Ordering::AcqRel);
            };
            let spawned = std::thread::Builder::new()
                .name("control".into())
                .spawn(converse);
            if let Err(e) = spawned {
                shared.connections.fetch_sub(1, Ordering::AcqRel);
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
