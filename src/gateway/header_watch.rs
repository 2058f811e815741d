use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::chunks::ChunkCheck;
use crate::error::Refusal;

/// Bytes of a request's header over HTTP/1. HTTP/2 has the same limit.
pub const LARGEST_HEADER: usize = 64 << 10;

const ODD_LINE: Refusal = Refusal::Malformed("blanks or control characters in the request line");

/// Which request a client connection is at, and what its bytes look like before Pingora has parsed
/// them. Pingora bounds single reads only, so the connection's task polls this to find a caller
/// that sends its header one byte at a time. It escapes a request line that has blanks in it, and
/// takes a chunk without a size for the last one, before any hook can see that: so the stream below
/// Pingora shows its bytes to this watch first.
#[derive(Debug, Default)]
pub struct HeaderWatch {
    /// Even while a request's header is awaited, odd while the request is served. It only grows.
    phase: AtomicU64,
    /// Bytes that the caller has sent on this connection.
    received: AtomicU64,
    /// Bytes of them that belong to requests whose header was read.
    accounted: AtomicU64,
    /// The bytes of a chunked body are being checked.
    checking: AtomicBool,
    /// A byte was written while a header was awaited: Pingora has refused what it couldn't parse.
    has_answered: AtomicBool,
    arrival: Mutex<Arrival>,
}

/// What has arrived of the header that is awaited.
#[derive(Debug, Default)]
struct Arrival {
    /// Bytes since it is awaited.
    total: usize,
    /// The last read. What follows the header, once that is complete, is the end of it.
    last: Vec<u8>,
    /// How many bytes had come on the connection by its end.
    last_at: u64,
    line: RequestLine,
    /// Where this request begins among the bytes of the connection isn't known: an earlier one was
    /// never inspected, or was changed by Pingora, or too much came behind it. It stays so.
    is_unknown: bool,
    /// The bytes of this request are accounted for.
    is_accounted: bool,
    chunks: Option<ChunkCheck>,
    has_bad_chunk: bool,
}

impl Arrival {
    /// Keeps what came behind the `end` of the request that is served: the next one begins with it.
    fn keep_early(&mut self, bytes: &[u8], received: u64, end: u64) {
        let early = received.saturating_sub(end) as usize;
        if early == 0 || self.is_unknown || !self.is_accounted {
            return;
        }
        if early <= bytes.len() {
            self.last.clear();
        } else if self.last_at + bytes.len() as u64 != received {
            return;
        }
        let own = &bytes[bytes.len() - early.min(bytes.len())..];
        if self.last.len() + own.len() <= LARGEST_HEADER {
            self.last.extend_from_slice(own);
            self.last_at = received;
        }
    }
}

/// What a connection was doing when it was polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase(u64);

impl Phase {
    pub fn is_reading(self) -> bool {
        self.0.is_multiple_of(2)
    }

    /// Whether the connection's first header is awaited.
    pub fn is_first(self) -> bool {
        self.0 == 0
    }
}

impl HeaderWatch {
    /// The server begins to wait for another request.
    pub fn reading(&self) {
        self.finish_check();
        let received = self.received.load(Ordering::Relaxed);
        let accounted = self.accounted.load(Ordering::Relaxed);
        // What a caller sends before it has its answer: the beginning of the next request.
        let early = received.checked_sub(accounted).map(|early| early as usize);
        let mut arrival = self.arrival.lock();
        let is_last = arrival.last_at == received;
        let known = early.filter(|early| {
            let is_kept = *early == 0 || (is_last && *early <= arrival.last.len());
            is_kept && !arrival.is_unknown && arrival.is_accounted
        });
        match known {
            Some(early) => {
                let begin = arrival.last.len() - early;
                arrival.last.drain(..begin);
                arrival.total = early;
            }
            None => {
                arrival.is_unknown = true;
                arrival.last.clear();
                arrival.total = 0;
            }
        }
        let mut line = RequestLine::default();
        line.scan(&arrival.last);
        arrival.line = line;
        arrival.is_accounted = false;
        arrival.last.shrink_to(8 << 10);
        drop(arrival);
        let next = (self.phase.load(Ordering::Relaxed) | 1) + 1;
        self.phase.store(next, Ordering::Relaxed);
    }

    /// The header is complete. Other limits apply to what follows.
    pub fn serving(&self) {
        let next = self.phase.load(Ordering::Relaxed) | 1;
        self.phase.store(next, Ordering::Relaxed);
    }

