//! A bounded queue of log lines: callers append to a buffer, one thread writes it in batches.
//!
//! A request never waits for the disk or for the pipe behind stderr. Lines that don't fit into the
//! buffer are dropped and counted.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

const CAPACITY: usize = 8 << 20;
/// Lines that come within this time share one write. Where the writer shares a core with a worker,
/// requests wait while it writes: so it writes little at a time.
const GATHER: Duration = Duration::from_millis(2);

#[derive(Clone)]
pub struct Writer {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Lines are pending, or urgent.
    work: Condvar,
    /// Every line is written.
    idle: Condvar,
    dropped: AtomicU64,
}

#[derive(Default)]
struct Queue {
    pending: Vec<u8>,
    writing: bool,
    /// The thread sleeps until a line comes.
    sleeping: bool,
    /// A flush waits: write without gathering.
    urgent: bool,
}

impl Writer {
    pub fn spawn(name: &str, sink: impl Write + Send + 'static) -> Self {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            work: Condvar::new(),
            idle: Condvar::new(),
            dropped: AtomicU64::new(0),
        });
        let of_thread = shared.clone();
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || of_thread.run(sink))
            .expect("the system has a thread for a writer at start");
        Writer { shared }
    }

    /// Appends whole lines, each with its newline. False where the buffer has no room for them.
    pub fn push(&self, lines: &[u8]) -> bool {
        let mut queue = self.shared.queue.lock();
        if queue.pending.len() + lines.len() > CAPACITY {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        queue.pending.extend_from_slice(lines);
        let sleeps = std::mem::take(&mut queue.sleeping);
        drop(queue);
        if sleeps {
            self.shared.work.notify_one();
        }
        true
    }

    /// Waits until everything is written, at most for `patience`: the reader of a pipe may have
    /// stopped reading.
    pub fn flush(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut queue = self.shared.queue.lock();
        while !queue.pending.is_empty() || queue.writing {
            if Instant::now() >= deadline {
                return;
            }
            queue.urgent = true;
            self.shared.work.notify_one();
            self.shared.idle.wait_until(&mut queue, deadline);
        }
    }

    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn run(&self, mut sink: impl Write) {
        let mut batch = Vec::new();
        let mut queue = self.queue.lock();
        loop {
            // Under load the next lines are there after it, and no push has to wake the thread.
            self.work
                .wait_while_for(&mut queue, |queue| !queue.urgent, GATHER);
            if queue.pending.is_empty() {
                queue.sleeping = true;
                self.work
                    .wait_while(&mut queue, |queue| queue.pending.is_empty());
                continue;
            }
            std::mem::swap(&mut queue.pending, &mut batch);
            queue.writing = true;
            drop(queue);

            // Where stderr is gone there is nowhere to report it: the loss is only counted.
            if sink.write_all(&batch).and_then(|()| sink.flush()).is_err() {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
            batch.clear();

            queue = self.queue.lock();
            queue.writing = false;
            if queue.pending.is_empty() {
                queue.urgent = false;
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

    /// Blocks each write until the gate lets it through.
    struct GatedSink {
        gate: mpsc::Receiver<()>,
        out: mpsc::Sender<Vec<u8>>,
    }

    impl Write for GatedSink {
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
    fn full_buffer_drops_lines_and_counts_them() {
        let (open, gate) = mpsc::channel();
        let (out, lines) = mpsc::channel();
        let writer = Writer::spawn("test", GatedSink { gate, out });
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
    fn flush_of_a_stuck_sink_ends_after_its_patience() {
        let (_open, gate) = mpsc::channel();
        let (out, lines) = mpsc::channel();
        let writer = Writer::spawn("test", GatedSink { gate, out });
        writer.push(b"one\n");
        let (done, ended) = mpsc::channel();
        let patience = Duration::from_millis(200);
        let start = Instant::now();
        std::thread::spawn(move || {
            writer.flush(patience);
            done.send(start.elapsed()).unwrap();
        });
        let elapsed = ended
            .recv_timeout(Duration::from_secs(30))
            .expect("flush ends although nothing is written");
        assert!(elapsed >= patience, "{elapsed:?}");
        assert!(lines.try_recv().is_err());
    }

    #[test]
    fn flush_of_a_writing_sink_returns_when_all_is_written() {
        let (open, gate) = mpsc::channel();
        let (out, lines) = mpsc::channel();
        for _ in 0..10 {
            open.send(()).unwrap();
        }
        let writer = Writer::spawn("test", GatedSink { gate, out });
        writer.push(b"one\n");
        writer.flush(Duration::from_secs(1));
        assert_eq!(lines.try_recv().unwrap(), b"one\n");
    }
}
