//! A bounded queue of messages to a child's stdin. Sending never waits: a cancelled call would
//! leave a pending write and its payload behind.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// Bounds of the queue. A child that doesn't read its input gets no more messages.
const MOST_MESSAGES: usize = 256;
const MOST_BYTES: usize = 64 << 20;

/// The sending end.
#[derive(Clone)]
pub struct Outbox {
    messages: mpsc::Sender<Vec<u8>>,
    queued_bytes: Arc<AtomicUsize>,
}

/// The receiving end, which writes the messages to the child.
pub struct OutboxWriter {
    messages: mpsc::Receiver<Vec<u8>>,
    queued_bytes: Arc<AtomicUsize>,
}

pub fn outbox() -> (Outbox, OutboxWriter) {
    let (sender, receiver) = mpsc::channel(MOST_MESSAGES);
    let queued_bytes = Arc::<AtomicUsize>::default();
    let writer = OutboxWriter {
        messages: receiver,
        queued_bytes: queued_bytes.clone(),
    };
    let outbox = Outbox {
        messages: sender,
        queued_bytes,
    };
    (outbox, writer)
}

impl Outbox {
    /// Queues one message. `WouldBlock` if the queue is full, `BrokenPipe` if the child is gone.
    pub fn send(&self, message: Vec<u8>) -> io::Result<()> {
        let place = self.messages.try_reserve().map_err(|e| match e {
            TrySendError::Full(()) => io::ErrorKind::WouldBlock,
            TrySendError::Closed(()) => io::ErrorKind::BrokenPipe,
        })?;
        // A single message may exceed the bound: it is taken while the queue is below it.
        if self.queued_bytes.load(Ordering::Relaxed) > MOST_BYTES {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.queued_bytes
            .fetch_add(message.len(), Ordering::Relaxed);
        place.send(message);
        Ok(())
    }
}

impl OutboxWriter {
    /// Writes messages until the outbox is dropped or the child stops reading.
    pub async fn write_to(mut self, mut stdin: impl AsyncWrite + Unpin) {
        while let Some(message) = self.messages.recv().await {
            if stdin.write_all(&message).await.is_err() || stdin.flush().await.is_err() {
                return;
            }
            self.queued_bytes
                .fetch_sub(message.len(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn queue_is_bounded_in_messages() {
        let (outbox, writer) = outbox();
        for _ in 0..MOST_MESSAGES {
            outbox.send(b"x".to_vec()).unwrap();
        }
        let full = outbox.send(b"x".to_vec()).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        drop(writer);
        let gone = outbox.send(b"x".to_vec()).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn queue_is_bounded_in_bytes_and_takes_more_once_it_is_written() {
        let (outbox, writer) = outbox();
        outbox.send(vec![0; MOST_BYTES + 1]).unwrap();
        let full = outbox.send(b"x".to_vec()).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        let writing = tokio::spawn(writer.write_to(tokio::io::sink()));
        while outbox.send(b"x".to_vec()).is_err() {
            tokio::task::yield_now().await;
        }
        drop(outbox);
        writing.await.unwrap();
    }
}