    pub fn phase(&self) -> Phase {
        Phase(self.phase.load(Ordering::Relaxed))
    }

    /// Whether a part of the awaited header has come.
    pub fn has_begun(&self) -> bool {
        self.arrival.lock().total > 0
    }

    /// Whether the awaited header has more bytes than it may have.
    pub fn is_too_large(&self) -> bool {
        self.phase().is_reading() && self.arrival.lock().total >= LARGEST_HEADER
    }

    /// The stream has read these bytes.
    pub fn received(&self, bytes: &[u8]) -> io::Result<()> {
        let received = self.received.load(Ordering::Relaxed) + bytes.len() as u64;
        self.received.store(received, Ordering::Relaxed);
        if self.phase().is_reading() {
            let mut arrival = self.arrival.lock();
            arrival.line.scan(bytes);
            arrival.total += bytes.len();
            arrival.last_at = received;
            arrival.last.clear();
            arrival.last.extend_from_slice(bytes);
            return Ok(());
        }
        let is_checking = self.checking.load(Ordering::Relaxed);
        let mut end = self.accounted.load(Ordering::Relaxed);
        if !is_checking && received <= end {
            return Ok(());
        }
        let mut arrival = self.arrival.lock();
        if is_checking && let Some(chunks) = &mut arrival.chunks {
            if chunks.feed(bytes).is_err() {
                arrival.has_bad_chunk = true;
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a malformed chunk",
                ));
            }
            match chunks.length() {
                Some(length) => end += length,
                None => return Ok(()),
            }
        }
        arrival.keep_early(bytes, received, end);
        Ok(())
    }

    /// The stream has written something.
    pub fn wrote(&self) {
        if self.phase().is_reading() {
            self.has_answered.store(true, Ordering::Relaxed);
        }
    }

    /// What a connection ended with whose last header never became a request: answered by Pingora,
    /// which couldn't parse it, or by the stream, for which it was too large.
    pub fn refusal_of_unparsed(&self) -> Option<Refusal> {
        if self.is_too_large() {
            return Some(Refusal::HeaderTooLarge);
        }
        let answered = self.phase().is_reading() && self.has_answered.load(Ordering::Relaxed);
        answered.then_some(Refusal::Malformed("the request can't be parsed"))
    }

    /// Looks at the bytes of a request whose header is complete: `header` bytes long, followed by a
    /// body of this length.
    pub fn inspect(&self, header: usize, body: BodyLength) -> Result<Inspected, Refusal> {
        let mut arrival = self.arrival.lock();
        arrival.has_bad_chunk = false;
        if header > LARGEST_HEADER {
            return Err(Refusal::HeaderTooLarge);
        }
        // First: Pingora has escaped what it doesn't allow, so that the header is longer than what
        // came.
        if arrival.line.is_odd && !arrival.is_unknown {
            return Err(ODD_LINE);
        }
        arrival.is_unknown |= arrival.line.may_be_escaped || arrival.total < header;
        if arrival.is_unknown {
            let unseen = match body {
                BodyLength::Chunked => Inspected::UnseenChunks,
                BodyLength::Known(_) => Inspected::Fine,
            };
            return Ok(unseen);
        }
        arrival.is_accounted = true;
        let accounted = &self.accounted;
        let before = accounted.load(Ordering::Relaxed);
        match body {
            BodyLength::Known(length) => {
                let end = (before + header as u64).saturating_add(length);
                accounted.store(end, Ordering::Relaxed);
            }
            BodyLength::Chunked => {
                accounted.store(before + header as u64, Ordering::Relaxed);
                let follows = arrival.total - header;
                let from = arrival.last.len().saturating_sub(follows);
                let mut chunks = ChunkCheck::new();
                chunks
                    .feed(&arrival.last[from..])
                    .map_err(|_| Refusal::BadRequest)?;
                arrival.chunks = Some(chunks);
                self.checking.store(true, Ordering::Relaxed);
            }
        }
        Ok(Inspected::Fine)
    }

    fn finish_check(&self) {
        if !self.checking.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut arrival = self.arrival.lock();
        match arrival.chunks.take().and_then(|chunks| chunks.length()) {
            Some(length) => {
                self.accounted.fetch_add(length, Ordering::Relaxed);
            }
            None => arrival.is_unknown = true,
        }
    }

    /// Whether reading the body failed because of a malformed chunk.
    pub fn has_bad_chunk(&self) -> bool {
        self.arrival.lock().has_bad_chunk
    }
}

