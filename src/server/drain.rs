//! The end: signals, and waiting for what is under way.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing::{info, warn};

use super::Shared;
use super::handover::Successor;
use crate::error::{Code, Failure};

/// How often the end of the last request is looked for.
const TICK: Duration = Duration::from_millis(10);

const SETTLE: Duration = Duration::from_millis(200);
/// How long a WebSocket's other end has to answer a Close.
const GOODBYE: Duration = Duration::from_secs(2);

pub struct Signals {
    hangup: Signal,
    upgrade: Signal,
    terminate: Signal,
    interrupt: Signal,
}

/// What a process that doesn't serve yet is asked for is done once it does; the signals that are to end it still end it at once.
pub struct Early {
    hangup: Signal,
    upgrade: Signal,
}

impl Early {
    pub fn install() -> Result<Self, Failure> {
        Ok(Early {
            hangup: on(SignalKind::hangup())?,
            upgrade: on(SignalKind::user_defined2())?,
        })
    }

    pub fn complete(self) -> Result<Signals, Failure> {
        Ok(Signals {
            hangup: self.hangup,
            upgrade: self.upgrade,
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
        })
    }
}

fn on(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|e| Failure::new(Code::ExecutionFailed, format!("no signals: {e}")))
}

impl Signals {
    pub async fn next(&mut self) -> Event {
        tokio::select! {
            _ = self.hangup.recv() => Event::Reload,
            _ = self.upgrade.recv() => Event::Upgrade,
            _ = self.terminate.recv() => Event::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Event::Stop("SIGINT"),
        }
    }
}

pub enum Event {
    Reload,
    Upgrade,
    Stop(&'static str),
}

/// Whoever connected just before the listener closed has a request on its way: a moment for it to be read.
pub async fn settle(open: &AtomicUsize) {
    if open.load(Ordering::Acquire) > 0 {
        tokio::time::sleep(SETTLE).await;
    }
}

/// Give up the tool calls that are still under way, so that each leaves its line in the audit.
pub async fn abandon(calls: &watch::Sender<bool>) {
    calls.send_replace(true);
    let _ = tokio::time::timeout(GOODBYE, calls.closed()).await;
}

/// Until the last connection has closed, at the latest until the deadline. A second signal ends it at once.
///
/// Connections are what is counted, not requests: one that is about to be read is in no request yet. A reload that we are asked for is the
/// business of whoever has taken over.
pub async fn wait(
    shared: &Shared,
    deadline: Duration,
    signals: &mut Signals,
    heir: Option<&Successor>,
) {
    let started = Instant::now();
    let load = &shared.load;
    let idle = async {
        while shared.open.load(Ordering::Acquire) > 0 {
            tokio::time::sleep(TICK).await;
        }
    };
    let again = async {
        loop {
            match (signals.next().await, heir) {
                (Event::Stop(name), _) => return name,
                (Event::Reload, Some(heir)) => heir.reload(),
                _ => {}
            }
        }
    };
    // Signals that came while nobody looked are seen now, and before the end.
    tokio::task::yield_now().await;
    tokio::select! {
        biased;
        name = again => {
            warn!(signal = name, in_flight = load.in_flight(), "second signal, leaving now");
        }
        () = idle => info!(ms = started.elapsed().as_millis() as u64, "drained"),
        () = tokio::time::sleep(deadline) => {
            warn!(in_flight = load.in_flight(), "drain deadline reached");
            // WebSockets have no end of their own: they are told, and given a moment to say goodbye.
            load.close_tunnels();
            let goodbye = async {
                while load.tunnels() > 0 {
                    tokio::time::sleep(TICK).await;
                }
            };
            let _ = tokio::time::timeout(GOODBYE, goodbye).await;
        }
    }
}
