//! One client connection on which requests come side by side.

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

/// Requests side by side. A caller that gives them up and sends others makes no more room than that.
const MOST_REQUESTS: usize = 100;
/// What may be on its way to us before we have read it: for one request, and for all of a connection.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Requests that are none, or one too many. A caller has made more mistakes than that on purpose.
const MALFORMED: usize = 32;
/// Requests that were on their way when we began to leave are served; a caller that goes on asking isn't.
const LAST_CALL: Duration = Duration::from_secs(1);
/// How long requests may take to notice that their caller is gone.
const CLEARING: Duration = Duration::from_secs(5);

fn options() -> H2Options {
    let mut options = default_h2_options();
    options
        .max_concurrent_streams(MOST_REQUESTS as u32)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    options
}

/// Serve until the caller leaves, has been silent for too long, or a shutdown has seen the last request off.
pub async fn serve(
    stream: Stream,
    limits: &Limits,
    proxy: Arc<HttpProxy<Gateway>>,
    shutdown: ShutdownWatch,
) {
    // They belong to the connection: none of them outlives it.
    let mut requests = JoinSet::new();
    accept(stream, limits, &proxy, shutdown, &mut requests).await;
    let rest = async { while requests.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(CLEARING, rest).await;
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
    let begun = tokio::time::timeout(limits.header, handshake(stream, Some(options()))).await;
    let Ok(Ok(mut connection)) = begun else {
        return;
    };
    let mut malformed = 0;
    let mut last_call: Option<Instant> = None;
    // Where nothing is under way, until when something has to be. Pings and the like don't count.
    let mut silent_until = Instant::now() + limits.header;
    loop {
        let next = tokio::select! {
            biased;
            _ = shutdown.wait_for(|down| *down), if last_call.is_none() => {
                connection.graceful_shutdown();
                let end = Instant::now() + LAST_CALL;
                last_call = Some(end);
                silent_until = silent_until.min(end);
                continue;
            }
            _ = requests.join_next(), if !requests.is_empty() => {
                let pause = if last_call.is_some() { LAST_CALL } else { limits.keepalive };
                silent_until = Instant::now() + pause;
                continue;
            }
            next = HttpSession::from_h2_conn(&mut connection, digest.clone()) => next,
            () = tokio::time::sleep_until(silent_until), if requests.is_empty() => return,
        };
        match next {
            Ok(Some(H2Accept::Session(session))) => {
                let too_late = last_call.is_some_and(|end| Instant::now() > end);
                if too_late || requests.len() >= MOST_REQUESTS {
                    // Dropped, it is reset.
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
        if malformed >= MALFORMED {
            return;
        }
    }
}