/// The length of a request's body, as its header says it.
#[derive(Debug, Clone, Copy)]
pub enum BodyLength {
    Known(u64),
    Chunked,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Inspected {
    Fine,
    /// The chunks were read together with an earlier request, so the connection must not be used
    /// for another request after this one.
    UnseenChunks,
}

/// A request line as it comes, in any number of reads. It has exactly two blanks, and no control
/// characters (RFC 9112, 3).
#[derive(Debug, Default)]
struct RequestLine {
    has_begun: bool,
    has_ended: bool,
    blanks: u8,
    after_cr: bool,
    is_odd: bool,
    /// It has characters that Pingora may replace by longer ones.
    may_be_escaped: bool,
}

impl RequestLine {
    fn scan(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.has_ended {
                return;
            }
            match byte {
                // Empty lines may come before it.
                b'\r' | b'\n' if !self.has_begun => {}
                b'\n' => self.has_ended = true,
                b'\r' => self.is_odd |= std::mem::replace(&mut self.after_cr, true),
                _ => {
                    self.has_begun = true;
                    // A CR inside of the line.
                    self.is_odd |= self.after_cr;
                    match byte {
                        b' ' => {
                            self.blanks = self.blanks.saturating_add(1);
                            self.is_odd |= self.blanks > 2;
                        }
                        0..=0x1f | 0x7f => self.is_odd = true,
                        b'<' | b'>' | b'"' | 0x80.. => self.may_be_escaped = true,
                        _ => {}
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_of_a_connection_never_repeat() {
        let watch = HeaderWatch::default();
        assert!(watch.phase().is_reading() && watch.phase().is_first());
        let mut seen = vec![watch.phase()];
        for _ in 0..3 {
            watch.serving();
            assert!(!watch.phase().is_reading());
            seen.push(watch.phase());
            watch.reading();
            assert!(watch.phase().is_reading() && !watch.phase().is_first());
            seen.push(watch.phase());
        }
        let mut unique = seen.clone();
        unique.dedup();
        assert_eq!(seen, unique);
    }

    const CHUNKED: &str = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";

    fn serve(watch: &HeaderWatch, header: &str, body: BodyLength) -> Result<Inspected, Refusal> {
        watch.serving();
        watch.inspect(header.len(), body)
    }

    #[test]
    fn chunks_are_checked_wherever_they_are_cut() {
        let body = "5\r\nhello\r\n\r\n0\r\n\r\n";
        for cut in 0..body.len() {
            let watch = HeaderWatch::default();
            let first = format!("{CHUNKED}{}", &body[..cut]);
            watch.received(first.as_bytes()).unwrap();
            let early = serve(&watch, CHUNKED, BodyLength::Chunked);
            let late = watch.received(&body.as_bytes()[cut..]);
            assert!(
                early.is_err() || (late.is_err() && watch.has_bad_chunk()),
                "{cut}"
            );
        }
    }

    #[test]
    fn requests_one_after_another_are_told_apart_from_pipelined_ones() {
        let watch = HeaderWatch::default();
        for body in ["0\r\n\r\n", "2\r\nab\r\n0\r\n\r\n"] {
            watch.received(CHUNKED.as_bytes()).unwrap();
            assert_eq!(
                serve(&watch, CHUNKED, BodyLength::Chunked),
                Ok(Inspected::Fine)
            );
            watch.received(body.as_bytes()).unwrap();
            watch.reading();
        }
        // In one read: seen, and told apart.
        let get = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";
        let together = format!("{get}{CHUNKED}0\r\n\r\n{get}{CHUNKED}\r\n");
        watch.received(together.as_bytes()).unwrap();
        for _ in 0..2 {
            let seen = serve(&watch, get, BodyLength::Known(0));
            assert_eq!(seen, Ok(Inspected::Fine));
            watch.reading();
            let chunked = serve(&watch, CHUNKED, BodyLength::Chunked);
            if chunked == Err(Refusal::BadRequest) {
                return;
            }
            assert_eq!(chunked, Ok(Inspected::Fine));
            watch.reading();
        }
        panic!("the chunk without a size was not seen");
    }

    #[test]
    fn chunks_that_were_read_with_an_earlier_body_are_checked() {
        let post = "POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\n";
        let earlier = [
            (post, BodyLength::Known(3), "abc"),
            (CHUNKED, BodyLength::Chunked, "1\r\na\r\n0\r\n\r\n"),
        ];
        for (header, length, body) in earlier {
            // The next request, whole or cut anywhere, comes with the end of that body.
            let next = format!("{CHUNKED}\r\nhello\r\n");
            for cut in 0..=next.len() {
                for size in [usize::MAX, 1] {
                    let watch = HeaderWatch::default();
                    watch.received(header.as_bytes()).unwrap();
                    serve(&watch, header, length).unwrap();
                    let rest = format!("{body}{}", &next[..cut]);
                    for piece in rest.as_bytes().chunks(size.min(rest.len())) {
                        watch.received(piece).unwrap();
                    }
                    watch.reading();
                    let of_header = CHUNKED.len().max(cut);
                    if cut < of_header {
                        watch.received(&next.as_bytes()[cut..of_header]).unwrap();
                    }
                    let early = serve(&watch, CHUNKED, BodyLength::Chunked);
                    let late = watch.received(&next.as_bytes()[of_header..]);
                    assert!(early.is_err() || late.is_err(), "{header} {cut} {early:?}");
                }
            }
        }
    }

    #[test]
    fn chunks_behind_more_than_a_header_of_early_bytes_are_not_seen() {
        let watch = HeaderWatch::default();
        let post = "POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\n";
        watch.received(post.as_bytes()).unwrap();
        serve(&watch, post, BodyLength::Known(3)).unwrap();
        let rest = format!("abc{CHUNKED}{}", "x".repeat(LARGEST_HEADER));
        watch.received(rest.as_bytes()).unwrap();
        watch.reading();
        let unseen = serve(&watch, CHUNKED, BodyLength::Chunked);
        assert_eq!(unseen, Ok(Inspected::UnseenChunks));
    }

    #[test]
    fn requests_after_one_that_was_not_inspected_are_taken_as_they_are() {
        let get = "GET / HTTP/1.1\r\nuser-agent: a b c d\r\n\r\n";
        // Refused before it was looked at; or looked at, and the first byte of the next came early.
        for early in ["", "G"] {
            let watch = HeaderWatch::default();
            watch.received(get.as_bytes()).unwrap();
            watch.serving();
            if !early.is_empty() {
                watch.inspect(get.len(), BodyLength::Known(0)).unwrap();
            }
            watch.received(early.as_bytes()).unwrap();
            watch.reading();
            for from in [early.len(), 0] {
                watch.received(&get.as_bytes()[from..]).unwrap();
                let outcome = serve(&watch, get, BodyLength::Known(0));
                assert_eq!(outcome, Ok(Inspected::Fine));
                watch.reading();
            }
            watch
                .received(format!("{CHUNKED}0\r\n\r\n").as_bytes())
                .unwrap();
            let chunked = serve(&watch, CHUNKED, BodyLength::Chunked);
            // The connection ends after chunks that aren't seen.
            let expected = match early {
                "" => Inspected::UnseenChunks,
                _ => Inspected::Fine,
            };
            assert_eq!(chunked, Ok(expected));
        }
    }

    #[test]
    fn blanks_in_the_target_and_headers_without_end_are_noticed() {
        for (line, odd) in [
            ("GET /a HTTP/1.1\r\n", false),
            ("\r\nGET /a HTTP/1.1\r\nx: a b c d\r\n", false),
            ("GET /a b HTTP/1.1\r\n", true),
            ("GET  /a HTTP/1.1\r\n", true),
            ("GET /a\tb HTTP/1.1\r\n", true),
            ("GET /a?\x01 HTTP/1.1\r\n", true),
            ("GET /a\rb HTTP/1.1\r\n", true),
            ("GET /a?\"b\" HTTP/1.1\r\n", false),
        ] {
            // In one read, and byte by byte.
            for size in [line.len(), 1] {
                let watch = HeaderWatch::default();
                for piece in line.as_bytes().chunks(size) {
                    watch.received(piece).unwrap();
                }
                let outcome = serve(&watch, line, BodyLength::Known(0));
                assert_eq!(outcome == Err(ODD_LINE), odd, "{line}");
            }
        }
        let watch = HeaderWatch::default();
        watch.received(&[b'x'; LARGEST_HEADER - 1]).unwrap();
        assert!(!watch.is_too_large());
        watch.received(b"x").unwrap();
        assert!(watch.is_too_large());
    }
}
