//! A bounded queue of messages to a child's stdin. Sending never waits: a cancelled call would
//! leave a pending write and its payload behind.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::budget::{Budget, Share};

/// Bounds of the queue. A child that doesn't read its input gets no more messages.
const MOST_MESSAGES: usize = 256;
const MOST_BYTES: usize = 64 << 20;
/// Places for notes that a call is cancelled, which other messages don't get: many callers may
/// leave at once, before the writer has its turn.
const MOST_NOTES: usize = 256;
/// The same where each client has a child of its own.
const MOST_RELAYED_BYTES: usize = 4 << 20;
/// Messages that wait together are written together, so many and up to this size: each write wakes
/// the child.
const MOST_TOGETHER: usize = 32;
const MOST_BYTES_TOGETHER: usize = 64 << 10;
/// A shorter message is queued without a part of the memory that calls share: the answers of ati
/// itself, and notes that a request is cancelled, must not fail for want of it.
const UNCOUNTED: usize = 4 << 10;

/// The sending end.
#[derive(Clone)]
pub struct Outbox {
    messages: mpsc::Sender<Queued>,
    queued_bytes: Arc<AtomicUsize>,
    most_bytes: usize,
    /// What calls share, where messages count against it.
    memory: Option<Arc<Budget>>,
}

#[derive(Default)]
struct Queued {
    text: Vec<u8>,
    _memory: Option<Share>,
}

/// The receiving end, which writes the messages to the child.
pub struct OutboxWriter {
    messages: mpsc::Receiver<Queued>,
    queued_bytes: Arc<AtomicUsize>,
}

pub fn outbox() -> (Outbox, OutboxWriter) {
    with_bounds(MOST_BYTES, None)
}

/// For messages of clients, which may send them faster than a child reads.
pub fn relayed_outbox(memory: Arc<Budget>) -> (Outbox, OutboxWriter) {
    with_bounds(MOST_RELAYED_BYTES, Some(memory))
}

