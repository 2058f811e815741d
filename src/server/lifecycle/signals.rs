//! The signals that a server process obeys.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{Code, Failure};

/// All signals, of a process that serves.
pub struct Signals {
    hangup: Signal,
    upgrade: Signal,
    terminate: Signal,
    interrupt: Signal,
}

/// The signals of a process that doesn't serve yet: a reload or an upgrade that it is asked for is
/// done once it serves. SIGTERM and SIGINT still end it at once, by their default action.
pub struct StartingSignals {
    hangup: Signal,
    upgrade: Signal,
}

impl StartingSignals {
    pub fn install() -> Result<Self, Failure> {
        Ok(StartingSignals {
            hangup: install(SignalKind::hangup())?,
            upgrade: install(SignalKind::user_defined2())?,
        })
    }

    pub fn complete(self) -> Result<Signals, Failure> {
        Ok(Signals {
            hangup: self.hangup,
            upgrade: self.upgrade,
            terminate: install(SignalKind::terminate())?,
            interrupt: install(SignalKind::interrupt())?,
        })
    }
}

fn install(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|e| {
        Failure::new(Code::ExecutionFailed, "can't install a signal handler").because(e)
    })
}

impl Signals {
    pub async fn next(&mut self) -> SignalEvent {
        tokio::select! {
            _ = self.hangup.recv() => SignalEvent::Reload,
            _ = self.upgrade.recv() => SignalEvent::Upgrade,
            _ = self.terminate.recv() => SignalEvent::Stop("SIGTERM"),
            _ = self.interrupt.recv() => SignalEvent::Stop("SIGINT"),
        }
    }
}

/// What a signal asks for.
pub enum SignalEvent {
    Reload,
    Upgrade,
    /// By the signal of this name.
    Stop(&'static str),
}
