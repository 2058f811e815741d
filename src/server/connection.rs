//! One client connection, request after request.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pingora_core::apps::HttpServerApp as _;
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::l4::socket::SocketAddr;
use pingora_core::server::ShutdownWatch;
use pingora_proxy::HttpProxy;
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::downstream::{Downstream, Wire};
use super::http2;
use super::proxy_protocol::{self, Source};
use crate::config::{Limits, TrustedProxies};
use crate::gateway::{self, Gateway, HeaderWatch as Connection};
use crate::snapshot::Snapshot;
use crate::telemetry::metrics::METRICS;

/// A connection that was accepted, registered with no runtime.
pub enum Accepted {
    Tcp(std::net::TcpStream, std::net::SocketAddr),
    Unix(std::os::unix::net::UnixStream),
}

/// What the listener that it came through wants of it, as the settings were when it came.
pub struct Terms {
    pub listener: Arc<str>,
    pub proxy_protocol: Option<TrustedProxies>,
    pub tls: Option<TlsAcceptor>,
    pub limits: Limits,
}

impl Terms {
    pub fn new(listener: &Arc<str>, proxy_protocol: bool, snapshot: &Snapshot) -> Self {
        let certificate = snapshot.certificates.get(listener.as_ref());
        Terms {
            listener: listener.clone(),
            proxy_protocol: proxy_protocol.then(|| snapshot.settings.trusted_proxies.clone()),
            tls: certificate.map(|certificate| TlsAcceptor::from(certificate.config.clone())),
            limits: snapshot.settings.limits.clone(),
        }
    }
}

/// Serve until the caller, the limits or a shutdown end it. Must run on the worker that will serve it.
pub async fn serve(
    accepted: Accepted,
    terms: Terms,
    proxy: Arc<HttpProxy<Gateway>>,
    shutdown: ShutdownWatch,
) {
    match accepted {
        Accepted::Tcp(stream, peer) => {
            if let Ok(stream) = TcpStream::from_std(stream) {
                greet(stream, Some(peer.into()), terms, proxy, shutdown).await;
            }
        }
        Accepted::Unix(stream) => {
            let Ok(peer) = stream.peer_addr() else { return };
            if let Ok(stream) = UnixStream::from_std(stream) {
                greet(stream, Some(SocketAddr::Unix(peer)), terms, proxy, shutdown).await;
            }
        }
    }
}

/// From the socket to HTTP: the PROXY header and TLS, where the listener wants them, in the time that a header may take.
async fn greet<S: Wire + AsRawFd>(
    mut stream: S,
    mut peer: Option<SocketAddr>,
    terms: Terms,
    proxy: Arc<HttpProxy<Gateway>>,
    shutdown: ShutdownWatch,
) {
    let deadline = tokio::time::Instant::now() + terms.limits.header;
    if let Some(trusted) = &terms.proxy_protocol {
        if !trusted.trusts(gateway::peer(peer.as_ref())) {
            return turn_down(
                &terms.listener,
                peer,
                "untrusted_proxy",
                "its peer is no trusted proxy",
            );
        }
        match tokio::time::timeout_at(deadline, proxy_protocol::read(&mut stream)).await {
            Ok(Ok(Source::Proxy)) => {}
            Ok(Ok(Source::Caller(address))) => peer = Some(address.into()),
            Ok(Ok(Source::Unknown)) => peer = None,
            Ok(Err(fault)) => {
                return turn_down(&terms.listener, peer, "proxy_protocol", &fault.to_string());
            }
            Err(_) => {
                return turn_down(
                    &terms.listener,
                    peer,
                    "proxy_protocol",
                    "no PROXY header came",
                );
            }
        }
    }
    let socket = stream.as_raw_fd();
    let Some(tls) = &terms.tls else {
        return http1(stream, socket, peer, &terms.limits, proxy, shutdown).await;
    };
    match tokio::time::timeout_at(deadline, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                let stream = Box::new(Downstream::new(stream, socket, peer));
                http2::serve(stream, &terms.limits, proxy, shutdown).await;
            } else {
                http1(stream, socket, peer, &terms.limits, proxy, shutdown).await;
            }
        }
        Ok(Err(e)) => {
            METRICS.tls_failed(&terms.listener);
            tracing::debug!(listener = %terms.listener, peer = ?peer, "TLS handshake failed: {e}");
        }
        Err(_) => METRICS.tls_failed(&terms.listener),
    }
}

/// A proxy in front that isn't set up as we are would be turned down all the time: the log says why, but not for every one of them.
fn turn_down(listener: &str, peer: Option<SocketAddr>, reason: &'static str, why: &str) {
    METRICS.refused(reason);
    if seldom() {
        tracing::warn!(listener, peer = ?peer, reason, "a connection was closed: {why}");
    }
}

/// At most once in ten seconds.
fn seldom() -> bool {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    let due = last.is_none_or(|last| now.duration_since(last) >= Duration::from_secs(10));
    if due {
        *last = Some(now);
    }
    due
}

async fn http1<S: Wire>(
    stream: S,
    socket: RawFd,
    peer: Option<SocketAddr>,
    limits: &Limits,
    proxy: Arc<HttpProxy<Gateway>>,
    shutdown: ShutdownWatch,
) {
    let stream = Downstream::new(stream, socket, peer);
    let connection = Arc::new(Connection::default());
    let keepalive = limits.keepalive;
    let watched = connection.clone();
    let mut requests = Ending(tokio::spawn(async move {
        serve_http1(Box::new(stream), &proxy, &shutdown, keepalive, &watched).await;
    }));
    // Apart from the requests, so that they never have to look at it.
    tokio::select! {
        _ = &mut requests.0 => {}
        () = outlast(&connection, limits) => {}
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
