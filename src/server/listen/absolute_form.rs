//! Targets that are a whole URL: their authority wins over the `Host` header (RFC 9112, 3.2.2).
//! Pingora refuses a request where the two differ, before any of its hooks. So the header's value
//! is replaced on its way from the socket to Pingora.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use crate::filters::target;
use crate::gateway::{HeaderWatch, Phase};

/// A longer head goes on as it is. Pingora refuses it.
const LONGEST_HEAD: usize = 64 << 10;
/// No method that ati serves is longer.
const LONGEST_METHOD: usize = 16;

/// Reads a connection, and holds back a request's head where its target is a whole URL.
#[derive(Debug)]
pub struct HeadReader {
    watch: Arc<HeaderWatch>,
    /// The request whose first bytes were looked at.
    seen: Option<Phase>,
    /// The head so far, while it is incomplete.
    gathered: Option<Vec<u8>>,
    /// What was held back and may go on, from `handed_on` on.
    released: Vec<u8>,
    handed_on: usize,
}

impl HeadReader {
    pub fn new(watch: Arc<HeaderWatch>) -> Self {
        HeadReader {
            watch,
            seen: None,
            gathered: None,
            released: Vec::new(),
            handed_on: 0,
        }
    }

    /// As the stream's own `poll_read`.
    pub fn poll_read(
        &mut self,
        mut stream: Pin<&mut impl AsyncRead>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.hand_on(buf) {
            return Poll::Ready(Ok(()));
        }
        if self.gathered.is_none() {
            let before = buf.filled().len();
            ready!(stream.as_mut().poll_read(cx, buf))?;
            let phase = self.watch.phase();
            if !phase.is_reading() || self.seen.replace(phase) == Some(phase) {
                return Poll::Ready(Ok(()));
            }
            let (_, first) = buf.filled().split_at(before);
            if !begins_with_url(first) {
                return Poll::Ready(Ok(()));
            }
            self.gathered = Some(first.to_vec());
            buf.set_filled(before);
        }
        ready!(self.gather(stream, cx))?;
        self.hand_on(buf);
        Poll::Ready(Ok(()))
    }

    /// Reads until the head is complete, or can't be.
    fn gather(
        &mut self,
        mut stream: Pin<&mut impl AsyncRead>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(head) = &mut self.gathered else {
            return Poll::Ready(Ok(()));
        };
        let mut ended = false;
        let is_complete = |head: &[u8]| end_of(head).is_some() || has_bare_line_feed(head);
        while !ended && head.len() < LONGEST_HEAD && !is_complete(head) {
            let mut space = [0; 4096];
            let mut more = ReadBuf::new(&mut space);
            ready!(stream.as_mut().poll_read(cx, &mut more))?;
            head.extend_from_slice(more.filled());
            ended = more.filled().is_empty();
        }
        let head = self.gathered.take().unwrap_or_default();
        self.released = with_host_of_target(&head).unwrap_or(head);
        self.handed_on = 0;
        Poll::Ready(Ok(()))
    }

    /// Whether there was something to hand on.
    fn hand_on(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let rest = self.released.get(self.handed_on..).unwrap_or_default();
        if rest.is_empty() {
            return false;
        }
        let length = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..length]);
        self.handed_on += length;
        if self.handed_on == self.released.len() {
            self.released = Vec::new();
            self.handed_on = 0;
        }
        true
    }
}

/// Whether a request begins here whose target isn't a path. A caller that sends the first bytes one
/// by one isn't waited for.
fn begins_with_url(bytes: &[u8]) -> bool {
    let begin = bytes.trim_ascii_start();
    let method = begin
        .iter()
        .take(LONGEST_METHOD + 1)
        .position(|b| *b == b' ');
    let target = method.and_then(|end| begin.get(end + 1..end + 5));
    target.is_some_and(|target| target.eq_ignore_ascii_case(b"http"))
}

/// Where the head ends, its last empty line included.
fn end_of(head: &[u8]) -> Option<usize> {
    let end = head.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    Some(end + 4)
}

/// Pingora takes a line feed alone for the end of a line. Such a head goes on as it is.
fn has_bare_line_feed(head: &[u8]) -> bool {
    let head = head.trim_ascii_start();
    let end = end_of(head).unwrap_or(head.len());
    let mut before = b'\0';
    head[..end].iter().any(|byte| {
        let bare = *byte == b'\n' && before != b'\r';
        before = *byte;
        bare
    })
}