fn with_bounds(most_bytes: usize, memory: Option<Arc<Budget>>) -> (Outbox, OutboxWriter) {
    let (sender, receiver) = mpsc::channel(MOST_MESSAGES + MOST_NOTES);
    let queued_bytes = Arc::<AtomicUsize>::default();
    let writer = OutboxWriter {
        messages: receiver,
        queued_bytes: queued_bytes.clone(),
    };
    let outbox = Outbox {
        messages: sender,
        queued_bytes,
        most_bytes,
        memory,
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
        if self.messages.capacity() < MOST_NOTES {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // A single message may exceed the bound: it is taken while the queue is below it.
        if self.queued_bytes.load(Ordering::Relaxed) > self.most_bytes {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let memory = match &self.memory {
            Some(memory) if message.len() > UNCOUNTED => {
                let mut share = memory.share();
                let taken = share.grow(message.len() as u64);
                taken.map_err(|_| io::ErrorKind::WouldBlock)?;
                Some(share)
            }
            _ => None,
        };
        self.queued_bytes
            .fetch_add(message.len(), Ordering::Relaxed);
        place.send(Queued {
            text: message,
            _memory: memory,
        });
        Ok(())
    }

    /// Queues a note that a call is cancelled, which is short. It is lost where there is no place.
    pub fn note(&self, note: Vec<u8>) {
        if let Ok(place) = self.messages.try_reserve() {
            self.queued_bytes.fetch_add(note.len(), Ordering::Relaxed);
            place.send(Queued {
                text: note,
                _memory: None,
            });
        }
    }

    /// Where the queue is full, lets the writer have its turn first, if it is on the same worker.
    pub async fn let_write(&self) {
        if self.messages.capacity() <= MOST_NOTES {
            tokio::task::yield_now().await;
        }
    }
}

impl OutboxWriter {
    /// Writes messages until the outbox is dropped or the child stops reading.
    pub async fn write_to(mut self, mut stdin: impl AsyncWrite + Unpin) {
        let (mut taken, mut joined) = (Vec::new(), Vec::new());
        while self.messages.recv_many(&mut taken, MOST_TOGETHER).await > 0 {
            let mut left = taken.as_mut_slice();
            while !left.is_empty() {
                let (now, later) = left.split_at_mut(fit_together(left));
                let text = match &*now {
                    [one] => &one.text,
                    several => {
                        joined.clear();
                        several
                            .iter()
                            .for_each(|one| joined.extend_from_slice(&one.text));
                        &joined
                    }
                };
                let length = text.len();
                if stdin.write_all(text).await.is_err() || stdin.flush().await.is_err() {
                    return;
                }
                self.queued_bytes.fetch_sub(length, Ordering::Relaxed);
                now.fill_with(Queued::default);
                left = later;
            }
            taken.clear();
        }
    }
}

/// How many of the first messages are written together: one at least.
fn fit_together(messages: &[Queued]) -> usize {
    let mut bytes = 0;
    let fit = messages.iter().take_while(|message| {
        bytes += message.text.len();
        bytes <= MOST_BYTES_TOGETHER
    });
    fit.count().max(1)
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;

    #[tokio::test]
    async fn queue_is_bounded_in_messages() {
        let (outbox, writer) = outbox();
        for _ in 0..MOST_MESSAGES {
            outbox.send(b"x".to_vec()).unwrap();
        }
        let full = outbox.send(b"x".to_vec()).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        for _ in 0..MOST_NOTES + 1 {
            outbox.note(b"n".to_vec());
        }
        let queued = outbox.queued_bytes.load(Ordering::Relaxed);
        assert_eq!(queued, MOST_MESSAGES + MOST_NOTES);
        drop(writer);
        let gone = outbox.send(b"x".to_vec()).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn messages_of_clients_hold_memory_until_they_are_written() {
        let budget = Budget::new(20_000);
        let (outbox, writer) = relayed_outbox(budget.clone());
        outbox.send(vec![0; 15_000]).unwrap();
        let full = outbox.send(vec![0; 15_000]).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        outbox.send(b"short".to_vec()).unwrap();
        assert_eq!(budget.used(), 15_000);
        drop(outbox);
        writer.write_to(tokio::io::sink()).await;
        assert_eq!(budget.used(), 0);
        let (outbox, _writer) = relayed_outbox(Budget::new(1 << 30));
        outbox.send(vec![0; MOST_RELAYED_BYTES + 1]).unwrap();
        assert!(outbox.send(b"x".to_vec()).is_err());
    }

    #[tokio::test]
    async fn message_that_lets_the_writer_write_finds_a_place() {
        let (outbox, writer) = outbox();
        let writing = tokio::spawn(writer.write_to(tokio::io::sink()));
        for _ in 0..4 * MOST_MESSAGES {
            outbox.let_write().await;
            outbox.send(b"x".to_vec()).unwrap();
        }
        drop(outbox);
        writing.await.unwrap();
    }

    #[tokio::test]
    async fn messages_are_written_in_their_order_and_small_ones_together() {
        let (outbox, writer) = outbox();
        let mut all = Vec::new();
        for number in 0..100_usize {
            let length = if number % 7 == 3 { 50_000 } else { 10 + number };
            let message = vec![b'a' + (number % 26) as u8; length];
            all.extend_from_slice(&message);
            outbox.send(message).unwrap();
        }
        outbox.send(vec![b'!'; 3 * MOST_BYTES_TOGETHER]).unwrap();
        all.extend_from_slice(&vec![b'!'; 3 * MOST_BYTES_TOGETHER]);
        let queued = outbox.queued_bytes.clone();
        drop(outbox);
        let mut written = Writes::default();
        writer.write_to(&mut written).await;
        assert!(written.0.concat() == all && queued.load(Ordering::Relaxed) == 0);
        assert!(written.0.len() < 30, "{} writes", written.0.len());
    }

    /// Keeps each write apart.
    #[derive(Default)]
    struct Writes(Vec<Vec<u8>>);

    impl AsyncWrite for Writes {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.0.push(bytes.to_vec());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
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
