//! Draining: waiting until connections and calls in flight have ended.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tracing::{info, warn};

use super::handover::Successor;
use super::signals::{SignalEvent, Signals};
use crate::gateway::Load;
use crate::server::Shared;

/// How often the end of the last connection is checked for.
const TICK: Duration = Duration::from_millis(10);
/// How long the first request of a connection that was accepted last may take to arrive.
const FIRST_REQUEST_TIME: Duration = Duration::from_millis(200);
/// How long WebSockets may take to answer a Close, and tool calls to write their audit record.
const CLOSE_TIME: Duration = Duration::from_secs(2);

/// Gives connections that were accepted just before the listeners closed time to send a request.
pub async fn wait_for_first_requests(open_connections: &AtomicUsize) {
    if open_connections.load(Ordering::Acquire) > 0 {
        tokio::time::sleep(FIRST_REQUEST_TIME).await;
    }
}

/// Cancels the tool calls that are still in flight, so that each of them is audited.
pub async fn abandon_calls(calls: &watch::Sender<bool>) {
    calls.send_replace(true);
    let _ = tokio::time::timeout(CLOSE_TIME, calls.closed()).await;
}

/// Waits until the last connection has closed, at most for `limit`. A second SIGTERM or SIGINT ends
/// it at once. A SIGHUP is forwarded to the successor.
///
/// Connections are counted, not requests: a connection whose request is about to be read has no
/// request yet.
pub async fn wait_for_connections(
    shared: &Shared,
    limit: Duration,
    signals: &mut Signals,
    successor: Option<&Successor>,
) {
    let started = Instant::now();
    let load = &shared.load;
    let all_closed = async {
        while shared.open_connections.load(Ordering::Acquire) > 0 {
            tokio::time::sleep(TICK).await;
        }
    };
    // Signals that came before this poll are seen by it, and before the end of the drain.
    tokio::task::yield_now().await;
    tokio::select! {
        biased;
        name = second_stop_signal(signals, successor) => {
            warn!(signal = name, in_flight = load.in_flight(), "second signal, leaving now");
        }
        () = all_closed => info!(ms = started.elapsed().as_millis() as u64, "drained"),
        () = tokio::time::sleep(limit) => {
            warn!(in_flight = load.in_flight(), "drain deadline reached");
            close_websockets(load).await;
        }
    }
}

async fn second_stop_signal(signals: &mut Signals, successor: Option<&Successor>) -> &'static str {
    loop {
        match signals.next().await {
            SignalEvent::Stop(name) => return name,
            SignalEvent::Reload => {
                if let Some(successor) = successor {
                    successor.forward_reload();
                }
            }
            SignalEvent::Upgrade => {}
        }
    }
}

/// WebSockets don't end by themselves: each end is sent a Close, and gets time to answer it.
async fn close_websockets(load: &Load) {
    load.close_tunnels();
    let all_closed = async {
        while load.tunnels() > 0 {
            tokio::time::sleep(TICK).await;
        }
    };
    let _ = tokio::time::timeout(CLOSE_TIME, all_closed).await;
}
