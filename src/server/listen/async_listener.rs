//! A listening socket that is registered with the runtime, and how it stops taking connections
//! without resetting those that wait in its backlog.

use std::io::{self, ErrorKind};
use std::time::Duration;

use socket2::{SockFilter, SockRef};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::timeout;
use tracing::warn;

use super::bind::BoundSocket;
use super::connection::Accepted;
use crate::error::{Code, Failure};

/// Pause after accept failed for want of descriptors: other connections have to close first.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How long a TCP handshake may take that was under way when new connections were blocked.
const HANDSHAKE_TIME: Duration = Duration::from_millis(20);

/// A BPF filter that drops what begins a TCP connection, a SYN without an ACK, and lets everything
/// else pass. A socket filter sees TCP's header first; its flags are in byte 13.
const DROP_NEW_CONNECTIONS: [SockFilter; 5] = {
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

pub enum AsyncListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl AsyncListener {
    /// Registers the socket with the current runtime.
    pub fn register(socket: BoundSocket) -> Result<Self, Failure> {
        let registered = match socket {
            BoundSocket::Tcp(listener) => TcpListener::from_std(listener).map(AsyncListener::Tcp),
            BoundSocket::Unix(listener) => {
                UnixListener::from_std(listener).map(AsyncListener::Unix)
            }
        };
        registered
            .map_err(|e| Failure::new(Code::ExecutionFailed, "can't wait on a listener").because(e))
    }

    /// The next connection. Failures are logged and tried again.
    pub async fn accept(&self) -> Accepted {
        loop {
            match self.try_accept().await {
                Ok(accepted) => return accepted,
                Err(e) if is_callers_disconnect(&e) => {}
                Err(e) => {
                    warn!(error = %e, "accept failed");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// From now on the backlog only shrinks. A TCP caller that connects later sends its SYN again,
    /// and is refused once the socket is closed.
    pub fn block_new_connections(&self) {
        let blocked = match self {
            AsyncListener::Tcp(listener) => {
                SockRef::from(listener).attach_filter(&DROP_NEW_CONNECTIONS)
            }
            // On a TCP socket this would reset the backlog.
            AsyncListener::Unix(listener) => {
                SockRef::from(listener).shutdown(std::net::Shutdown::Read)
            }
        };
        if let Err(e) = blocked {
            warn!(error = %e, "new connections not blocked: callers connecting now may be reset");
        }
    }

    /// Removes the filter of [`Self::block_new_connections`]. It belongs to the socket, so a
    /// process that had the socket before, or has it too, may have attached it.
    pub fn unblock_new_connections(&self) {
        if let AsyncListener::Tcp(listener) = self
            && let Err(e) = SockRef::from(listener).detach_filter()
            // There is no filter, as a rule.
            && e.kind() != ErrorKind::NotFound
        {
            warn!(error = %e, "SYN filter not removed: listener accepts no connections");
        }
    }

    /// The next connection that was in the backlog when new ones were blocked. None once the
    /// backlog is empty.
    pub async fn accept_from_backlog(&self) -> Option<Accepted> {
        match self {
            AsyncListener::Tcp(_) => loop {
                match timeout(HANDSHAKE_TIME, self.try_accept()).await {
                    Ok(Ok(accepted)) => return Some(accepted),
                    Ok(Err(_)) => tokio::task::yield_now().await,
                    Err(_) => return None,
                }
            },
            // A Unix socket has no handshake to wait for. Tokio takes a socket that was shut down
            // for ready for ever, so it is asked directly.
            AsyncListener::Unix(listener) => {
                let (stream, _) = SockRef::from(listener).accept().ok()?;
                stream.set_nonblocking(true).ok()?;
                Some(Accepted::Unix(stream.into()))
            }
        }
    }

    async fn try_accept(&self) -> io::Result<Accepted> {
        match self {
            AsyncListener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Accepted::Tcp(stream.into_std()?, peer))
            }
            AsyncListener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok(Accepted::Unix(stream.into_std()?))
            }
        }
    }
}

/// The caller disconnected between its SYN and the accept.
fn is_callers_disconnect(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::InvalidInput
            | ErrorKind::NotConnected
            | ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn listener_blocked_by_another_process_accepts_again_after_unblocking() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        let of_predecessor = BoundSocket::Tcp(socket.try_clone().unwrap());
        let of_predecessor = AsyncListener::register(of_predecessor).unwrap();
        let own = AsyncListener::register(BoundSocket::Tcp(socket)).unwrap();
        // There is no filter to remove.
        own.unblock_new_connections();
        of_predecessor.block_new_connections();
        let short = Duration::from_millis(100);
        assert!(std::net::TcpStream::connect_timeout(&address, short).is_err());
        own.unblock_new_connections();
        let long = Duration::from_secs(10);
        assert!(std::net::TcpStream::connect_timeout(&address, long).is_ok());
    }
}
