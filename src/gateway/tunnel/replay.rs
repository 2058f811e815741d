use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::l4::stream::Stream;
use pingora_core::protocols::l4::virt::{VirtualSockOpt, VirtualSocket, VirtualSocketStream};
use pingora_http::ResponseHeader;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection on which one request header arrives, and which drops what is written.
#[derive(Debug)]
struct Replay(Bytes);

impl AsyncRead for Replay {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let length = self.0.len().min(buf.remaining());
        buf.put_slice(&self.0.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Replay {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl VirtualSocket for Replay {
    fn set_socket_option(&self, _: VirtualSockOpt) -> io::Result<()> {
        Ok(())
    }
}

/// A session that has read this header and written this answer.
pub(super) async fn session(header: Bytes, answer: &ResponseHeader) -> Option<Box<ServerSession>> {
    let stream = Stream::from(VirtualSocketStream::new(Box::new(Replay(header))));
    let mut session = ServerSession::new_http1(Box::new(stream));
    if !session.read_request().await.ok()? {
        return None;
    }
    session.write_response_header_ref(answer).await.ok()?;
    session.set_keepalive(None);
    Some(Box::new(session))
}
