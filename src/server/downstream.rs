//! A caller's connection, as Pingora's sessions want it: a socket behind a write buffer, so that an answer's header and its
//! first bytes leave together. (The buffer of Pingora's own stream can only be switched on by its own listeners.)

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use async_trait::async_trait;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufWriter, ReadBuf};
use tokio::net::TcpStream;

/// A header and a short body.
const BUFFER: usize = 4096;

#[derive(Debug)]
pub struct Downstream {
    socket: BufWriter<TcpStream>,
    digest: Arc<SocketDigest>,
    established: SystemTime,
}

impl Downstream {
    /// Must run on the worker that will serve it.
    pub fn new(socket: std::net::TcpStream, peer: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::from_std(socket)?;
        let digest = SocketDigest::from_raw_fd(socket.as_raw_fd());
        let _ = digest.peer_addr.set(Some(peer.into()));
        Ok(Downstream {
            socket: BufWriter::with_capacity(BUFFER, socket),
            digest: Arc::new(digest),
            established: SystemTime::now(),
        })
    }
}

impl AsyncRead for Downstream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for Downstream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[async_trait]
impl Shutdown for Downstream {
    async fn shutdown(&mut self) {
        // A caller that is gone already needs no goodbye.
        let _ = AsyncWriteExt::shutdown(self).await;
    }
}

impl UniqueID for Downstream {
    fn id(&self) -> UniqueIDType {
        self.socket.get_ref().as_raw_fd()
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
