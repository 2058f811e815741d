//! Accept loops. One task takes connections and hands each to the least loaded worker, which alone polls it from then on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prometheus::IntGauge;
use socket2::{SockFilter, SockRef};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::warn;

use super::connection::{Accepted, Terms};
use super::listen::{Acceptor, Edge};
use super::workers::Workers;
use super::{Shared, admin, connection};
use crate::error::{Code, Failure};
use crate::telemetry::metrics::METRICS;

/// After accept fails for want of descriptors, others need a moment to give theirs back.
const BREATHE: Duration = Duration::from_millis(100);
/// When we leave, whoever waits in the backlog is served, but nobody keeps us longer than this.
const LAST_CALL: Duration = Duration::from_millis(200);
/// A handshake that was under way when the door was shut has this long to end.
const HANDSHAKE: Duration = Duration::from_millis(20);
/// Admin connections are few: a scraper and an operator.
const ADMIN_CONNECTIONS: usize = 64;
/// Connections over the limit that are told so at one time; the rest are closed without a word.
const TURNED_AWAY: usize = 64;
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
    content-length: 32\r\nretry-after: 1\r\nconnection: close\r\n\r\n{\"error\":\"too many connections\"}";

/// Counted while it lives, by the worker and by the metric.
pub struct Guard<C: Fn()> {
    leave: C,
    gauge: IntGauge,
}

impl<C: Fn()> Drop for Guard<C> {
    fn drop(&mut self) {
        (self.leave)();
        self.gauge.dec();
    }
}

/// A listener that is watched, and from which nothing has been taken yet.
pub struct Watched {
    listener: Listener,
    name: Arc<str>,
    proxy_protocol: bool,
}

pub fn watch(edge: Edge) -> Result<Watched, Failure> {
    Ok(Watched {
        listener: Listener::watch(edge.acceptor)?,
        name: edge.settings.name.into(),
        proxy_protocol: edge.settings.proxy_protocol,
    })
}

/// Take connections until the end, or until there is somebody else to take them; then the listener comes back.
pub fn edge(watched: Watched, workers: Workers, shared: Arc<Shared>) -> JoinHandle<Watched> {
    let Watched {
        listener,
        name,
        proxy_protocol,
    } = watched;
    let gauge = METRICS.connections(&name);
    let turned_away = Arc::new(AtomicUsize::new(0));
    let mut shutdown = shared.shutdown.clone();
    let mut pause = shared.pause.subscribe();
    listener.open_the_door();
    tokio::spawn(async move {
        let mut last_call: Option<Instant> = None;
        loop {
            // Who waits in the backlog of a socket that somebody else has too is theirs.
            if *pause.borrow_and_update() {
                break;
            }
            let accepted = if let Some(end) = last_call {
                let Ok(Some(accepted)) = timeout_at(end, listener.accept_last()).await else {
                    break;
                };
                accepted
            } else {
                tokio::select! {
                    biased;
                    _ = shutdown.wait_for(|down| *down) => {
                        // Closing the socket resets whoever waits in its backlog: first nobody new, then those.
                        listener.shut_the_door();
                        last_call = Some(Instant::now() + LAST_CALL);
                        continue;
                    }
                    accepted = listener.accept() => accepted,
                    _ = pause.changed() => continue,
                }
            };
            let terms = Terms::new(&name, proxy_protocol, &shared.current.load());
            let most = terms.limits.connections.min(shared.most_connections);
            if shared.open.load(Ordering::Acquire) >= most {
                turn_away(accepted, terms.tls.is_some(), &turned_away);
                continue;
            }
            let worker = workers.least_loaded().clone();
            worker.connections.fetch_add(1, Ordering::Relaxed);
            shared.open.fetch_add(1, Ordering::AcqRel);
            gauge.inc();
            let guard = Guard {
                leave: {
                    let (worker, shared) = (worker.clone(), shared.clone());
                    move || {
                        worker.connections.fetch_sub(1, Ordering::Relaxed);
                        shared.open.fetch_sub(1, Ordering::AcqRel);
                    }
                },
                gauge: gauge.clone(),
            };
            let shutdown = shared.shutdown.clone();
            let proxy = worker.proxy.clone();
            worker.runtime.spawn(async move {
                let _guard = guard;
                connection::serve(accepted, terms, proxy, shutdown).await;
            });
        }
        Watched {
            listener,
            name,
            proxy_protocol,
        }
    })
}

pub fn watch_admin(listener: std::net::TcpListener) -> Result<Listener, Failure> {
    Listener::watch(Acceptor::Tcp(listener))
}

pub fn admin(listener: Listener, shared: Arc<Shared>) -> JoinHandle<()> {
    let gauge = METRICS.connections("admin");
    tokio::spawn(async move {
        loop {
            let Accepted::Tcp(stream, peer) = listener.accept().await else {
                continue;
            };
            if usize::try_from(gauge.get()).unwrap_or(0) >= ADMIN_CONNECTIONS {
                continue;
            }
            gauge.inc();
            let guard = Guard {
                leave: || (),
                gauge: gauge.clone(),
            };
            let shared = shared.clone();
            tokio::spawn(async move {
                let _guard = guard;
                admin::serve(stream, peer, &shared).await;
            });
        }
    })
}

/// Drops what begins a connection, a SYN without an ACK, and lets everything else pass.
///
/// A filter sees TCP's header first; its flags are in byte 13.
const NO_NEW_CONNECTIONS: [SockFilter; 5] = {
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    const DROP: u32 = 0;
    const PASS: u32 = u32::MAX;
    let load_byte = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
    let and = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
    let jump_if_equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let end = (libc::BPF_RET | libc::BPF_K) as u16;
    [
        SockFilter::new(load_byte, 0, 0, 13),
        SockFilter::new(and, 0, 0, SYN | ACK),
        SockFilter::new(jump_if_equal, 0, 1, SYN),
        SockFilter::new(end, 0, 0, DROP),
        SockFilter::new(end, 0, 0, PASS),
    ]
};

pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    fn watch(acceptor: Acceptor) -> Result<Self, Failure> {
        let watched = match acceptor {
            Acceptor::Tcp(listener) => TcpListener::from_std(listener).map(Listener::Tcp),
            Acceptor::Unix(listener) => UnixListener::from_std(listener).map(Listener::Unix),
        };
        watched.map_err(|e| {
            let message = format!("can't watch a listener: {e}");
            Failure::new(Code::ExecutionFailed, message)
        })
    }

    async fn accept(&self) -> Accepted {
        loop {
            match self.try_accept().await {
                Ok(accepted) => return accepted,
                Err(e) if is_the_peers(&e) => {}
                Err(e) => {
                    warn!(error = %e, "accept failed");
                    tokio::time::sleep(BREATHE).await;
                }
            }
        }
    }

    /// From now on the backlog only shrinks. TCP callers that come now are refused when they try again, once the socket is closed.
    fn shut_the_door(&self) {
        let shut = match self {
            Listener::Tcp(listener) => SockRef::from(listener).attach_filter(&NO_NEW_CONNECTIONS),
            // On a TCP socket this would reset the backlog.
            Listener::Unix(listener) => SockRef::from(listener).shutdown(std::net::Shutdown::Read),
        };
        if let Err(e) = shut {
            warn!(error = %e, "callers that connect at this moment may be reset");
        }
    }

    /// Whoever had this socket before us, or has it too, may have shut the door on its way out.
    fn open_the_door(&self) {
        if let Listener::Tcp(listener) = self
            && let Err(e) = SockRef::from(listener).detach_filter()
            // There is none, as a rule.
            && e.kind() != std::io::ErrorKind::NotFound
        {
            warn!(error = %e, "a listener may hear nobody");
        }
    }

    /// The next of those who were there when the door was shut.
    async fn accept_last(&self) -> Option<Accepted> {
        match self {
            Listener::Tcp(_) => loop {
                match timeout(HANDSHAKE, self.try_accept()).await {
                    Ok(Ok(accepted)) => return Some(accepted),
                    Ok(Err(_)) => tokio::task::yield_now().await,
                    Err(_) => return None,
                }
            },
            // There is no handshake, and one that is shut is ready for ever in Tokio's eyes.
            Listener::Unix(listener) => {
                let (stream, _) = SockRef::from(listener).accept().ok()?;
                stream.set_nonblocking(true).ok()?;
                Some(Accepted::Unix(stream.into()))
            }
        }
    }

    async fn try_accept(&self) -> std::io::Result<Accepted> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Accepted::Tcp(stream.into_std()?, peer))
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok(Accepted::Unix(stream.into_std()?))
            }
        }
    }
}

