//! One client connection, request after request.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use pingora_core::apps::HttpServerApp as _;
use pingora_core::protocols::GetSocketDigest as _;
use pingora_core::protocols::SocketDigest;
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::l4::stream::Stream as L4Stream;
use pingora_core::server::ShutdownWatch;
use pingora_proxy::HttpProxy;

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
    let Some(stream) = into_pingora(stream, peer) else {
        return;
    };
    let connection = Arc::new(Connection::new());
    let requests = serve_http1(stream, &proxy, shutdown, limits, &connection);
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

/// Must run on the worker that will serve it.
pub(super) fn into_pingora(stream: TcpStream, peer: SocketAddr) -> Option<Stream> {
    let stream = tokio::net::TcpStream::from_std(stream).ok()?;
    let digest = SocketDigest::from_raw_fd(stream.as_raw_fd());
    let _ = digest.peer_addr.set(Some(peer.into()));
    let mut stream = L4Stream::from(stream);
    stream.set_socket_digest(digest);
    Some(Box::new(stream))
}
