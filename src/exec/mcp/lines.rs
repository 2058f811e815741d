//! Lines of a child's output, of a bounded length.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// How much is read at a time.
const BUFFER: usize = 64 << 10;

/// Reads lines that are at most `longest` bytes long, their ends included.
pub struct BoundedLines<R> {
    from: BufReader<R>,
    longest: usize,
    /// The beginning of the line that is being read. Kept here because rmcp may drop a `receive`
    /// and start another.
    line: Vec<u8>,
}

/// A line is too long, or can't be read.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("a line of more than {} MB", .0 / 1_000_000)]
    TooLong(usize),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl<R: AsyncRead + Unpin> BoundedLines<R> {
    pub fn new(from: R, longest: usize) -> Self {
        BoundedLines {
            from: BufReader::with_capacity(BUFFER, from),
            longest,
            line: Vec::new(),
        }
    }

    /// The next line, with its end. None where the input ends: the beginning of a line is no line.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, LineError> {
        loop {
            let read = self.from.fill_buf().await?;
            if read.is_empty() {
                return Ok(None);
            }
            let end = memchr::memchr(b'\n', read);
            let taken = end.map_or(read.len(), |at| at + 1);
            if self.line.len() + taken > self.longest {
                return Err(LineError::TooLong(self.longest));
            }
            self.line.extend_from_slice(&read[..taken]);
            self.from.consume(taken);
            if end.is_some() {
                return Ok(Some(std::mem::take(&mut self.line)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn line_is_read_up_to_the_limit_and_not_beyond() {
        let mut lines = BoundedLines::new(&b"1234\n\n12345\n"[..], 5);
        assert_eq!(lines.next().await.unwrap().unwrap(), b"1234\n");
        assert_eq!(lines.next().await.unwrap().unwrap(), b"\n");
        assert!(matches!(lines.next().await, Err(LineError::TooLong(5))));
        let mut lines = BoundedLines::new(&b"123"[..], 5);
        assert!(lines.next().await.unwrap().is_none());
    }
}
