//! Accept loops. One task per listener takes connections and hands each to the least loaded
//! worker, which alone polls it from then on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use prometheus::IntGauge;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::async_listener::AsyncListener;
use super::bind::{ADMIN, BoundListener, BoundSocket};
use super::connection::{self, Accepted, ConnectionSettings, ConnectionWorker};
use super::overload::OverloadAnswers;
use super::workers::{Worker, Workers};
use crate::error::Failure;
use crate::server::{Shared, admin};
use crate::telemetry::metrics::METRICS;

/// How long a stopping process goes on serving connections that wait in a listener's backlog.
const BACKLOG_TIME: Duration = Duration::from_millis(200);
/// Admin connections are few: a scraper and an operator.
const MOST_ADMIN_CONNECTIONS: usize = 64;

/// A listener for callers, registered with the runtime. No task accepts from it.
pub struct CallerListener {
    listener: AsyncListener,
    name: Arc<str>,
    proxy_protocol: bool,
}

impl CallerListener {
    pub fn register(bound: BoundListener) -> Result<Self, Failure> {
        Ok(CallerListener {
            listener: AsyncListener::register(bound.socket)?,
            name: bound.settings.name.into(),
            proxy_protocol: bound.settings.proxy_protocol,
        })
    }
}

/// Accepts connections until the shutdown has emptied the backlog, or until accepting is paused.
/// The task then returns the listener.
pub fn accept_callers(
    listener: CallerListener,
    workers: Workers,
    shared: Arc<Shared>,
) -> JoinHandle<CallerListener> {
    listener.listener.unblock_new_connections();
    let accept_loop = AcceptLoop {
        gauge: METRICS.connections(&listener.name),
        overload: OverloadAnswers::default(),
        listener,
        workers,
        shared,
    };
    tokio::spawn(accept_loop.run())
}

struct AcceptLoop {
    listener: CallerListener,
    workers: Workers,
    shared: Arc<Shared>,
    gauge: IntGauge,
    overload: OverloadAnswers,
}

impl AcceptLoop {
    async fn run(self) -> CallerListener {
        let listener = &self.listener.listener;
        let mut shutdown = self.shared.shutdown.clone();
        let mut pause = self.shared.pause_accepting.subscribe();
        let mut backlog_deadline: Option<Instant> = None;
        loop {
            // A successor has the same socket: what waits in its backlog is the successor's.
            if *pause.borrow_and_update() {
                break;
            }
            let accepted = if let Some(deadline) = backlog_deadline {
                let waiting = timeout_at(deadline, listener.accept_from_backlog()).await;
                let Ok(Some(accepted)) = waiting else {
                    break;
                };
                accepted
            } else {
                tokio::select! {
                    biased;
                    _ = shutdown.wait_for(|down| *down) => {
                        // Closing a socket resets the connections in its backlog. So the backlog
                        // stops growing first, and is then served.
                        listener.block_new_connections();
                        backlog_deadline = Some(Instant::now() + BACKLOG_TIME);
                        continue;
                    }
                    accepted = listener.accept() => accepted,
                    _ = pause.changed() => continue,
                }
            };
            self.serve_on_worker(accepted);
        }
        self.listener
    }

    fn serve_on_worker(&self, accepted: Accepted) {
        let snapshot = self.shared.current.load();
        let CallerListener {
            name,
            proxy_protocol,
            ..
        } = &self.listener;
        let settings = ConnectionSettings::new(name, *proxy_protocol, &snapshot);
        let most = settings
            .limits
            .connections
            .min(self.shared.most_connections);
        if self.shared.open_connections.load(Ordering::Acquire) >= most {
            self.overload.refuse(accepted, settings.tls.is_some());
            return;
        }
        let worker = self.workers.least_loaded().clone();
        let counted = CountedConnection::new(&worker, &self.shared, &self.gauge);
        let shutdown = self.shared.shutdown.clone();
        let runtime = worker.runtime.clone();
        let worker = ConnectionWorker {
            proxy: worker.proxy.clone(),
            gateway: worker.gateway.clone(),
            shutdown,
            closing: self.workers.closing(),
        };
        runtime.spawn(async move {
            let _counted = counted;
            connection::serve(accepted, settings, worker).await;
        });
    }
}

/// Counts one connection for as long as it lives: by worker, by process and by metric.
struct CountedConnection {
    worker: Arc<Worker>,
    shared: Arc<Shared>,
    gauge: IntGauge,
}

impl CountedConnection {
    fn new(worker: &Arc<Worker>, shared: &Arc<Shared>, gauge: &IntGauge) -> Self {
        worker.connections.fetch_add(1, Ordering::Relaxed);
        shared.open_connections.fetch_add(1, Ordering::AcqRel);
        gauge.inc();
        CountedConnection {
            worker: worker.clone(),
            shared: shared.clone(),
            gauge: gauge.clone(),
        }
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.worker.connections.fetch_sub(1, Ordering::Relaxed);
        self.shared.open_connections.fetch_sub(1, Ordering::AcqRel);
        self.gauge.dec();
    }
}

/// Registers the admin listener's socket with the runtime.
pub fn register_admin(listener: std::net::TcpListener) -> Result<AsyncListener, Failure> {
    AsyncListener::register(BoundSocket::Tcp(listener))
}

/// Accepts on the admin listener until the task is aborted. Its connections live on the control
/// runtime and are no part of the drain.
pub fn accept_admin(listener: AsyncListener, shared: Arc<Shared>) -> JoinHandle<()> {
    let gauge = METRICS.connections(ADMIN);
    tokio::spawn(async move {
        loop {
            let Accepted::Tcp(stream, peer) = listener.accept().await else {
                continue;
            };
            if usize::try_from(gauge.get()).unwrap_or(0) >= MOST_ADMIN_CONNECTIONS {
                continue;
            }
            let counted = CountedAdminConnection::new(&gauge);
            let shared = shared.clone();
            tokio::spawn(async move {
                let _counted = counted;
                admin::serve(stream, peer, &shared).await;
            });
        }
    })
}

struct CountedAdminConnection(IntGauge);

impl CountedAdminConnection {
    fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        CountedAdminConnection(gauge.clone())
    }
}

impl Drop for CountedAdminConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}
