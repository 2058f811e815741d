//! Size limits on bodies of HTTP servers, enforced while the bodies are read.

use bytes::Bytes;
use futures::stream::{Stream, StreamExt};

use super::message::LONGEST_MESSAGE_MB;
use crate::budget::Share;

#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("an event of more than {} MB", LONGEST_MESSAGE_MB)]
    TooLong,
    #[error("the stream broke off")]
    BrokeOff,
    #[error("there is no memory left for it")]
    NoMemory,
}

/// Passes an event stream on while no event has more than `longest` bytes. Nothing follows an
/// error.
pub fn bounded_events(
    bytes: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
    longest: usize,
) -> impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static {
    let mut meter = EventMeter::new(longest);
    let mut failed = false;
    bytes
        .map(move |chunk| {
            let chunk = chunk.map_err(|_| BodyError::BrokeOff)?;
            let within = meter.count(&chunk);
            within.then_some(chunk).ok_or(BodyError::TooLong)
        })
        .take_while(move |chunk| {
            let go_on = !failed;
            failed |= chunk.is_err();
            std::future::ready(go_on)
        })
}

/// The same, while there is memory for the event that is being read.
pub fn budgeted_events(
    bytes: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
    longest: usize,
    mut memory: Share,
) -> impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static {
    let mut meter = EventMeter::new(longest);
    bounded_events(bytes, longest).map(move |chunk| {
        let chunk = chunk?;
        meter.count(&chunk);
        memory.give_back();
        let held = (meter.event + chunk.len()) as u64;
        memory.grow(held).map_err(|_| BodyError::NoMemory)?;
        Ok(chunk)
    })
}

/// Measures the event that is being read. An empty line ends an event.
struct EventMeter {
    longest: usize,
    line: usize,
    event: usize,
    /// The last byte was a CR: an LF after it ends the same line.
    after_cr: bool,
}

impl EventMeter {
    fn new(longest: usize) -> Self {
        EventMeter {
            longest,
            line: 0,
            event: 0,
            after_cr: false,
        }
    }

    /// False if an event is too long.
    fn count(&mut self, chunk: &[u8]) -> bool {
        for byte in chunk {
            let after_cr = std::mem::replace(&mut self.after_cr, *byte == b'\r');
            match byte {
                b'\n' if after_cr => {}
                b'\n' | b'\r' if self.line == 0 => self.event = 0,
                b'\n' | b'\r' => self.line = 0,
                _ => {
                    self.line += 1;
                    self.event += 1;
                }
            }
            if self.event > self.longest {
                return false;
            }
        }
        true
    }
}

/// The whole body as it came, or an error if it is longer than `most`. In pieces: a worker has no
/// time to copy megabytes.
pub async fn read_whole(response: reqwest::Response, most: usize) -> Result<Vec<Bytes>, BodyError> {
    let (mut pieces, mut length) = (Vec::new(), 0);
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| BodyError::BrokeOff)?;
        length += chunk.len();
        if length > most {
            return Err(BodyError::TooLong);
        }
        pieces.push(chunk);
    }
    Ok(pieces)
}

/// As [`read_whole`], while there is memory for the body.
pub async fn read_within(
    response: reqwest::Response,
    most: usize,
    memory: &mut Share,
) -> Result<Vec<Bytes>, BodyError> {
    let (mut pieces, mut length) = (Vec::new(), 0);
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| BodyError::BrokeOff)?;
        length += chunk.len();
        if length > most {
            return Err(BodyError::TooLong);
        }
        let taken = memory.grow(chunk.len() as u64);
        taken.map_err(|_| BodyError::NoMemory)?;
        pieces.push(chunk);
    }
    Ok(pieces)
}

/// At most `most` bytes of the body; the rest isn't read.
pub async fn read_beginning(
    response: reqwest::Response,
    most: usize,
) -> Result<Vec<u8>, BodyError> {
    let mut body = Vec::new();
    let mut chunks = response.bytes_stream();
    while body.len() < most
        && let Some(chunk) = chunks.next().await
    {
        let chunk = chunk.map_err(|_| BodyError::BrokeOff)?;
        let room = most - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::exec::mcp::message::LONGEST_MESSAGE;

    fn response(body: &'static [u8]) -> reqwest::Response {
        http::Response::new(body).into()
    }

    #[test]
    fn each_event_is_measured_on_its_own() {
        let mut meter = EventMeter::new(LONGEST_MESSAGE);
        for end in ["\r\n", "\n", "\r"] {
            for _ in 0..3 {
                assert!(meter.count(&vec![b'x'; LONGEST_MESSAGE / 2]));
                assert!(meter.count(end.as_bytes()));
                assert!(meter.count(end.as_bytes()));
            }
        }
        assert!(meter.count(&vec![b'x'; LONGEST_MESSAGE]));
        assert!(meter.count(b"\n"));
        assert!(!meter.count(b"x"));
    }

    #[tokio::test]
    async fn body_and_events_are_read_while_there_is_memory() {
        let budget = Budget::new(10);
        let mut share = budget.share();
        assert!(
            read_within(response(b"12345678"), 50, &mut share)
                .await
                .is_ok()
        );
        assert_eq!(budget.used(), 8);
        let short = read_within(response(b"123"), 50, &mut budget.share()).await;
        assert!(matches!(short, Err(BodyError::NoMemory)));
        drop(share);
        let chunks = ["a\n\n"; 20].into_iter().chain(["123456", "789"]);
        let chunks = chunks.map(|text| Ok(Bytes::from_static(text.as_bytes())));
        let events = budgeted_events(futures::stream::iter(chunks), 50, budget.share());
        let read: Vec<_> = events.collect().await;
        assert!(read[..20].iter().all(Result::is_ok));
        assert!(matches!(read[20], Err(BodyError::NoMemory)));
    }

    #[tokio::test]
    async fn body_is_read_whole_within_the_limit_or_cut() {
        let whole = read_whole(response(b"12345"), 5).await.unwrap();
        assert_eq!(whole.concat(), b"12345");
        let long = read_whole(response(b"12345"), 4).await;
        assert!(matches!(long, Err(BodyError::TooLong)));
        assert_eq!(
            read_beginning(response(b"12345"), 4).await.unwrap(),
            b"1234"
        );
    }
}
