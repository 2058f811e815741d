//! The event loop of a server process, and the states that it goes through:
//!
//! ```text
//!              a successor is ready                   it commits
//!   Serving -------------------------> HandingOver -----------------> Draining
//!    |   ^                                  |                            ^
//!    |   +----------------------------------+                            |
//!    |             it doesn't commit                                     |
//!    +-------------------------------------------------------------------+
//!                    SIGTERM, SIGINT, or the caller of `run` says so
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tracing::{Instrument, Span, error, info, info_span, warn};

use super::compose::Composed;
use super::handover::{HandoverListeners, Successor};
use super::notify;
use super::relaunch::Relaunch;
use super::reload::Reloader;
use super::signals::{SignalEvent, Signals};
use crate::error::{Code, Failure};
use crate::process;
use crate::server::background::rates::RateSaver;
use crate::server::listen::accept::{self, CallerListener};
use crate::server::listen::workers::Workers;
use crate::server::{Server, Shared};
use crate::telemetry::otel;

impl Server {
    /// Serves until SIGTERM, SIGINT, `stop`, or until a successor has taken over, then drains.
    pub fn run(self, stop: impl Future<Output = ()>) -> Result<(), Failure> {
        let relaunch = Relaunch::record();
        if let Err(e) = process::adopt_orphans() {
            warn!(error = %e, "programs can escape from this process by ending their parents");
        }
        // Accept loops, signals and background work. Requests are served by the workers' runtimes.
        let control = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Failure::new(Code::ExecutionFailed, "no runtime").because(e))?;
        let composed = Composed::new(self, relaunch)?;
        control.block_on(async {
            let (mut process, serving) = composed.start()?;
            let draining = process.serve(serving, stop).await;
            process.shut_down(draining).await;
            Ok(())
        })
    }
}

/// A process that has begun to serve.
pub struct Process {
    pub(super) shared: Arc<Shared>,
    pub(super) shutdown: watch::Sender<bool>,
    pub(super) workers: Workers,
    pub(super) reloader: Arc<Reloader>,
    pub(super) relaunch: Relaunch,
    pub(super) handover_listeners: Arc<HandoverListeners>,
    /// Successors that are ready to take over.
    pub(super) successors: mpsc::UnboundedReceiver<Successor>,
    pub(super) signals: Signals,
    pub(super) admin: Option<JoinHandle<()>>,
    pub(super) supervision: JoinHandle<()>,
    pub(super) discovery: JoinHandle<()>,
    /// Waits for processes whose parents have ended before them.
    pub(super) reaping: JoinHandle<()>,
    /// Waits for the upgrade socket. None where this process has it.
    pub(super) claim: Option<JoinHandle<()>>,
    pub(super) drain_limit: Duration,
}

enum State {
    Serving(Serving),
    HandingOver(HandingOver),
    Draining(Draining),
}

/// Connections are accepted, rate-limit counters are saved.
pub struct Serving {
    accept_loops: Vec<JoinHandle<CallerListener>>,
    rate_saver: RateSaver,
}

/// This process doesn't accept: the successor may be about to.
struct HandingOver {
    listeners: Vec<CallerListener>,
    successor: Successor,
    span: Span,
    since: Instant,
}

/// The process is about to end. What it needs for that depends on who accepts after it.
pub struct Draining {
    /// They empty their backlogs. None after a hand-over: the backlogs are the successor's.
    pub(super) accept_loops: Vec<JoinHandle<CallerListener>>,
    /// None after a hand-over: the successor saves the counters.
    pub(super) rate_saver: Option<RateSaver>,
    pub(super) successor: Option<Successor>,
}

impl Serving {
    pub fn start(listeners: Vec<CallerListener>, workers: &Workers, shared: &Arc<Shared>) -> Self {
        let rate_saver = RateSaver::start(shared.services.clone());
        let accept = |listener| accept::accept_callers(listener, workers.clone(), shared.clone());
        Serving {
            accept_loops: listeners.into_iter().map(accept).collect(),
            rate_saver,
        }
    }

    fn drain(self) -> State {
        State::Draining(Draining {
            accept_loops: self.accept_loops,
            rate_saver: Some(self.rate_saver),
            successor: None,
        })
    }
}

impl Process {
    /// The event loop. Returns when the process has to end.
    async fn serve(&mut self, serving: Serving, stop: impl Future<Output = ()>) -> Draining {
        tokio::pin!(stop);
        let mut state = State::Serving(serving);
        loop {
            state = match state {
                State::Serving(serving) => self.next_state(serving, stop.as_mut()).await,
                State::HandingOver(handing_over) => self.hand_over(handing_over),
                State::Draining(draining) => return draining,
            };
        }
    }

    /// Serves until an event ends this state.
    async fn next_state(
        &mut self,
        serving: Serving,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> State {
        loop {
            tokio::select! {
                event = self.signals.next() => match event {
                    SignalEvent::Reload => {
                        self.handover_listeners.note_reload();
                        Reloader::spawn(&self.reloader);
                    }
                    SignalEvent::Upgrade => self.relaunch.spawn(),
                    SignalEvent::Stop(name) => {
                        info!(signal = name, "draining");
                        return serving.drain();
                    }
                },
                Some(successor) = self.successors.recv() => {
                    if successor.is_waiting() {
                        return self.pause_accepting(serving, successor).await;
                    }
                    successor.refuse("it left");
                    warn!("the new process is gone, and everything goes on");
                }
                () = stop.as_mut() => return serving.drain(),
            }
        }
    }

    /// Ends the accept loops, whose listeners stay open, and saves the rate-limit counters for the
    /// successor. Both must be done before `yours` is sent.
    async fn pause_accepting(&self, serving: Serving, successor: Successor) -> State {
        let since = Instant::now();
        let span = info_span!("handover", successor = successor.pid);
        let paused = async {
            self.shared.pause_accepting.send_replace(true);
            let mut listeners = Vec::new();
            for accept_loop in serving.accept_loops {
                listeners.extend(accept_loop.await);
            }
            serving.rate_saver.stop();
            listeners
        };
        State::HandingOver(HandingOver {
            listeners: paused.instrument(span.clone()).await,
            successor,
            span,
            since,
        })
    }

    /// The commit point: either the successor accepts from now on, or this process does again.
    fn hand_over(&self, handing_over: HandingOver) -> State {
        let HandingOver {
            listeners,
            mut successor,
            span,
            since,
        } = handing_over;
        let _entered = span.enter();
        let pid = successor.pid;
        let taken = successor.hand_over();
        otel::work("handover", since.elapsed(), taken);
        if !taken {
            error!(
                pid,
                "the new process did not take over, and everything goes on"
            );
            self.shared.pause_accepting.send_replace(false);
            return State::Serving(Serving::start(listeners, &self.workers, &self.shared));
        }
        self.handover_listeners.stop_serving();
        self.relaunch.handed_over(pid);
        info!(pid, "a new process has taken over, draining");
        // Only after the commit: MAINPID can't be taken back.
        notify::main_pid(pid);
        successor.confirm_announced();
        if self.handover_listeners.reload_since_offer() {
            successor.forward_reload();
        }
        State::Draining(Draining {
            accept_loops: Vec::new(),
            rate_saver: None,
            successor: Some(successor),
        })
    }
}