/// The same bytes with the authority of the target as the value of `Host`. None where there is
/// nothing to replace, or more than one way to do it: Pingora decides about those.
fn with_host_of_target(bytes: &[u8]) -> Option<Vec<u8>> {
    let (head, body) = bytes.split_at(end_of(bytes)?);
    if has_bare_line_feed(head) {
        return None;
    }
    let mut lines = head
        .trim_ascii_start()
        .split_inclusive(|byte| *byte == b'\n');
    let request_line = lines.next()?;
    let mut words = request_line.split(|byte| *byte == b' ');
    let named = target::absolute(words.nth(1)?).ok()??;
    let mut changed = request_line.to_vec();
    let mut hosts = 0;
    for line in lines {
        // A continued line: its name stands in the line before.
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            return None;
        }
        let name = line.split(|byte| *byte == b':').next()?;
        if name.eq_ignore_ascii_case(b"host") {
            hosts += 1;
            changed.extend_from_slice(b"Host: ");
            changed.extend_from_slice(&named.authority);
            changed.extend_from_slice(b"\r\n");
        } else {
            changed.extend_from_slice(line);
        }
    }
    changed.extend_from_slice(body);
    (hosts == 1).then_some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn rewritten(bytes: &str) -> Option<String> {
        with_host_of_target(bytes.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn host_is_replaced_by_the_authority_of_the_target() {
        assert_eq!(
            rewritten("POST http://a:1/x?y HTTP/1.1\r\nX: z\r\nhOST: b\r\n\r\nHost: body").unwrap(),
            "POST http://a:1/x?y HTTP/1.1\r\nX: z\r\nHost: a:1\r\n\r\nHost: body"
        );
    }

    #[test]
    fn head_with_no_host_two_hosts_or_a_continued_line_stays() {
        for head in [
            "GET /x HTTP/1.1\r\nHost: b\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nX: z\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nHost: b\r\nHost: c\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nHost: b\r\n c\r\n\r\n",
            "GET http://u@a/ HTTP/1.1\r\nHost: b\r\n\r\n",
            "GET httpx://a/ HTTP/1.1\r\nHost: b\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nHost: b\r\n",
            "GET http://a/ HTTP/1.1\nHost: b\n\nHost: c\r\n\r\n",
        ] {
            assert_eq!(rewritten(head), None, "{head}");
        }
    }

    #[test]
    fn only_a_request_with_a_url_is_held_back() {
        for (bytes, expected) in [
            ("GET http://a/", true),
            ("\r\nOPTIONS HTTPS://a", true),
            ("GET /http://a", false),
            ("GET", false),
            ("GET htt", false),
            ("X http", true),
            ("a-method-that-is-too-long http://a", false),
        ] {
            assert_eq!(begins_with_url(bytes.as_bytes()), expected, "{bytes}");
        }
    }

    /// What Pingora would read of a connection with these writes, phase by phase.
    struct Piped {
        reader: HeadReader,
        stream: tokio::io::DuplexStream,
    }

    impl AsyncRead for Piped {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let Piped { reader, stream } = &mut *self;
            reader.poll_read(Pin::new(stream), cx, buf)
        }
    }

    #[tokio::test]
    async fn head_that_comes_in_pieces_is_gathered_and_a_body_passes_unchanged() {
        let watch = Arc::new(HeaderWatch::default());
        let (mut caller, stream) = tokio::io::duplex(1 << 16);
        let reader = HeadReader::new(watch.clone());
        let mut piped = Piped { reader, stream };
        let read = async {
            let mut text = vec![0; "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n".len()];
            // Less room than the head needs.
            for part in text.chunks_mut(20) {
                piped.read_exact(part).await.unwrap();
            }
            assert_eq!(text, b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n");
            watch.serving();
            let body = b"GET http://a/ HTTP/1.1\r\nHost: bb\r\n\r\n";
            let mut text = vec![0; body.len()];
            piped.read_exact(&mut text).await.unwrap();
            assert_eq!(text, body);
            watch.reading();
            let mut text = String::new();
            piped.read_to_string(&mut text).await.unwrap();
            // The connection ended within the head: nothing is lost.
            assert_eq!(text, "GET http://a/ HTTP/1.1\r\nHost: b");
        };
        let write = async {
            for part in ["GET http://a/ HT", "TP/1.1\r\nHost: b", "b\r\n\r", "\n"] {
                caller.write_all(part.as_bytes()).await.unwrap();
                tokio::task::yield_now().await;
            }
            let body = b"GET http://a/ HTTP/1.1\r\nHost: bb\r\n\r\n";
            caller.write_all(body).await.unwrap();
            let cut = b"GET http://a/ HTTP/1.1\r\nHost: b";
            while !watch.phase().is_reading() || watch.phase().is_first() {
                tokio::task::yield_now().await;
            }
            caller.write_all(cut).await.unwrap();
            drop(caller);
        };
        tokio::join!(read, write);
    }
}