/// The caller left between its SYN and our accept.
fn is_the_peers(e: &std::io::Error) -> bool {
    matches!(
        e.kind(),
        std::io::ErrorKind::ConnectionAborted
            | std::io::ErrorKind::ConnectionReset
            | std::io::ErrorKind::InvalidInput
            | std::io::ErrorKind::NotConnected
            | std::io::ErrorKind::Interrupted
    )
}

fn turn_away(accepted: Accepted, encrypted: bool, turned_away: &Arc<AtomicUsize>) {
    METRICS.refused("too_many_connections");
    // Whoever expects TLS would not understand; a handshake costs more than a refusal may.
    if encrypted || turned_away.load(Ordering::Relaxed) >= TURNED_AWAY {
        return;
    }
    turned_away.fetch_add(1, Ordering::Relaxed);
    let turned_away = turned_away.clone();
    tokio::spawn(async move {
        let telling = async {
            match accepted {
                Accepted::Tcp(stream, _) => tell(tokio::net::TcpStream::from_std(stream)?).await,
                Accepted::Unix(stream) => tell(tokio::net::UnixStream::from_std(stream)?).await,
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), telling).await;
        turned_away.fetch_sub(1, Ordering::Relaxed);
    });
}

async fn tell(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
    stream.write_all(BUSY).await?;
    stream.shutdown().await?;
    // Closing with unread bytes would reset the connection and lose the answer.
    let mut rest = [0; 4096];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_canned_answer_says_its_own_length() {
        let text = std::str::from_utf8(BUSY).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("content-length: {}\r\n", body.len())),
            "{}",
            body.len()
        );
    }

    #[tokio::test]
    async fn a_door_that_a_predecessor_shut_opens_again() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        let theirs = Acceptor::Tcp(socket.try_clone().unwrap());
        let (theirs, ours) = (
            Listener::watch(theirs).unwrap(),
            watch_admin(socket).unwrap(),
        );
        // Nothing to open.
        ours.open_the_door();
        theirs.shut_the_door();
        let patience = Duration::from_millis(100);
        assert!(std::net::TcpStream::connect_timeout(&address, patience).is_err());
        ours.open_the_door();
        let patience = Duration::from_secs(10);
        assert!(std::net::TcpStream::connect_timeout(&address, patience).is_ok());
    }
}
