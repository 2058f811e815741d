//! The way out for log lines: callers append to a buffer, one thread writes it in batches.
//!
//! A request never waits for the disk or the pipe behind stderr. When that falls behind by more than the buffer holds,
//! lines are dropped and counted rather than kept in memory.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const CAPACITY: usize = 8 << 20;
/// Lines that come within this time share one write.
const GATHER: Duration = Duration::from_millis(5);

#[derive(Clone)]
pub struct Writer {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    idle: Condvar,
    dropped: AtomicU64,
}

#[derive(Default)]
struct State {
    pending: Vec<u8>,
    writing: bool,
    urgent: bool,
}

impl Writer {
    pub fn spawn(name: &str, sink: impl Write + Send + 'static) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            work: Condvar::new(),
            idle: Condvar::new(),
            dropped: AtomicU64::new(0),
        });
        let theirs = shared.clone();
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || theirs.run(sink))
            .expect("the system has a thread for a writer at start");
        Writer { shared }
    }

    /// Hand over whole lines, each with its newline. False where there is no room for them.
    pub fn push(&self, lines: &[u8]) -> bool {
        let mut state = self.shared.lock();
        if state.pending.len() + lines.len() > CAPACITY {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let was_empty = state.pending.is_empty();
        state.pending.extend_from_slice(lines);
        drop(state);
        if was_empty {
            self.shared.work.notify_one();
        }
        true
    }

    /// Wait until everything is written, but not forever for somebody who doesn't read.
    pub fn flush(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut state = self.shared.lock();
        while !state.pending.is_empty() || state.writing {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state.urgent = true;
            self.shared.work.notify_one();
            (state, _) = self
                .shared
                .idle
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut sink: impl Write) {
        let mut batch = Vec::new();
        let mut state = self.lock();
        loop {
            while state.pending.is_empty() {
                state = self
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            if !state.urgent {
                (state, _) = self
                    .work
                    .wait_timeout_while(state, GATHER, |s| !s.urgent)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            std::mem::swap(&mut state.pending, &mut batch);
            state.writing = true;
            drop(state);

            // Nobody is left to tell when stderr is gone; counting is what can be done.
            if sink.write_all(&batch).and_then(|()| sink.flush()).is_err() {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
            batch.clear();

            state = self.lock();
            state.writing = false;
            if state.pending.is_empty() {
                state.urgent = false;
                self.idle.notify_all();
            }
        }
    }
}

/// For `tracing`, which formats a whole event and writes it in one call.
impl Write for Writer {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.push(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    struct Stuck {
        gate: mpsc::Receiver<()>,
        out: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Stuck {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.gate.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.out.send(buf.to_vec()).unwrap();
            Ok(buf.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_buffer_drops_and_counts_and_never_blocks() {
        let (open, gate) = mpsc::channel();
        let (out, lines) = mpsc::channel();
        let writer = Writer::spawn("test", Stuck { gate, out });
        let line = vec![b'x'; 1 << 20];
        for _ in 0..32 {
            writer.push(&line);
        }
        // One batch may already be in the sink's hands, and one buffer waits behind it.
        assert!(writer.dropped() >= 32 - 16, "{}", writer.dropped());
        for _ in 0..4 {
            open.send(()).unwrap();
        }
        assert_eq!(lines.recv().unwrap()[0], b'x');
    }

    #[test]
    fn flush_does_not_wait_for_somebody_who_does_not_read() {
        let (_open, gate) = mpsc::channel();
        let (out, _lines) = mpsc::channel();
        let writer = Writer::spawn("test", Stuck { gate, out });
        writer.push(b"one\n");
        writer.flush(Duration::from_secs(1));
    }

    #[test]
    fn flush_returns_once_everything_is_written() {
        let (open, gate) = mpsc::channel();
        let (out, lines) = mpsc::channel();
        for _ in 0..10 {
            open.send(()).unwrap();
        }
        let writer = Writer::spawn("test", Stuck { gate, out });
        writer.push(b"one\n");
        writer.flush(Duration::from_secs(1));
        assert_eq!(lines.try_recv().unwrap(), b"one\n");
    }
}
