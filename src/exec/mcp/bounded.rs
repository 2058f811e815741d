//! Bodies of servers behind URLs, measured while they are read.

use bytes::Bytes;
use futures::stream::{Stream, StreamExt};

use super::lines::LONGEST_MESSAGE;

/// More of a refusal is read than is told, so that secrets are found whole.
pub const READ_ERROR: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum Broken {
    #[error("an event of more than 50 MB")]
    TooLong,
    #[error("the stream broke off")]
    BrokeOff,
}

/// As it comes, each event of a bounded size. Nothing comes after a fault.
pub fn bounded(
    bytes: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, Broken>> + Send + 'static {
    let mut event = Event::default();
    let mut over = false;
    bytes
        .map(move |piece| {
            let piece = piece.map_err(|_| Broken::BrokeOff)?;
            event.follow(&piece).then_some(piece).ok_or(Broken::TooLong)
        })
        .take_while(move |piece| {
            let go_on = !over;
            over |= piece.is_err();
            std::future::ready(go_on)
        })
}

/// How long the event is that is being read.
#[derive(Default)]
struct Event {
    line: usize,
    all: usize,
    /// The last was a CR: an LF after it ends the same line.
    returned: bool,
}

impl Event {
    /// False where it is too long.
    fn follow(&mut self, piece: &[u8]) -> bool {
        for byte in piece {
            let returned = std::mem::replace(&mut self.returned, *byte == b'\r');
            match byte {
                b'\n' if returned => {}
                b'\n' | b'\r' if self.line == 0 => self.all = 0,
                b'\n' | b'\r' => self.line = 0,
                _ => {
                    self.line += 1;
                    self.all += 1;
                }
            }
            if self.all > LONGEST_MESSAGE {
                return false;
            }
        }
        true
    }
}

/// All of it. Of an error, the beginning will do.
pub async fn read(response: reqwest::Response, most: usize) -> Result<Vec<u8>, Broken> {
    let mut body = Vec::new();
    let mut pieces = response.bytes_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| Broken::BrokeOff)?;
        if body.len() + piece.len() > most {
            body.extend_from_slice(&piece[..most - body.len()]);
            return if most == READ_ERROR {
                Ok(body)
            } else {
                Err(Broken::TooLong)
            };
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_measured_one_by_one() {
        let mut event = Event::default();
        for end in ["\r\n", "\n", "\r"] {
            for _ in 0..3 {
                assert!(event.follow(&vec![b'x'; LONGEST_MESSAGE / 2]));
                assert!(event.follow(end.as_bytes()));
                assert!(event.follow(end.as_bytes()));
            }
        }
        assert!(event.follow(&vec![b'x'; LONGEST_MESSAGE]));
        assert!(event.follow(b"\n"));
        assert!(!event.follow(b"x"));
    }
}
