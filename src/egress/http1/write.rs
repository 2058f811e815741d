//! Writes a request.

use std::future::poll_fn;
use std::io::Write as _;
use std::pin::Pin;
use std::task::Poll;

use http::header::{ACCEPT, USER_AGENT};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use zeroize::Zeroizing;

use super::super::client::USER_AGENT as OWN_USER_AGENT;
use super::Request;
use super::answer::{self, MOST_INTERIM};
use super::pool::{Connection, Stream};

/// A body up to this size is copied behind its head, so that both leave together.
const SMALL_BODY: usize = 16 << 10;
/// How much of an answer is read before its request was sent as a whole.
const EARLY: usize = 4 << 10;

/// How much of a request was sent.
#[derive(Default)]
pub(super) struct Sent {
    pub bytes: usize,
    pub is_complete: bool,
}

/// Sends as much as the server takes. It stops where an answer comes before the end of the request,
/// or where the connection ends: an answer that explains that may have come.
pub(super) async fn request(connection: &mut Connection, request: &Request<'_>) -> Sent {
    let mut first = head(request);
    let body = request.body();
    let (copied, rest) = body.split_at(if body.len() <= SMALL_BODY {
        body.len()
    } else {
        0
    });
    first.extend_from_slice(copied);
    let mut sent = Sent::default();
    for part in [first.as_slice(), rest] {
        if !write(connection, part, &mut sent.bytes).await {
            return sent;
        }
    }
    if matches!(connection.stream, Stream::Tls(_)) {
        let flush = poll_fn(|context| Pin::new(&mut connection.stream).poll_flush(context));
        if flush.await.is_err() {
            return sent;
        }
    }
    sent.is_complete = true;
    sent
}

/// Writes all of the bytes. False if it stopped before their end. While the server doesn't take
/// more, what it sends is read: it may have answered already.
async fn write(connection: &mut Connection, bytes: &[u8], sent: &mut usize) -> bool {
    let mut rest = bytes;
    let mut interim = 0;
    while !rest.is_empty() {
        let Connection { stream, buffer, .. } = connection;
        let next = poll_fn(|context| {
            if let Poll::Ready(written) = Pin::new(&mut *stream).poll_write(context, rest) {
                return Poll::Ready(written.ok().filter(|bytes| *bytes > 0).map(Next::Written));
            }
            let mut early = [0; EARLY];
            let mut read = ReadBuf::new(&mut early);
            match Pin::new(&mut *stream).poll_read(context, &mut read) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(_) => {
                    buffer.extend_from_slice(read.filled());
                    Poll::Ready((!read.filled().is_empty()).then_some(Next::Read))
                }
            }
        });
        match next.await {
            None => return false,
            Some(Next::Written(written)) => {
                *sent += written;
                rest = &rest[written..];
            }
            Some(Next::Read) => match answer::skip_interim(connection) {
                Some(skipped) if interim + skipped <= MOST_INTERIM => interim += skipped,
                _ => return false,
            },
        }
    }
    true
}

enum Next {
    Written(usize),
    Read,
}

/// The head of a request, with room for a small body behind it. It holds credentials, so its memory
/// is wiped, and has its final size from the start: a buffer that grows leaves copies behind.
fn head(request: &Request<'_>) -> Zeroizing<Vec<u8>> {
    let headers = request.headers.iter();
    let headers: usize = headers
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    let authority = request.origin.authority();
    let body = request.body();
    let room = request.method.as_str().len()
        + request.path_and_query.len()
        + authority.len()
        + headers
        + OWN_USER_AGENT.len()
        + 128
        + body.len().min(SMALL_BODY);
    let mut head = Zeroizing::new(Vec::with_capacity(room));
    let mut line = |parts: [&[u8]; 4]| parts.iter().for_each(|part| head.extend_from_slice(part));
    let method = request.method.as_str().as_bytes();
    line([
        method,
        b" ",
        request.path_and_query.as_bytes(),
        b" HTTP/1.1\r\nhost: ",
    ]);
    line([authority.as_bytes(), b"\r\n", b"", b""]);
    for (name, value) in request.headers {
        line([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
    }
    let has = |header| request.headers.iter().any(|(name, _)| *name == header);
    if !has(ACCEPT) {
        line([b"accept: */*\r\n", b"", b"", b""]);
    }
    if !has(USER_AGENT) {
        line([b"user-agent: ", OWN_USER_AGENT.as_bytes(), b"\r\n", b""]);
    }
    if !body.is_empty() {
        // Into a vector, which takes everything.
        let _ = write!(&mut *head, "content-length: {}\r\n", body.len());
    }
    head.extend_from_slice(b"\r\n");
    head
}
