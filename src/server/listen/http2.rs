//! One HTTP/2 client connection: its requests run concurrently.

use std::sync::Arc;
use std::time::Duration;

use pingora_core::apps::HttpServerApp as _;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::v2::server::{
    H2Accept, H2Options, HttpSession, default_h2_options, handshake,
};
use pingora_core::protocols::{Digest, Stream};
use pingora_core::server::ShutdownWatch;
use pingora_proxy::HttpProxy;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::config::Limits;
use crate::gateway::Gateway;

/// Concurrent requests of one connection. A request that the caller has reset counts until its task
/// has ended, so resetting requests makes no room for more.
const MOST_REQUESTS: usize = 100;
/// Flow control: bytes that the caller may send before ati has read them, per request and per
/// connection.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// A connection with this many malformed or excess requests is closed: that many are no accident.
const MOST_MALFORMED: usize = 32;
/// After a shutdown began, requests that arrive within this time are served: the caller may have
/// sent them before it saw the GOAWAY. Later ones are reset.
const GOAWAY_GRACE: Duration = Duration::from_secs(1);
/// How long requests may take to end after their connection has ended.
const CLEANUP_TIME: Duration = Duration::from_secs(5);

fn options() -> H2Options {
    let mut options = default_h2_options();
    options
        .max_concurrent_streams(MOST_REQUESTS as u32)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    options
}

/// Serves a connection until the caller closes it, has been silent for too long, or the last
/// request after a shutdown has ended.
pub async fn serve(
    stream: Stream,
    limits: &Limits,
    proxy: Arc<HttpProxy<Gateway>>,
    shutdown: ShutdownWatch,
) {
    // Dropped with the connection, so that no request outlives it.
    let mut requests = JoinSet::new();
    accept(stream, limits, &proxy, shutdown, &mut requests).await;
    let cleanup = async { while requests.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(CLEANUP_TIME, cleanup).await;
}

async fn accept(
    stream: Stream,
    limits: &Limits,
    proxy: &Arc<HttpProxy<Gateway>>,
    mut shutdown: ShutdownWatch,
    requests: &mut JoinSet<()>,
) {
    let digest = Arc::new(Digest {
        ssl_digest: stream.get_ssl_digest(),
        timing_digest: stream.get_timing_digest(),
        proxy_digest: stream.get_proxy_digest(),
        socket_digest: stream.get_socket_digest(),
    });
    let handshaken = tokio::time::timeout(limits.header, handshake(stream, Some(options()))).await;
    let Ok(Ok(mut connection)) = handshaken else {
        return;
    };
    let mut malformed = 0;
    let mut grace_end: Option<Instant> = None;
    // Without a request in flight, the next one has to begin by then. Pings don't count.
    let mut idle_deadline = Instant::now() + limits.header;
    loop {
        let next = tokio::select! {
            biased;
            _ = shutdown.wait_for(|down| *down), if grace_end.is_none() => {
                connection.graceful_shutdown();
                let end = Instant::now() + GOAWAY_GRACE;
                grace_end = Some(end);
                idle_deadline = idle_deadline.min(end);
                continue;
            }
            _ = requests.join_next(), if !requests.is_empty() => {
                let pause = if grace_end.is_some() { GOAWAY_GRACE } else { limits.keepalive };
                idle_deadline = Instant::now() + pause;
                continue;
            }
            next = HttpSession::from_h2_conn(&mut connection, digest.clone()) => next,
            () = tokio::time::sleep_until(idle_deadline), if requests.is_empty() => return,
        };
        match next {
            Ok(Some(H2Accept::Session(session))) => {
                let too_late = grace_end.is_some_and(|end| Instant::now() > end);
                if too_late || requests.len() >= MOST_REQUESTS {
                    // Dropping the session resets its stream.
                    malformed += 1;
                } else {
                    let (proxy, shutdown) = (proxy.clone(), shutdown.clone());
                    requests.spawn(async move {
                        let session = ServerSession::new_http2(session);
                        proxy.process_new_http(session, &shutdown).await;
                    });
                }
            }
            Ok(Some(H2Accept::Rejected)) => malformed += 1,
            Ok(None) | Err(_) => return,
        }
        if malformed >= MOST_MALFORMED {
            return;
        }
    }
}
