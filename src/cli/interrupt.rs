//! Work that a signal may end.

use tokio::signal::unix::{SignalKind, signal};

use crate::error::{Code, Failure};

/// What a shell makes of a command that SIGINT ended.
const INTERRUPTED: u8 = 130;
/// And of one that SIGTERM ended.
const TERMINATED: u8 = 143;

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
    tokio::select! {
        done = work => done.map(Ended::Done),
        _ = interrupt.recv() => Ok(Ended::Interrupted(INTERRUPTED)),
        _ = terminate.recv() => Ok(Ended::Interrupted(TERMINATED)),
    }
}
