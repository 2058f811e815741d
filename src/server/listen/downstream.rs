//! A caller's connection as the stream type of Pingora's sessions: a socket behind a write buffer,
//! so that a response's header and its first bytes leave in one system call. (Only Pingora's own
//! listeners can switch on the buffer of Pingora's own stream.) Over HTTP/1 the connection's watch
//! sees the bytes before Pingora parses them. A request that the short way hands over is read from
//! here too: its first bytes are those that the short way has read already, and it ends where the
//! next one begins.

use std::io;
use std::os::fd::RawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::{Buf, BytesMut};
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
use crate::gateway::short::CallerStream;

/// Enough for a header and a short body.
const BUFFER: usize = 4096;
/// Bytes of further requests that are read while Pingora serves one that was handed over.
const LOOK_AHEAD: usize = 16 << 10;
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
pub struct Downstream {
    stream: BufWriter<Box<dyn ByteStream>>,
    handed_over: HandedOver,
    socket: RawFd,
    digest: Arc<SocketDigest>,
    established: SystemTime,
    /// Only HTTP/1 has heads in the bytes of its connection; HTTP/2's library has its own limits.
    heads: Option<WatchedHeads>,
}

/// What the short way has handed over.
#[derive(Debug, Default)]
struct HandedOver {
    /// Bytes that are unread by Pingora.
    unread: BytesMut,
    /// Bytes that are left of the request that was handed over. None: Pingora has the connection.
    left: Option<u64>,
    /// Behind the request, the connection seems to end.
    is_cut: bool,
}

impl Downstream {
    /// `peer` is the caller's address: the socket's, or the one in a trusted PROXY header.
    pub fn new(stream: Box<dyn ByteStream>, socket: RawFd, peer: Option<SocketAddr>) -> Self {
        let digest = SocketDigest::from_raw_fd(socket);
        let _ = digest.peer_addr.set(peer);
        Downstream {
            stream: BufWriter::with_capacity(BUFFER, stream),
            handed_over: HandedOver::default(),
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

    /// The connection itself, for the short way.
    pub fn bare(&mut self) -> &mut dyn CallerStream {
        self.stream.get_mut()
    }

    /// The same connection without a write buffer, as long as the short way has it.
    pub fn unbuffered(mut self) -> Self {
        self.set_buffer(0);
        self
    }

    /// Only while nothing is in the write buffer.
    fn set_buffer(&mut self, capacity: usize) {
        let nothing: Box<dyn ByteStream> = Box::new(tokio::io::empty());
        let before = std::mem::replace(&mut self.stream, BufWriter::with_capacity(0, nothing));
        self.stream = BufWriter::with_capacity(capacity, before.into_inner());
    }

    /// The next request is Pingora's.
    pub fn hand_over(&mut self, unread: BytesMut, end: Option<u64>, is_cut: bool) {
        self.set_buffer(BUFFER);
        if let Some(heads) = &mut self.heads {
            heads.watch.handed_over();
            heads.reader = HeadReader::new(heads.watch.clone());
        }
        self.handed_over = HandedOver {
            unread,
            left: end,
            is_cut,
        };
    }

    /// What came behind a request that was handed over. None: the request wasn't read to its end,
    /// or its answer not written. Pingora flushes what it wrote before it gives a connection back.
    pub fn take_back(&mut self) -> Option<BytesMut> {
        let HandedOver { unread, left, .. } = std::mem::take(&mut self.handed_over);
        if let Some(heads) = &self.heads {
            heads.watch.forget();
        }
        if left != Some(0) || !self.stream.buffer().is_empty() {
            return None;
        }
        self.set_buffer(0);
        Some(unread)
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

/// Where Pingora's bytes come from.
struct Source<'a> {
    stream: &'a mut BufWriter<Box<dyn ByteStream>>,
    handed_over: &'a mut HandedOver,
}

impl AsyncRead for Source<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Source {
            stream,
            handed_over,
        } = &mut *self;
        if handed_over.left == Some(0) {
            return handed_over.poll_end(Pin::new(stream), cx);
        }
        let left = handed_over.left.unwrap_or(u64::MAX);
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        let length = if handed_over.unread.is_empty() {
            if handed_over.left.is_none() {
                return Pin::new(stream).poll_read(cx, buf);
            }
            let most = most.min(buf.remaining());
            let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
            ready!(Pin::new(stream).poll_read(cx, &mut part))?;
            let length = part.filled().len();
            buf.advance(length);
            length
        } else {
            let unread = &mut handed_over.unread;
            let length = unread.len().min(buf.remaining()).min(most);
            buf.put_slice(&unread[..length]);
            unread.advance(length);
            length
        };
        if let Some(left) = &mut handed_over.left {
            *left -= length as u64;
        }
        Poll::Ready(Ok(()))
    }
}

impl HandedOver {
    /// Pingora reads behind the end of its request, to notice when the caller leaves.
    fn poll_end(
        &mut self,
        mut stream: Pin<&mut BufWriter<Box<dyn ByteStream>>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.is_cut && self.unread.len() < LOOK_AHEAD {
            let mut space = [0; 1024];
            let mut more = ReadBuf::new(&mut space);
            ready!(stream.as_mut().poll_read(cx, &mut more))?;
            if more.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.unread.extend_from_slice(more.filled());
        }
        if self.is_cut {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }
}

impl AsyncRead for Downstream {
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
        let Downstream {
            stream,
            heads,
            handed_over,
            ..
        } = &mut *self;
        let mut source = Source {
            stream,
            handed_over,
        };
        let Some(WatchedHeads { reader, watch }) = heads else {
            return Pin::new(&mut source).poll_read(cx, buf);
        };
        let before = buf.filled().len();
        ready!(reader.poll_read(Pin::new(&mut source), cx, buf))?;
        Poll::Ready(watch.received(&buf.filled()[before..]))
    }
}

impl AsyncWrite for Downstream {
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
impl Shutdown for Downstream {
    async fn shutdown(&mut self) {
        // Failure and timeout are ignored: the caller is gone, or doesn't read.
        let _ = tokio::time::timeout(SHUTDOWN_TIME, AsyncWriteExt::shutdown(self)).await;
    }
}

impl UniqueID for Downstream {
    fn id(&self) -> UniqueIDType {
        self.socket
    }
}

impl GetTimingDigest for Downstream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        vec![Some(TimingDigest {
            established_ts: self.established,
            ..TimingDigest::default()
        })]
    }
}

impl GetProxyDigest for Downstream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for Downstream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        Some(self.digest.clone())
    }
}

impl Ssl for Downstream {}
impl Peek for Downstream {}
