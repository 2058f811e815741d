//! Accept loops. One task takes connections and hands each to the least loaded worker, which alone polls it from then on.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prometheus::IntGauge;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::warn;

use super::workers::Workers;
use super::{Shared, admin, connection};
use crate::error::{Code, Failure};
use crate::telemetry::metrics::METRICS;

/// After accept fails for want of descriptors, others need a moment to give theirs back.
const BREATHE: Duration = Duration::from_millis(100);
/// Admin connections are few: a scraper and an operator.
const ADMIN_CONNECTIONS: usize = 64;
/// Connections over the limit that are told so at one time; the rest are closed without a word.
const TURNED_AWAY: usize = 64;
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
    content-length: 32\r\nretry-after: 1\r\nconnection: close\r\n\r\n{\"error\":\"too many connections\"}";

/// Counted while it lives, by the worker and by the metric.
pub struct Guard<C: Fn()> {
    leave: C,
    gauge: IntGauge,
}

impl<C: Fn()> Drop for Guard<C> {
    fn drop(&mut self) {
        (self.leave)();
        self.gauge.dec();
    }
}

pub fn edge(
    listener: std::net::TcpListener,
    workers: Workers,
    shared: Arc<Shared>,
) -> Result<JoinHandle<()>, Failure> {
    let listener = watch(listener)?;
    let gauge = METRICS.connections("edge");
    let turned_away = Arc::new(AtomicUsize::new(0));
    let mut shutdown = shared.shutdown.clone();
    Ok(tokio::spawn(async move {
        loop {
            let (stream, peer) = tokio::select! {
                biased;
                accepted = accept(&listener) => accepted,
                // Only once nobody waits in the backlog: closing the socket would reset them.
                _ = shutdown.wait_for(|down| *down) => return,
            };
            let limits = shared.current.load().settings.limits.clone();
            let most = limits.connections.min(shared.most_connections);
            if usize::try_from(gauge.get()).unwrap_or(0) >= most {
                turn_away(stream, &turned_away);
                continue;
            }
            let worker = workers.least_loaded().clone();
            worker.connections.fetch_add(1, Ordering::Relaxed);
            gauge.inc();
            let guard = Guard {
                leave: {
                    let worker = worker.clone();
                    move || {
                        worker.connections.fetch_sub(1, Ordering::Relaxed);
                    }
                },
                gauge: gauge.clone(),
            };
            let shared = shared.clone();
            let proxy = worker.proxy.clone();
            worker.runtime.spawn(async move {
                let _guard = guard;
                connection::serve(stream, peer, proxy, shared.shutdown.clone(), limits).await;
            });
        }
    }))
}

pub fn admin(
    listener: std::net::TcpListener,
    shared: Arc<Shared>,
) -> Result<JoinHandle<()>, Failure> {
    let listener = watch(listener)?;
    let gauge = METRICS.connections("admin");
    Ok(tokio::spawn(async move {
        loop {
            let (stream, peer) = accept(&listener).await;
            if usize::try_from(gauge.get()).unwrap_or(0) >= ADMIN_CONNECTIONS {
                continue;
            }
            gauge.inc();
            let guard = Guard {
                leave: || (),
                gauge: gauge.clone(),
            };
            let shared = shared.clone();
            tokio::spawn(async move {
                let _guard = guard;
                admin::serve(stream, peer, &shared).await;
            });
        }
    }))
}

fn watch(listener: std::net::TcpListener) -> Result<TcpListener, Failure> {
    TcpListener::from_std(listener).map_err(|e| {
        Failure::new(
            Code::ExecutionFailed,
            format!("can't watch a listener: {e}"),
        )
    })
}

/// The next connection, registered with no runtime.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        let accepted = listener.accept().await.and_then(|(stream, peer)| {
            stream.set_nodelay(true)?;
            Ok((stream.into_std()?, peer))
        });
        match accepted {
            Ok(accepted) => return accepted,
            Err(e) if is_the_peers(&e) => {}
            Err(e) => {
                warn!(error = %e, "accept failed");
                tokio::time::sleep(BREATHE).await;
            }
        }
    }
}

/// The caller left between its SYN and our accept.
fn is_the_peers(e: &std::io::Error) -> bool {
    matches!(
        e.kind(),
        std::io::ErrorKind::ConnectionAborted
            | std::io::ErrorKind::ConnectionReset
            | std::io::ErrorKind::InvalidInput
            | std::io::ErrorKind::NotConnected
            | std::io::ErrorKind::Interrupted
    )
}

fn turn_away(stream: TcpStream, turned_away: &Arc<AtomicUsize>) {
    METRICS.refused("too_many_connections");
    if turned_away.load(Ordering::Relaxed) >= TURNED_AWAY {
        return;
    }
    turned_away.fetch_add(1, Ordering::Relaxed);
    let turned_away = turned_away.clone();
    tokio::spawn(async move {
        let tell = async {
            let mut stream = tokio::net::TcpStream::from_std(stream)?;
            stream.write_all(BUSY).await?;
            stream.shutdown().await?;
            // Closing with unread bytes would reset the connection and lose the answer.
            let mut rest = [0; 4096];
            while stream.read(&mut rest).await? > 0 {}
            std::io::Result::Ok(())
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), tell).await;
        turned_away.fetch_sub(1, Ordering::Relaxed);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_canned_answer_says_its_own_length() {
        let text = std::str::from_utf8(BUSY).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("content-length: {}\r\n", body.len())),
            "{}",
            body.len()
        );
    }
}
