//! Connections, and the idle ones of this thread.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::super::client::IDLE_TIMEOUT;
use super::super::idle::{Bounds, IdlePool, Quiet, is_quiet};
use super::super::origin::Origin;
use crate::http1::answer::Parser;

const BOUNDS: Bounds = Bounds {
    per_key: 256,
    total: 1024,
};
const SWEEP: Duration = Duration::from_secs(1);
/// Room for the head of an answer, and for most small answers.
const BUFFER: usize = 8 << 10;

/// What connections have to have in common with a request that uses them again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PoolKey {
    /// [`super::Clients::id`]: another id may mean other certificates, and another guard.
    pub clients: u64,
    pub source: Option<IpAddr>,
    pub origin: Arc<Origin>,
}

pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

pub(super) struct Connection {
    pub stream: Stream,
    /// What was read and isn't used yet.
    pub buffer: Vec<u8>,
    /// Kept with the connection, because it keeps its memory.
    pub parser: Parser,
}

impl Connection {
    pub(super) fn new(stream: Stream) -> Self {
        Connection {
            stream,
            buffer: Vec::with_capacity(BUFFER),
            parser: Parser::default(),
        }
    }
}

impl Quiet for Connection {
    fn is_quiet(&mut self) -> bool {
        match &mut self.stream {
            Stream::Plain(stream) => stream.is_quiet(),
            Stream::Tls(stream) => is_quiet(stream),
        }
    }
}

thread_local! {
    static IDLE: RefCell<IdlePool<PoolKey, Connection>> = RefCell::new(IdlePool::new(BOUNDS));
    static IS_SWEPT: Cell<bool> = const { Cell::new(false) };
}

pub(super) fn take(key: &PoolKey) -> Option<Connection> {
    IDLE.with_borrow_mut(|idle| idle.take(key, Instant::now()))
}

/// Keeps a connection for the next request, if its answer left nothing behind.
pub(super) fn put(key: &PoolKey, mut connection: Connection) {
    if !connection.buffer.is_empty() {
        return;
    }
    connection.buffer.shrink_to(BUFFER);
    let now = Instant::now();
    IDLE.with_borrow_mut(|idle| idle.put(key, connection, now, now + IDLE_TIMEOUT));
    if !IS_SWEPT.replace(true) {
        tokio::spawn(sweep());
    }
}

/// Closes what idles for too long, and ends with the last idle connection. There is one such task
/// per thread: all runtimes of ati have one thread each.
async fn sweep() {
    struct End;
    impl Drop for End {
        /// Also where the runtime ends: its connections can't be used in another one.
        fn drop(&mut self) {
            IS_SWEPT.set(false);
            IDLE.with_borrow_mut(IdlePool::clear);
        }
    }
    let end = End;
    loop {
        tokio::time::sleep(SWEEP).await;
        let left = IDLE.with_borrow_mut(|idle| idle.sweep(Instant::now()));
        if left == 0 {
            break;
        }
    }
    drop(end);
}

#[cfg(test)]
pub(super) fn idle_connections() -> usize {
    IDLE.with_borrow(IdlePool::len)
}
