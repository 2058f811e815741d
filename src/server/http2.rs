//! One client connection on which requests come side by side.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pingora_core::apps::HttpServerApp as _;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::v2::server::{
    H2Accept, H2Options, HttpSession, default_h2_options, handshake,
};
use pingora_core::protocols::{Digest, Stream};
use pingora_core::server::ShutdownWatch;
use pingora_proxy::HttpProxy;
use tokio::sync::Notify;

use crate::config::Limits;
use crate::gateway::Gateway;

/// What may be on its way to us before we have read it: for one request, and for all of a connection.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Requests that are none. A caller has made more mistakes than that on purpose.
const MALFORMED: usize = 32;

/// Requests under way on one connection.
#[derive(Default)]
struct Active {
    count: AtomicUsize,
    ended: Notify,
}

struct Request(Arc<Active>);

impl Drop for Request {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
        self.0.ended.notify_one();
    }
}

fn options() -> H2Options {
    let mut options = default_h2_options();
    options
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    options
}

/// Serve until the caller leaves, has been silent for too long, or a shutdown has seen the last request off.
pub async fn serve(
    stream: Stream,
    limits: &Limits,
    proxy: Arc<HttpProxy<Gateway>>,
    mut shutdown: ShutdownWatch,
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
    let active = Arc::new(Active::default());
    let mut malformed = 0;
    let mut leaving = false;
    let mut pause = limits.header;
    loop {
        let next = tokio::select! {
            biased;
            _ = shutdown.wait_for(|down| *down), if !leaving => {
                connection.graceful_shutdown();
                leaving = true;
                continue;
            }
            next = HttpSession::from_h2_conn(&mut connection, digest.clone()) => next,
            // Pings and the like don't count: a connection that asks for nothing takes the room of one that does.
            () = silence(&active, pause) => return,
        };
        match next {
            Ok(Some(H2Accept::Session(session))) => {
                pause = limits.keepalive;
                active.count.fetch_add(1, Ordering::Relaxed);
                let request = Request(active.clone());
                let (proxy, shutdown) = (proxy.clone(), shutdown.clone());
                tokio::spawn(async move {
                    let _request = request;
                    let session = ServerSession::new_http2(session);
                    proxy.process_new_http(session, &shutdown).await;
                });
            }
            Ok(Some(H2Accept::Rejected)) => {
                malformed += 1;
                if malformed >= MALFORMED {
                    return;
                }
            }
            Ok(None) | Err(_) => return,
        }
    }
}

/// Until no request has been under way for so long.
async fn silence(active: &Active, pause: std::time::Duration) {
    loop {
        while active.count.load(Ordering::Relaxed) > 0 {
            active.ended.notified().await;
        }
        if tokio::time::timeout(pause, active.ended.notified())
            .await
            .is_err()
            && active.count.load(Ordering::Relaxed) == 0
        {
            return;
        }
    }
}
