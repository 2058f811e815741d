//! Streamed answers on an HTTP/1 and an HTTP/2 connection in memory.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::HeaderValue;
use pingora_core::protocols::Digest;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::v2::server::{H2Accept, HttpSession, handshake};
use pingora_core::protocols::l4::stream::Stream as L4Stream;
use pingora_core::protocols::l4::virt::{VirtualSockOpt, VirtualSocket, VirtualSocketStream};
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use tokio::sync::{Notify, mpsc};

use super::*;
use crate::api::{Body, Reply, StreamError};
use crate::gateway::{Load, respond};
use crate::snapshot::Snapshot;

const GET: &str = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
const STALL: Duration = Duration::from_secs(5);

type StreamItem = std::result::Result<Bytes, StreamError>;

/// A connection in memory, as Pingora wants it.
#[derive(Debug)]
struct Pipe(DuplexStream);

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl VirtualSocket for Pipe {
    fn set_socket_option(&self, _: VirtualSockOpt) -> io::Result<()> {
        Ok(())
    }
}

fn wire(pipe: DuplexStream) -> Box<L4Stream> {
    let socket = VirtualSocketStream::new(Box::new(Pipe(pipe)));
    Box::new(L4Stream::from(socket))
}

/// A caller that has sent `request`, and the session that has read its header.
async fn http1(request: &str) -> (DuplexStream, Session) {
    let (mut caller, server) = duplex(64 << 10);
    caller.write_all(request.as_bytes()).await.unwrap();
    let mut session = Session::new_h1(wire(server));
    assert!(session.read_request().await.unwrap());
    (caller, session)
}

/// Answer with what `endpoint` makes of the request's body. Returns the outcome and the counted
/// body bytes.
async fn answer(
    mut session: Session,
    abandoned: watch::Receiver<bool>,
    endpoint: impl FnOnce(Body) -> ReplyStream,
) -> (Result<()>, usize) {
    let ctx = Ctx::new(Snapshot::empty(), &Arc::new(Load::default()));
    let (mut upload, body) = Upload::new(&mut session, STALL);
    let content_type = HeaderValue::from_static("text/event-stream");
    let reply = Reply::stream(content_type, endpoint(body));
    let written = respond::reply(&mut session, &ctx, reply, &mut upload, abandoned).await;
    (written, session.body_bytes_sent())
}

fn pieces(items: Vec<StreamItem>) -> ReplyStream {
    Box::pin(stream::iter(items))
}

fn channel() -> (mpsc::Sender<StreamItem>, ReplyStream) {
    let (sender, receiver) = mpsc::channel(1);
    let stream = stream::unfold(receiver, |mut receiver| async move {
        let item = receiver.recv().await?;
        Some((item, receiver))
    });
    (sender, Box::pin(stream))
}

fn piece(text: &'static str) -> StreamItem {
    Ok(Bytes::from_static(text.as_bytes()))
}

async fn read_until(caller: &mut DuplexStream, end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        assert_ne!(caller.read_buf(&mut text).await.unwrap(), 0, "{text:?}");
    }
    String::from_utf8(text).unwrap()
}

async fn read_to_end(mut caller: DuplexStream) -> String {
    let mut text = String::new();
    caller.read_to_string(&mut text).await.unwrap();
    text
}

fn serving() -> (watch::Sender<bool>, watch::Receiver<bool>) {
    watch::channel(false)
}

#[tokio::test]
async fn each_piece_is_written_as_soon_as_it_is_there() {
    let (mut caller, session) = http1(GET).await;
    let (sender, stream) = channel();
    let (_abandon, abandoned) = serving();
    let answering = tokio::spawn(answer(session, abandoned, |_| stream));
    sender.send(piece("hello")).await.unwrap();
    let head = read_until(&mut caller, "5\r\nhello\r\n").await;
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200 ok\r\n"), "{head}");
    assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
    assert!(head.contains("x-request-id: "), "{head}");
    sender.send(piece("")).await.unwrap();
    sender.send(piece("you")).await.unwrap();
    read_until(&mut caller, "3\r\nyou\r\n").await;
    drop(sender);
    read_until(&mut caller, "0\r\n\r\n").await;
    let (written, bytes) = answering.await.unwrap();
    written.unwrap();
    assert_eq!(bytes, 8);
}

#[tokio::test]
async fn stream_that_fails_half_way_has_no_clean_end() {
    let (caller, session) = http1(GET).await;
    let (_abandon, abandoned) = serving();
    let failing = pieces(vec![
        piece("half"),
        Err("the disk is gone".into()),
        piece("x"),
    ]);
    let (written, _) = answer(session, abandoned, |_| failing).await;
    let e = written.unwrap_err();
    assert_eq!(*e.etype(), BROKEN_OFF);
    assert_eq!(e.root_cause().to_string(), "the disk is gone");
    let text = read_to_end(caller).await;
    assert!(text.ends_with("\r\n\r\n4\r\nhalf\r\n"), "{text}");
}

#[tokio::test]
async fn http10_gets_plain_bytes_until_the_connection_closes() {
    let (caller, session) = http1("GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").await;
    let (_abandon, abandoned) = serving();
    let stream = pieces(vec![piece("hello "), piece("you")]);
    let (written, bytes) = answer(session, abandoned, |_| stream).await;
    written.unwrap();
    assert_eq!(bytes, 9);
    let text = read_to_end(caller).await.to_ascii_lowercase();
    assert!(!text.contains("transfer-encoding"), "{text}");
    assert!(text.contains("connection: close\r\n"), "{text}");
    assert!(text.ends_with("\r\n\r\nhello you"), "{text}");
}

