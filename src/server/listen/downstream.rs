//! A caller's connection as the stream type of Pingora's sessions: a socket behind a write buffer,
//! so that a response's header and its first bytes leave in one system call. (Only Pingora's own
//! listeners can switch on the buffer of Pingora's own stream.) Over HTTP/1 the connection's watch
//! sees the bytes before Pingora parses them.

use std::io;
use std::os::fd::RawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use pingora_core::protocols::l4::socket::SocketAddr;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufWriter, ReadBuf};

use super::absolute_form::HeadReader;
use crate::error::header_too_large_response;
use crate::gateway::HeaderWatch;

/// Enough for a header and a short body.
const BUFFER: usize = 4096;
/// How long the caller has to receive the last bytes when the connection closes.
const SHUTDOWN_TIME: Duration = Duration::from_secs(5);

/// A socket, or TLS over one.
pub trait ByteStream:
    AsyncRead + AsyncWrite + std::fmt::Debug + Unpin + Send + Sync + 'static
{
}

impl<S> ByteStream for S where
    S: AsyncRead + AsyncWrite + std::fmt::Debug + Unpin + Send + Sync + 'static
{
}

#[derive(Debug)]
pub struct Downstream<S> {
    stream: BufWriter<S>,
    socket: RawFd,
    digest: Arc<SocketDigest>,
    established: SystemTime,
    /// Only HTTP/1 has heads in the bytes of its connection; HTTP/2's library has its own limits.
    heads: Option<WatchedHeads>,
}

impl<S: ByteStream> Downstream<S> {
    /// `peer` is the caller's address: the socket's, or the one in a trusted PROXY header.
    pub fn new(stream: S, socket: RawFd, peer: Option<SocketAddr>) -> Self {
        let digest = SocketDigest::from_raw_fd(socket);
        let _ = digest.peer_addr.set(peer);
        Downstream {
            stream: BufWriter::with_capacity(BUFFER, stream),
            socket,
            digest: Arc::new(digest),
            established: SystemTime::now(),
            heads: None,
        }
    }

    /// The same connection over HTTP/1, whose bytes this watch sees.
    pub fn watched_by(mut self, watch: Arc<HeaderWatch>) -> Self {
        let reader = HeadReader::new(watch.clone());
        self.heads = Some(WatchedHeads { reader, watch });
        self
    }

    /// Answers a header without end, and says that the caller has closed: Pingora then closes too.
    fn refuse_header(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let answer = header_too_large_response();
        match Pin::new(&mut self.stream).poll_write(cx, &answer) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(written) => Poll::Ready(written.map(drop)),
        }
    }
}

/// The heads of a connection's requests, on their way to Pingora.
#[derive(Debug)]
struct WatchedHeads {
    reader: HeadReader,
    /// Sees what Pingora gets.
    watch: Arc<HeaderWatch>,
}

impl<S: ByteStream> AsyncRead for Downstream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A session that reads has nothing more to write for now, so what it wrote is flushed.
        // Pingora flushes a response of known length only at its end.
        if !self.stream.buffer().is_empty()
            && let Poll::Ready(Err(e)) = Pin::new(&mut self.stream).poll_flush(cx)
        {
            return Poll::Ready(Err(e));
        }
        let heads = self.heads.as_ref();
        if heads.is_some_and(|heads| heads.watch.is_too_large()) {
            return self.refuse_header(cx);
        }
        let Downstream { stream, heads, .. } = &mut *self;
        let Some(WatchedHeads { reader, watch }) = heads else {
            return Pin::new(stream).poll_read(cx, buf);
        };
        let before = buf.filled().len();
        ready!(reader.poll_read(Pin::new(stream), cx, buf))?;
        Poll::Ready(watch.received(&buf.filled()[before..]))
    }
}

impl<S: ByteStream> AsyncWrite for Downstream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(heads) = &self.heads {
            heads.watch.wrote();
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[async_trait]
impl<S: ByteStream> Shutdown for Downstream<S> {
    async fn shutdown(&mut self) {
        // Failure and timeout are ignored: the caller is gone, or doesn't read.
        let _ = tokio::time::timeout(SHUTDOWN_TIME, AsyncWriteExt::shutdown(self)).await;
    }
}

impl<S: ByteStream> UniqueID for Downstream<S> {
    fn id(&self) -> UniqueIDType {
        self.socket
    }
}

impl<S: ByteStream> GetTimingDigest for Downstream<S> {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        vec![Some(TimingDigest {
            established_ts: self.established,
            ..TimingDigest::default()
        })]
    }
}

impl<S: ByteStream> GetProxyDigest for Downstream<S> {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl<S: ByteStream> GetSocketDigest for Downstream<S> {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        Some(self.digest.clone())
    }
}

impl<S: ByteStream> Ssl for Downstream<S> {}
impl<S: ByteStream> Peek for Downstream<S> {}
