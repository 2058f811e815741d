//! Work that a signal may end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{Code, Failure};

/// What a shell makes of a command that SIGINT ended.
const INTERRUPTED: u8 = 130;
/// And of one that SIGTERM ended.
const TERMINATED: u8 = 143;
/// And of one whose terminal was closed.
const HUNG_UP: u8 = 129;

/// How work ended.
pub enum Ended<T> {
    Done(T),
    /// By a signal. The exit code says by which one.
    Interrupted(u8),
}

/// Drops the work where a signal ends the command: what is partial is removed on the way.
pub async fn interruptible<T>(
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<Ended<T>, Failure> {
    let unwatched = |e| Failure::new(Code::ExecutionFailed, "signals").because(e);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(unwatched)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(unwatched)?;
    let mut hang_up = match ignores_hang_up() {
        true => None,
        false => Some(signal(SignalKind::hangup()).map_err(unwatched)?),
    };
    tokio::select! {
        done = work => done.map(Ended::Done),
        _ = interrupt.recv() => Ok(Ended::Interrupted(INTERRUPTED)),
        _ = terminate.recv() => Ok(Ended::Interrupted(TERMINATED)),
        () = received(&mut hang_up) => Ok(Ended::Interrupted(HUNG_UP)),
    }
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Whether the command was started by nohup. A handler would undo that.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 << (libc::SIGHUP - 1) != 0)
}

/// Tells work on another thread that its result isn't wanted any more.
#[derive(Default)]
pub struct Stop(AtomicBool);

impl Stop {
    /// Fails where the work has to end. Work that reads or writes many files asks between them.
    pub fn check(&self) -> Result<(), Failure> {
        match self.0.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Failure::new(Code::ExecutionFailed, "interrupted")),
        }
    }
}

/// Sets the flag when the future that waits for the work is dropped.
struct StopOnDrop(Arc<Stop>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Work that blocks, on a thread of its own, so that signals are seen meanwhile. The runtime waits
/// for it when it is dropped: what it undoes at its end is undone before the command ends.
pub async fn on_thread<T: Send + 'static>(
    work: impl FnOnce(&Stop) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let stop = Arc::new(Stop::default());
    let _guard = StopOnDrop(stop.clone());
    let done = tokio::task::spawn_blocking(move || work(&stop)).await;
    done.unwrap_or_else(|e| Err(Failure::from_error(Code::ExecutionFailed, e)))
}