#[tokio::test]
async fn head_gets_no_body() {
    let (caller, session) = http1("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let (_abandon, abandoned) = serving();
    let (written, bytes) = answer(session, abandoned, |_| pieces(vec![piece("x")])).await;
    written.unwrap();
    assert_eq!(bytes, 0);
    assert!(read_to_end(caller).await.ends_with("\r\n\r\n"));
}

#[tokio::test]
async fn stream_is_dropped_when_the_caller_leaves() {
    let (mut caller, session) = http1(GET).await;
    let (sender, stream) = channel();
    let (_abandon, abandoned) = serving();
    let answering = tokio::spawn(answer(session, abandoned, |_| stream));
    sender.send(piece("hello")).await.unwrap();
    read_until(&mut caller, "hello\r\n").await;
    drop(caller);
    let (written, _) = answering.await.unwrap();
    assert_eq!(*written.unwrap_err().etype(), ErrorType::ConnectionClosed);
    assert!(sender.is_closed());
}

#[tokio::test]
async fn stream_breaks_off_when_the_process_ends() {
    let (mut caller, session) = http1(GET).await;
    let (sender, stream) = channel();
    let (abandon, abandoned) = serving();
    let answering = tokio::spawn(answer(session, abandoned, |_| stream));
    sender.send(piece("hello")).await.unwrap();
    read_until(&mut caller, "hello\r\n").await;
    abandon.send_replace(true);
    let (written, _) = answering.await.unwrap();
    assert_eq!(*written.unwrap_err().etype(), BROKEN_OFF);
    assert_eq!(read_to_end(caller).await, "");
}

/// The request's body is still being read while its answer is written.
#[tokio::test]
async fn body_is_read_in_pieces_while_the_answer_streams() {
    let request = "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (mut caller, session) = http1(request).await;
    let (_abandon, abandoned) = serving();
    let echo = |body: Body| -> ReplyStream { Box::pin(body.map(|item| Ok(item?))) };
    let answering = tokio::spawn(answer(session, abandoned, echo));
    for _ in 0..3 {
        caller.write_all(b"4\r\nping\r\n").await.unwrap();
        read_until(&mut caller, "4\r\nping\r\n").await;
    }
    caller.write_all(b"0\r\n\r\n").await.unwrap();
    read_until(&mut caller, "0\r\n\r\n").await;
    answering.await.unwrap().0.unwrap();
}

/// What an HTTP/2 caller reads, and whether it ended cleanly. `arrived` is notified of each part
/// of the body.
async fn http2(stream: ReplyStream, arrived: &Notify) -> (http::response::Parts, Vec<u8>, bool) {
    let (caller, server) = duplex(64 << 10);
    let serve = async {
        let mut connection = handshake(wire(server), None).await.unwrap();
        let digest = Arc::new(Digest::default());
        let next = HttpSession::from_h2_conn(&mut connection, digest.clone()).await;
        let Ok(Some(H2Accept::Session(accepted))) = next else {
            panic!("no request came");
        };
        // Pingora makes no proxy session of HTTP/2 from outside: replace the one of HTTP/1.
        let (_unused, mut session) = http1(GET).await;
        *session.downstream_session = ServerSession::new_http2(accepted);
        let (_abandon, abandoned) = serving();
        let answering = tokio::spawn(answer(session, abandoned, |_| stream));
        while let Ok(Some(_)) = HttpSession::from_h2_conn(&mut connection, digest.clone()).await {}
        answering.await.unwrap()
    };
    let ask = async {
        let (mut client, connection) = h2::client::handshake(caller).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::get("http://a/x").body(()).unwrap();
        let (response, _) = client.send_request(request, true).unwrap();
        let (parts, mut body) = response.await.unwrap().into_parts();
        let (mut bytes, mut is_clean) = (Vec::new(), true);
        while let Some(chunk) = body.data().await {
            match chunk {
                Ok(chunk) => {
                    bytes.extend_from_slice(&chunk);
                    arrived.notify_one();
                }
                // h2 gives the same error again and again.
                Err(_) => {
                    is_clean = false;
                    break;
                }
            }
        }
        (parts, bytes, is_clean)
    };
    let (_, answered) = tokio::join!(serve, ask);
    answered
}

#[tokio::test]
async fn http2_streams_end_cleanly_or_with_a_reset() {
    let arrived = Arc::new(Notify::new());
    let whole = pieces(vec![piece("hello "), piece("you")]);
    let (parts, bytes, is_clean) = http2(whole, &arrived).await;
    assert_eq!(parts.status, 200);
    assert!(parts.headers.contains_key("x-request-id"));
    assert_eq!((bytes.as_slice(), is_clean), (&b"hello you"[..], true));
    // A reset overtakes what isn't sent yet: it has to wait until the first part has arrived.
    let arrived = Arc::new(Notify::new());
    let seen = arrived.clone();
    let failure = stream::once(async move {
        seen.notified().await;
        Err("the disk is gone".into())
    });
    let failing = pieces(vec![piece("half")]).chain(failure);
    let (_, bytes, is_clean) = http2(Box::pin(failing), &arrived).await;
    assert_eq!((bytes.as_slice(), is_clean), (&b"half"[..], false));
}
