//! One client connection, request after request.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use pingora_core::apps::HttpServerApp as _;
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use pingora_proxy::HttpProxy;
use tokio::task::JoinHandle;

use super::downstream::Downstream;
use crate::config::Limits;
use crate::gateway::{Connection, Gateway};

/// Serve until the caller, the limits or a shutdown end it.
pub async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    proxy: Arc<HttpProxy<Gateway>>,
    shutdown: ShutdownWatch,
    limits: Limits,
) {
    let Ok(stream) = Downstream::new(stream, peer) else {
        return;
    };
    let connection = Arc::new(Connection::default());
    let keepalive = limits.keepalive;
    let watched = connection.clone();
    let mut requests = Ending(tokio::spawn(async move {
        serve_http1(Box::new(stream), &proxy, &shutdown, keepalive, &watched).await;
    }));
    // Apart from the requests, so that they never have to look at it.
    tokio::select! {
        _ = &mut requests.0 => {}
        () = outlast(&connection, &limits) => {}
    }
}

/// Ends its task when it is dropped: dropping a request's future closes its connection.
struct Ending(JoinHandle<()>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Until a header has been awaited for longer than it may take. Looks twice in that time, so it may take half as long again.
async fn outlast(connection: &Connection, limits: &Limits) {
    let tick = limits.header / 2;
    let mut seen = connection.phase();
    let mut waited = Duration::ZERO;
    loop {
        tokio::time::sleep(tick).await;
        let now = connection.phase();
        if now != seen || !now.is_reading() {
            seen = now;
            waited = Duration::ZERO;
            continue;
        }
        waited += tick;
        // Between requests a caller may be silent for a while, which Pingora sees to.
        let silence = if now.is_first() {
            Duration::ZERO
        } else {
            limits.keepalive
        };
        if waited >= limits.header + silence {
            return;
        }
    }
}

async fn serve_http1(
    stream: Stream,
    proxy: &Arc<HttpProxy<Gateway>>,
    shutdown: &ShutdownWatch,
    keepalive: Duration,
    connection: &Arc<Connection>,
) {
    let mut session = ServerSession::new_http1(stream);
    session.set_keepalive(Some(keepalive.as_secs()));
    session.set_pipelining_enabled(true);
    loop {
        session.set_connection_user_context(Some(Box::new(connection.clone())));
        let Some(reused) = proxy.process_new_http(session, shutdown).await else {
            return;
        };
        connection.reading();
        let (stream, settings) = reused.consume();
        session = ServerSession::new_http1(stream);
        if let Some(settings) = settings {
            settings.apply_to_session(&mut session);
        }
    }
}
