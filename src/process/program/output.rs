//! What a program writes. Both streams are read until they end, so that a program never waits for a
//! full pipe.

use std::collections::VecDeque;

use tokio::io::{AsyncRead, AsyncReadExt};
use zeroize::Zeroizing;

use super::ProgramError;
use crate::spool::{Spool, Spooled};

const READ_SIZE: usize = 64 << 10;

/// All of it, if it isn't more than this.
pub(super) async fn collect(
    mut from: impl AsyncRead + Unpin,
    mut spool: Spool,
    limit: u64,
) -> Result<Spooled, ProgramError> {
    let mut buffer = Zeroizing::new(vec![0; READ_SIZE]);
    loop {
        let read = from.read(&mut buffer).await.map_err(ProgramError::Output)?;
        if read == 0 {
            return Ok(spool.finish().await?);
        }
        if spool.len() + read as u64 > limit {
            return Err(ProgramError::TooMuch { limit });
        }
        spool.write(&buffer[..read]).await?;
    }
}

/// What a program wrote to stderr: all of it, or its first and its last part.
#[derive(Clone, Default)]
pub struct Stderr {
    first: Zeroizing<Vec<u8>>,
    last: Zeroizing<Vec<u8>>,
    /// Bytes between the two.
    pub left_out: u64,
}

/// It may repeat a secret of the environment.
impl std::fmt::Debug for Stderr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let length = (self.first.len() + self.last.len()) as u64 + self.left_out;
        write!(f, "Stderr({length} bytes)")
    }
}

impl Stderr {
    /// With a line in place of what was left out.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let gap = match self.left_out {
            0 => String::new(),
            bytes => format!("\n[... {bytes} bytes left out ...]\n"),
        };
        Zeroizing::new([&self.first[..], gap.as_bytes(), &self.last[..]].concat())
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.last.is_empty()
    }
}

/// Keeps `most` bytes, and reads on to the end whatever comes. What can't be read has ended.
pub(super) async fn collect_ends(mut from: impl AsyncRead + Unpin, most: usize) -> Stderr {
    let half = most / 2;
    let mut first = Zeroizing::new(Vec::new());
    let mut last: VecDeque<u8> = VecDeque::new();
    let mut left_out = 0;
    let mut buffer = Zeroizing::new(vec![0; READ_SIZE.min(most.max(1))]);
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let (to_first, rest) = buffer[..read].split_at(read.min(half - first.len()));
        first.extend_from_slice(to_first);
        last.extend(rest);
        let excess = last.len().saturating_sub(most - half);
        last.drain(..excess);
        left_out += excess as u64;
    }
    Stderr {
        first,
        last: Zeroizing::new(last.into()),
        left_out,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::Quota;

    #[tokio::test]
    async fn stderr_keeps_its_beginning_and_its_end() {
        for (text, expected, left_out) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("0123456789", "0123456789", 0),
            (
                "0123456789abc",
                "01234\n[... 3 bytes left out ...]\n89abc",
                3,
            ),
        ] {
            let kept = collect_ends(text.as_bytes(), 10).await;
            assert_eq!(*kept.to_bytes(), expected.as_bytes());
            assert_eq!(
                (kept.left_out, kept.is_empty()),
                (left_out, text.is_empty())
            );
            assert!(!format!("{kept:?}").contains("012"));
        }
        let long = vec![b'x'; 10 << 20];
        let kept = collect_ends(&long[..], 1 << 10).await;
        assert_eq!(kept.left_out, (10 << 20) - (1 << 10));
    }

    #[tokio::test]
    async fn stdout_beyond_its_limit_is_an_error() {
        let quota = Quota::new(u64::MAX);
        let spool = || Spool::new(1000, quota.clone());
        let whole = collect(&b"12345"[..], spool(), 5).await.unwrap();
        assert_eq!(whole.len(), 5);
        let more = collect(&b"123456"[..], spool(), 5).await.unwrap_err();
        assert!(matches!(more, ProgramError::TooMuch { limit: 5 }), "{more}");
    }
}
