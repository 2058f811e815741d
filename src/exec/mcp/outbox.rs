//! What a child has yet to read. Nobody waits for it to do so: whoever left would go on waiting, with all that it wanted to say.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// Messages that wait to be read, and how long all of them may be together. A child that doesn't read gets no more.
const MOST: usize = 256;
const MOST_BYTES: usize = 64 << 20;

#[derive(Clone)]
pub struct Outbox {
    lines: mpsc::Sender<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
}

/// The other end.
pub struct Unread {
    lines: mpsc::Receiver<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
}

pub fn outbox() -> (Outbox, Unread) {
    let (sender, lines) = mpsc::channel(MOST);
    let waiting = Arc::<AtomicUsize>::default();
    let unread = Unread {
        lines,
        waiting: waiting.clone(),
    };
    let outbox = Outbox {
        lines: sender,
        waiting,
    };
    (outbox, unread)
}

impl Outbox {
    /// `WouldBlock` where it is full.
    pub fn put(&self, line: Vec<u8>) -> io::Result<()> {
        let place = self.lines.try_reserve().map_err(|e| match e {
            TrySendError::Full(()) => io::ErrorKind::WouldBlock,
            TrySendError::Closed(()) => io::ErrorKind::BrokenPipe,
        })?;
        // However long it is, one that is the first is taken.
        if self.waiting.load(Ordering::Relaxed) > MOST_BYTES {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.waiting.fetch_add(line.len(), Ordering::Relaxed);
        place.send(line);
        Ok(())
    }
}

impl Unread {
    pub async fn write_to(mut self, mut stdin: impl AsyncWrite + Unpin) {
        while let Some(line) = self.lines.recv().await {
            if stdin.write_all(&line).await.is_err() || stdin.flush().await.is_err() {
                return;
            }
            self.waiting.fetch_sub(line.len(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_not_read_is_bounded_in_number_and_in_length() {
        let (outbox, unread) = outbox();
        for _ in 0..MOST {
            outbox.put(b"x".to_vec()).unwrap();
        }
        let full = outbox.put(b"x".to_vec()).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        drop(unread);
        let gone = outbox.put(b"x".to_vec()).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);

        let (outbox, unread) = super::outbox();
        outbox.put(vec![0; MOST_BYTES + 1]).unwrap();
        let full = outbox.put(b"x".to_vec()).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        // What is read makes room.
        let reading = tokio::spawn(unread.write_to(tokio::io::sink()));
        while outbox.put(b"x".to_vec()).is_err() {
            tokio::task::yield_now().await;
        }
        drop(outbox);
        reading.await.unwrap();
    }
}
