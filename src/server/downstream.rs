//! A caller's connection, as Pingora's sessions want it: a socket behind a write buffer, so that an answer's header and its
//! first bytes leave together. (The buffer of Pingora's own stream can only be switched on by its own listeners.)

use std::io;
use std::os::fd::RawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use pingora_core::protocols::l4::socket::SocketAddr;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufWriter, ReadBuf};

/// A header and a short body.
const BUFFER: usize = 4096;
/// How long a caller has to take our last bytes.
const GOODBYE: Duration = Duration::from_secs(5);

/// What bytes come from and go to: a socket, or TLS over one.
pub trait Wire: AsyncRead + AsyncWrite + std::fmt::Debug + Unpin + Send + Sync + 'static {}

impl<S: AsyncRead + AsyncWrite + std::fmt::Debug + Unpin + Send + Sync + 'static> Wire for S {}

#[derive(Debug)]
pub struct Downstream<S> {
    wire: BufWriter<S>,
    socket: RawFd,
    digest: Arc<SocketDigest>,
    established: SystemTime,
}

impl<S: Wire> Downstream<S> {
    /// The peer is who the caller is taken to be.
    pub fn new(wire: S, socket: RawFd, peer: Option<SocketAddr>) -> Self {
        let digest = SocketDigest::from_raw_fd(socket);
        let _ = digest.peer_addr.set(peer);
        Downstream {
            wire: BufWriter::with_capacity(BUFFER, wire),
            socket,
            digest: Arc::new(digest),
            established: SystemTime::now(),
        }
    }
}

impl<S: Wire> AsyncRead for Downstream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Whoever looks for the caller has nothing to write at the moment: what was written needn't wait for more. Pingora itself
        // flushes an answer of a known length only at its end.
        if !self.wire.buffer().is_empty()
            && let Poll::Ready(Err(e)) = Pin::new(&mut self.wire).poll_flush(cx)
        {
            return Poll::Ready(Err(e));
        }
        Pin::new(&mut self.wire).poll_read(cx, buf)
    }
}

impl<S: Wire> AsyncWrite for Downstream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.wire).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(cx)
    }
}

#[async_trait]
impl<S: Wire> Shutdown for Downstream<S> {
    async fn shutdown(&mut self) {
        // A caller that is gone already needs no goodbye, and one that takes none gets none.
        let _ = tokio::time::timeout(GOODBYE, AsyncWriteExt::shutdown(self)).await;
    }
}

impl<S: Wire> UniqueID for Downstream<S> {
    fn id(&self) -> UniqueIDType {
        self.socket
    }
}

impl<S: Wire> GetTimingDigest for Downstream<S> {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        vec![Some(TimingDigest {
            established_ts: self.established,
            ..TimingDigest::default()
        })]
    }
}

impl<S: Wire> GetProxyDigest for Downstream<S> {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl<S: Wire> GetSocketDigest for Downstream<S> {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        Some(self.digest.clone())
    }
}

impl<S: Wire> Ssl for Downstream<S> {}
impl<S: Wire> Peek for Downstream<S> {}
