//! The lines of standard input, each of a bounded length.

use std::io::{self, BufRead};

use tokio::sync::mpsc;

use super::long_line;

/// Bytes of a line. A proxy may take less, and says so.
const LONGEST_LINE: usize = 64 << 20;
/// Lines that wait to be looked at.
const QUEUED_LINES: usize = 64;

#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Text(Vec<u8>),
    /// Longer than the limit: skipped to its end.
    TooLong {
        limit: usize,
        /// Its `id`, as JSON, where that stands near the beginning or at the end.
        id: Option<Box<str>>,
    },
}

/// Lines as they come, from a thread of its own: a read can't be given up.
pub fn lines() -> mpsc::Receiver<Line> {
    let (sender, lines) = mpsc::channel(QUEUED_LINES);
    let read = move || {
        let mut input = io::stdin().lock();
        while let Ok(Some(line)) = next(&mut input, LONGEST_LINE) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    };
    let started = std::thread::Builder::new().name("stdin".into()).spawn(read);
    if let Err(e) = started {
        tracing::error!(error = %e, "standard input can't be read");
    }
    lines
}

/// None at the end. What comes last counts without a line break, too.
fn next(input: &mut impl BufRead, limit: usize) -> io::Result<Option<Line>> {
    let (mut line, mut is_long) = (Vec::new(), false);
    let mut ends = long_line::Ends::default();
    loop {
        let read = match input.fill_buf() {
            Ok(read) => read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        let end = memchr::memchr(b'\n', read);
        let taken = end.map_or(read.len(), |at| at + 1);
        let is_over = read.is_empty();
        is_long |= line.len() + taken > limit;
        if is_long {
            ends.push(&std::mem::take(&mut line));
            ends.push(&read[..taken]);
        } else {
            line.extend_from_slice(&read[..taken]);
        }
        input.consume(taken);
        if end.is_some() || is_over {
            return Ok(match (is_long, is_over && line.is_empty()) {
                (true, _) => Some(Line::TooLong {
                    limit,
                    id: ends.id(),
                }),
                (false, true) => None,
                (false, false) => Some(Line::Text(line)),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_that_is_too_long_is_skipped_and_the_next_one_is_read() {
        let mut input = io::BufReader::with_capacity(3, &b"ab\n0123456789\n\ncd"[..]);
        let mut next = || super::next(&mut input, 5).unwrap();
        assert_eq!(next(), Some(Line::Text(b"ab\n".to_vec())));
        assert_eq!(next(), Some(Line::TooLong { limit: 5, id: None }));
        assert_eq!(next(), Some(Line::Text(b"\n".to_vec())));
        assert_eq!(next(), Some(Line::Text(b"cd".to_vec())));
        assert_eq!(next(), None);
    }

    #[test]
    fn line_that_is_too_long_still_has_its_id() {
        let text = format!("{{\"id\":7,\"x\":\"{}\"}}\n", "y".repeat(9000));
        let mut input = io::BufReader::with_capacity(1000, text.as_bytes());
        let id = Some("7".into());
        let expected = Line::TooLong { limit: 2500, id };
        assert_eq!(super::next(&mut input, 2500).unwrap(), Some(expected));
    }
}
