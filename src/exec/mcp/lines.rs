//! Lines of a child's output, of a bounded length.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// How much is read at a time.
const BUFFER: usize = 64 << 10;
/// A long line is kept in pieces of about this size: a buffer that grows is copied, and a worker
/// has no time for megabytes.
const PIECE: usize = 256 << 10;

/// Reads lines that are at most `longest` bytes long, their ends included.
pub struct BoundedLines<R> {
    from: BufReader<R>,
    longest: usize,
    /// The beginning of the line that is being read. Kept here because rmcp may drop a `receive`
    /// and start another.
    line: Line,
}

/// A line, with its end.
#[derive(Debug, Default)]
pub struct Line {
    pieces: Vec<Vec<u8>>,
    len: usize,
}

impl Line {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// In one piece. A long line is copied.
    pub fn into_bytes(mut self) -> Vec<u8> {
        match self.pieces.len() {
            0 | 1 => self.pieces.pop().unwrap_or_default(),
            _ => self.pieces.concat(),
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        match self.pieces.last_mut() {
            Some(last) if last.len() + bytes.len() <= PIECE => last.extend_from_slice(bytes),
            _ => self.pieces.push(bytes.to_vec()),
        }
    }
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
            line: Line::default(),
        }
    }

    /// Waits until there is something to read. False: the input has ended, or can't be read, as
    /// [`BoundedLines::next`] tells.
    pub async fn wait(&mut self) -> bool {
        self.from
            .fill_buf()
            .await
            .is_ok_and(|read| !read.is_empty())
    }

    /// Whether there is something that was read and not yet taken.
    pub fn has_unread(&self) -> bool {
        !self.from.buffer().is_empty()
    }

    /// Skips the next line, if it has been read whole, is at most `longest` bytes long, and `done`
    /// says that it is done with: such a line isn't copied. Waits for nothing.
    pub fn skip_if(&mut self, longest: usize, done: impl FnOnce(&[u8]) -> bool) -> bool {
        // The end of a line whose beginning is kept.
        if !self.line.is_empty() {
            return false;
        }
        let Some(end) = memchr::memchr(b'\n', self.from.buffer()) else {
            return false;
        };
        let length = end + 1;
        let skips = length <= longest.min(self.longest) && done(&self.from.buffer()[..length]);
        if skips {
            self.from.consume(length);
        }
        skips
    }

    /// The next line, with its end. None where the input ends: the beginning of a line is no line.
    pub async fn next(&mut self) -> Result<Option<Line>, LineError> {
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
            self.line.push(&read[..taken]);
            self.from.consume(taken);
            if end.is_some() {
                return Ok(Some(std::mem::take(&mut self.line)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    async fn next(lines: &mut BoundedLines<&[u8]>) -> Vec<u8> {
        lines.next().await.unwrap().unwrap().into_bytes()
    }

    #[tokio::test]
    async fn line_is_read_up_to_the_limit_and_not_beyond() {
        let mut lines = BoundedLines::new(&b"1234\n\n12345\n"[..], 5);
        assert_eq!(next(&mut lines).await, b"1234\n");
        assert_eq!(next(&mut lines).await, b"\n");
        assert!(matches!(lines.next().await, Err(LineError::TooLong(5))));
        let mut lines = BoundedLines::new(&b"123"[..], 5);
        assert!(lines.next().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn line_is_skipped_only_if_it_is_whole_and_done_with() {
        let (reader, mut writer) = tokio::io::duplex(1000);
        let mut lines = BoundedLines::new(reader, 100);
        writer.write_all(b"one\ntwo\nthree\nfo").await.unwrap();
        assert!(!lines.skip_if(10, |_| true));
        assert!(lines.wait().await && lines.has_unread());
        assert!(lines.skip_if(10, |line| line == b"one\n"));
        assert!(!lines.skip_if(10, |line| line == b"one\n"));
        assert!(lines.skip_if(10, |line| line == b"two\n"));
        assert!(!lines.skip_if(5, |_| true));
        let three = lines.next().await.unwrap().unwrap();
        assert_eq!(three.into_bytes(), b"three\n");
        assert!(!lines.skip_if(10, |_| true));
        // The beginning of the line is kept: its end is no line.
        assert!(futures::poll!(std::pin::pin!(lines.next())).is_pending());
        writer.write_all(b"ur\nfive\n").await.unwrap();
        assert!(lines.wait().await && lines.has_unread());
        assert!(!lines.skip_if(10, |_| true));
        let four = lines.next().await.unwrap().unwrap();
        assert_eq!(four.into_bytes(), b"four\n");
        assert!(lines.skip_if(10, |line| line == b"five\n"));
    }

    #[tokio::test]
    async fn long_line_comes_whole_from_its_pieces() {
        let long: Vec<u8> = (0..3 * PIECE).map(|n| b'a' + (n % 23) as u8).collect();
        let text = [&long[..], b"\nshort\n"].concat();
        let mut lines = BoundedLines::new(&text[..], text.len());
        let line = lines.next().await.unwrap().unwrap();
        assert!(line.len() == long.len() + 1 && line.pieces.len() > 2);
        assert_eq!(line.into_bytes(), [&long[..], b"\n"].concat());
        assert_eq!(next(&mut lines).await, b"short\n");
    }
}
