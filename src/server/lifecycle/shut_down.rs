//! The order in which a server process stops.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::{Pid, getpid};

use super::run::{Draining, Process};
use super::{drain, notify};
use crate::exec;
use crate::process;
use crate::server::background::otlp;
use crate::telemetry::{self, otel};

/// How long a server that ends waits until the database has the rows of its calls.
const CALL_LOG_FLUSH: Duration = Duration::from_secs(5);

impl Process {
    pub(super) async fn shut_down(mut self, draining: Draining) {
        self.stop_background_work();
        self.refuse_successors();
        self.stop_accepting(&draining).await;
        for accept_loop in draining.accept_loops {
            let _ = accept_loop.await;
        }
        self.drain_connections(draining.successor.as_ref()).await;
        let services = &self.shared.services;
        drain::abandon_calls(&services.abandon).await;
        services.provider_sessions.clear();
        exec::mcp::close_all(&services.runtime).await;
        self.end_descendants();
        services.audit.flush();
        if let Some(keys) = &services.keys {
            keys.flush().await;
        }
        if let Some(shared) = &services.runtime.shared_limits {
            shared.give_back().await;
        }
        if let Some(call_log) = &services.call_log {
            call_log.flush(CALL_LOG_FLUSH).await;
        }
        if let Some(rate_saver) = draining.rate_saver {
            rate_saver.stop();
        }
        let closing = tokio::task::spawn_blocking(|| otel::close(otlp::LAST_EXPORT));
        let _ = tokio::time::timeout(otlp::LAST_EXPORT, closing).await;
        telemetry::flush();
    }

    fn stop_background_work(&self) {
        self.supervision.abort();
        self.discovery.abort();
        self.reaping.abort();
        if let Some(claim) = &self.claim {
            claim.abort();
        }
    }

    /// Successors that got ready too late, or have asked and aren't ready. The upgrade socket is
    /// closed: a process that is started while this one drains binds its own.
    fn refuse_successors(&mut self) {
        self.successors.close();
        while let Ok(late) = self.successors.try_recv() {
            late.refuse_because_stopping();
        }
        self.handover_listeners.close();
    }

    /// Ends what has escaped from its supervisor: as an orphan of this process it would no longer
    /// be known as a descendant. A process that has taken over is spared.
    fn end_descendants(&self) {
        let successor = self.relaunch.invitation().pid();
        let successor = successor.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        process::kill_descendants(getpid(), successor);
    }

    async fn stop_accepting(&mut self, draining: &Draining) {
        self.shared.ready.store(false, Ordering::Release);
        // Before the listeners close, so that responses from now on end their connections.
        let _ = self.shutdown.send(true);
        self.shared.services.provider_sessions.drain();
        if draining.successor.is_none() {
            // The admin listener goes on: it says that the process drains.
            notify::stopping();
        } else if let Some(admin) = self.admin.take() {
            admin.abort();
            let _ = admin.await;
        }
    }

    async fn drain_connections(&mut self, successor: Option<&super::handover::Successor>) {
        drain::wait_for_first_requests(&self.shared.open_connections).await;
        self.workers.close_idle().await;
        let limit = self.drain_limit;
        drain::wait_for_connections(&self.shared, limit, &mut self.signals, successor).await;
    }
}
