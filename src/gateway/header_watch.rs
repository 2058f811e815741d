use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Context;

use futures::task::AtomicWaker;
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
    /// The short way has a part of the awaited header.
    has_part: AtomicBool,
    /// The connection ends when it has no request.
    closing: AtomicBool,
    /// Of the short way, while it waits for a request.
    idle: AtomicWaker,
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

    /// The short way begins to wait for another request, and has `early` bytes of it.
    pub fn awaiting(&self, early: usize) {
        self.has_part.store(early > 0, Ordering::Relaxed);
        let next = (self.phase.load(Ordering::Relaxed) | 1) + 1;
        self.phase.store(next, Ordering::Relaxed);
    }

    /// The short way has got a part of the awaited header.
    pub fn has_part(&self) {
        self.has_part.store(true, Ordering::Relaxed);
    }

    /// The short way hands the awaited request on: this watch sees all its bytes again, from the
    /// first.
    pub fn handed_over(&self) {
        self.forget();
        // Even, as it may be odd already: the short way began to serve it.
        let next = (self.phase.load(Ordering::Relaxed) | 1) + 1;
        self.phase.store(next, Ordering::Relaxed);
    }

    /// The bytes so far are all of requests that have ended.
    pub fn forget(&self) {
        self.has_part.store(false, Ordering::Relaxed);
        self.received.store(0, Ordering::Relaxed);
        self.accounted.store(0, Ordering::Relaxed);
        self.checking.store(false, Ordering::Relaxed);
        *self.arrival.lock() = Arrival::default();
    }

    /// The connection ends as soon as it has no request.
    pub fn close_when_idle(&self) {
        self.closing.store(true, Ordering::Release);
        self.idle.wake();
    }

    /// Whether a connection without a request has to end. If not, the task is woken when it has to.
    pub fn must_close(&self, cx: &Context<'_>) -> bool {
        self.idle.register(cx.waker());
        self.closing.load(Ordering::Acquire)
    }

    /// Whether a part of the awaited header has come.
    pub fn has_begun(&self) -> bool {
        self.has_part.load(Ordering::Relaxed) || self.arrival.lock().total > 0
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
mod tests;
