//! One client connection, request after request.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use pingora_core::apps::HttpServerApp as _;
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use pingora_proxy::HttpProxy;

use super::downstream::Downstream;
use crate::config::Limits;
use crate::gateway::{Connection, Gateway};

/// Serve until the caller, the limits or a shutdown end it.
pub async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    proxy: Arc<HttpProxy<Gateway>>,
    shutdown: &ShutdownWatch,
    limits: &Limits,
) {
    let Ok(stream) = Downstream::new(stream, peer) else {
        return;
    };
    let connection = Arc::new(Connection::new());
    let requests = serve_http1(Box::new(stream), &proxy, shutdown, limits, &connection);
    tokio::pin!(requests);
    // One timer per connection, set again only when it fires: it costs a request nothing.
    let watchdog = tokio::time::sleep(limits.header);
    tokio::pin!(watchdog);
    loop {
        tokio::select! {
            biased;
            () = &mut requests => return,
            () = &mut watchdog => {
                let patience = connection.patience(limits.header, limits.keepalive);
                if patience.is_zero() {
                    return; // dropping the request's future closes the connection
                }
                watchdog.as_mut().reset(tokio::time::Instant::now() + patience);
            }
        }
    }
}

async fn serve_http1(
    stream: Stream,
    proxy: &Arc<HttpProxy<Gateway>>,
    shutdown: &ShutdownWatch,
    limits: &Limits,
    connection: &Arc<Connection>,
) {
    let mut session = ServerSession::new_http1(stream);
    session.set_keepalive(Some(limits.keepalive.as_secs()));
    session.set_pipelining_enabled(true);
    loop {
        connection.reading();
        session.set_connection_user_context(Some(Box::new(connection.clone())));
        let Some(reused) = proxy.process_new_http(session, shutdown).await else {
            return;
        };
        let (stream, settings) = reused.consume();
        session = ServerSession::new_http1(stream);
        if let Some(settings) = settings {
            settings.apply_to_session(&mut session);
        }
    }
}
