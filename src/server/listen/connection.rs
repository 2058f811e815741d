//! One client connection: PROXY header and TLS, where its listener has them, then requests.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use pingora_core::apps::{HttpServerApp as _, ReusedHttpStream};
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::l4::socket::SocketAddr;
use pingora_core::server::ShutdownWatch;
use pingora_proxy::HttpProxy;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::downstream::{ByteStream, Downstream};
use super::http2;
use super::proxy_protocol::{self, ConnectionSource};
use crate::config::{Limits, TrustedProxies};
use crate::gateway::short::{self, HandOver, Next};
use crate::gateway::{self, ConnectionContext, Ctx, Gateway, HeaderWatch};
use crate::snapshot::Snapshot;
use crate::telemetry::Throttle;
use crate::telemetry::metrics::METRICS;

/// How often a connection is looked at, at most: limits of a second are rare, and the timer isn't
/// free.
const SHORTEST_TICK: Duration = Duration::from_millis(100);

/// An accepted connection. It is registered with no runtime yet: its worker's isn't known.
pub enum Accepted {
    Tcp(std::net::TcpStream, std::net::SocketAddr),
    Unix(std::os::unix::net::UnixStream),
}

/// What applies to one connection: its listener's settings at the time when it was accepted.
pub struct ConnectionSettings {
    pub listener: Arc<str>,
    /// The proxies that may send PROXY headers. None: the listener expects no PROXY header.
    pub proxy_protocol: Option<TrustedProxies>,
    pub tls: Option<TlsAcceptor>,
    pub limits: Limits,
    pub short_way: bool,
}

impl ConnectionSettings {
    pub fn new(listener: &Arc<str>, proxy_protocol: bool, snapshot: &Snapshot) -> Self {
        let certificate = snapshot.certificates.get(listener.as_ref());
        ConnectionSettings {
            listener: listener.clone(),
            proxy_protocol: proxy_protocol.then(|| snapshot.settings.trusted_proxies.clone()),
            tls: certificate.map(|certificate| TlsAcceptor::from(certificate.config.clone())),
            limits: snapshot.settings.limits.clone(),
            short_way: snapshot.settings.short_way,
        }
    }
}

/// What a connection uses of its worker and of its process.
pub struct ConnectionWorker {
    pub proxy: Arc<HttpProxy<Gateway>>,
    pub gateway: Arc<Gateway>,
    /// True from the start of a drain.
    pub shutdown: ShutdownWatch,
    /// True when connections without a request have to end.
    pub closing: watch::Receiver<bool>,
}

/// Serves a connection until the caller, a limit or a shutdown ends it. Must run on the worker
/// that `worker` names.
pub async fn serve(accepted: Accepted, settings: ConnectionSettings, worker: ConnectionWorker) {
    match accepted {
        Accepted::Tcp(stream, peer) => {
            if let Ok(stream) = TcpStream::from_std(stream) {
                begin(stream, Some(peer.into()), settings, worker).await;
            }
        }
        Accepted::Unix(stream) => {
            let Ok(peer) = stream.peer_addr() else { return };
            let peer = Some(SocketAddr::Unix(peer));
            if let Ok(stream) = UnixStream::from_std(stream) {
                begin(stream, peer, settings, worker).await;
            }
        }
    }
}

/// From the socket to HTTP: the PROXY header and TLS, where the listener has them. Both together
/// may take as long as a request's header.
async fn begin<S: ByteStream + AsRawFd>(
    mut stream: S,
    mut peer: Option<SocketAddr>,
    settings: ConnectionSettings,
    worker: ConnectionWorker,
) {
    let deadline = tokio::time::Instant::now() + settings.limits.header;
    if let Some(trusted) = &settings.proxy_protocol {
        match read_proxy_header(&mut stream, peer.as_ref(), trusted, deadline).await {
            Ok(ConnectionSource::Proxy) => {}
            Ok(ConnectionSource::Caller(address)) => peer = Some(address.into()),
            Ok(ConnectionSource::Unknown) => peer = None,
            Err(refused) => return refused.record(&settings.listener, peer),
        }
    }
    let socket = stream.as_raw_fd();
    // Boxed: a handshake takes much room, which the connection's task would keep.
    let (stream, version) = match &settings.tls {
        None => (Box::new(stream) as Box<dyn ByteStream>, Version::Http1),
        Some(tls) => match Box::pin(secure(stream, tls, deadline, &settings, &peer)).await {
            Some(secured) => secured,
            None => return,
        },
    };
    let stream = Downstream::new(stream, socket, peer.clone());
    match version {
        Version::Http1 => http1(stream, peer, &settings, worker).await,
        Version::Http2 => {
            let (proxy, shutdown) = (worker.proxy, worker.shutdown);
            let serving = http2::serve(Box::new(stream), &settings.limits, proxy, shutdown);
            Box::pin(serving).await;
        }
    }
}

/// The version of HTTP that a connection speaks.
enum Version {
    Http1,
    Http2,
}

/// The TLS handshake. None: it failed.
async fn secure<S: ByteStream>(
    stream: S,
    tls: &TlsAcceptor,
    deadline: tokio::time::Instant,
    settings: &ConnectionSettings,
    peer: &Option<SocketAddr>,
) -> Option<(Box<dyn ByteStream>, Version)> {
    let listener = &settings.listener;
    match tokio::time::timeout_at(deadline, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            let version = match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => Version::Http2,
                _ => Version::Http1,
            };
            return Some((Box::new(stream), version));
        }
        Ok(Err(e)) => {
            METRICS.tls_failed(listener);
            tracing::debug!(%listener, peer = ?peer, error = %e, "TLS handshake failed");
        }
        Err(_) => METRICS.tls_failed(listener),
    }
    None
}

async fn read_proxy_header(
    stream: &mut impl ByteStream,
    peer: Option<&SocketAddr>,
    trusted: &TrustedProxies,
    deadline: tokio::time::Instant,
) -> Result<ConnectionSource, RefusedConnection> {
    if !trusted.trusts(gateway::peer(peer)) {
        return Err(RefusedConnection {
            reason: "untrusted_proxy",
            why: "its peer is no trusted proxy".to_owned(),
        });
    }
    let refused = |why: String| RefusedConnection {
        reason: "proxy_protocol",
        why,
    };
    match tokio::time::timeout_at(deadline, proxy_protocol::read(stream)).await {
        Ok(read) => read.map_err(|e| refused(e.to_string())),
        Err(_) => Err(refused("no PROXY header came".to_owned())),
    }
}

/// A connection that is closed before HTTP begins.
struct RefusedConnection {
    /// The metric's label.
    reason: &'static str,
    why: String,
}

impl RefusedConnection {
    /// Counts every refused connection, but logs only some: a proxy in front with other settings
    /// would be refused with each of its connections.
    fn record(&self, listener: &str, peer: Option<SocketAddr>) {
        METRICS.refused(self.reason);
        static THROTTLE: Throttle = Throttle::new();
        if THROTTLE.is_due() {
            tracing::warn!(
                listener,
                peer = ?peer,
                reason = self.reason,
                error = %self.why,
                "a connection was closed"
            );
        }
    }
}

async fn http1(
    stream: Downstream,
    peer: Option<SocketAddr>,
    settings: &ConnectionSettings,
    worker: ConnectionWorker,
) {
    let watch = Arc::new(HeaderWatch::default());
    let address = peer.as_ref().and_then(|peer| peer.as_inet().copied());
    let limits = &settings.limits;
    let requests = Http1 {
        short: settings
            .short_way
            .then(|| short::Connection::new(watch.clone(), peer)),
        watch: watch.clone(),
        proxy: worker.proxy,
        gateway: worker.gateway,
        shutdown: worker.shutdown,
        keepalive: limits.keepalive,
    };
    let mut stream = stream.watched_by(watch.clone());
    if requests.short.is_some() {
        stream = stream.unbuffered();
    }
    let watched = watch.clone();
    let mut requests = AbortOnDrop(tokio::spawn(async move {
        requests.serve(Box::new(stream)).await;
        if let Some(refusal) = watched.refusal_of_unparsed() {
            gateway::record_unparsed(&refusal, address);
        }
    }));
    let mut closing = worker.closing;
    // In a task apart from the requests, so that requests don't pay for the timer.
    tokio::select! {
        _ = &mut requests.0 => {}
        () = header_overdue(&watch, limits) => {}
        _ = async {
            let _ = closing.wait_for(|closing| *closing).await;
            watch.close_when_idle();
            std::future::pending::<()>().await
        } => {}
    }
}

/// Aborts its task when it is dropped: dropping a request's future closes its connection.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns once a request's header, or an idle connection's next request, has been awaited for
/// longer than it may take. Checks four times in that time, so it may return a quarter later.
async fn header_overdue(watch: &HeaderWatch, limits: &Limits) {
    let tick = limits.header.min(limits.keepalive) / 4;
    let tick = tick.max(SHORTEST_TICK);
    let mut seen = (watch.phase(), watch.has_begun());
    let mut waited = Duration::ZERO;
    loop {
        tokio::time::sleep(tick).await;
        let now = (watch.phase(), watch.has_begun());
        let (phase, has_begun) = now;
        if now != seen || !phase.is_reading() {
            seen = now;
            waited = Duration::ZERO;
            continue;
        }
        waited += tick;
        let is_idle = !has_begun && !phase.is_first();
        let limit = if is_idle {
            limits.keepalive
        } else {
            limits.header
        };
        if waited >= limit {
            return;
        }
    }
}

/// The requests of one connection.
struct Http1 {
    /// None: all of them take the long way.
    short: Option<short::Connection>,
    watch: Arc<HeaderWatch>,
    proxy: Arc<HttpProxy<Gateway>>,
    gateway: Arc<Gateway>,
    shutdown: ShutdownWatch,
    keepalive: Duration,
}

impl Http1 {
    async fn serve(mut self, mut stream: Box<Downstream>) {
        let Some(mut short) = self.short.take() else {
            return Box::pin(self.serve_by_pingora(stream)).await;
        };
        loop {
            let next = short
                .serve(stream.bare(), &self.gateway, &self.shutdown)
                .await;
            let Next::HandOver(request) = next else {
                return;
            };
            let HandOver {
                unread,
                end,
                is_cut,
                begun,
            } = request;
            stream.hand_over(unread, end, is_cut);
            if end.is_none() {
                // Boxed: a connection of the short way keeps no room for it.
                return Box::pin(self.serve_by_pingora(stream)).await;
            }
            let session = self.session(stream, begun);
            let served = self.proxy.process_new_http(session, &self.shutdown).await;
            let Some((back, _)) = served.map(ReusedHttpStream::consume) else {
                return;
            };
            // Always: Pingora gives back what it got.
            let Ok(back) = back.into_any().downcast::<Downstream>() else {
                return;
            };
            stream = back;
            let Some(unread) = stream.take_back() else {
                return;
            };
            short.come_back(unread);
        }
    }

    fn session(&self, stream: Box<Downstream>, begun: Option<Box<Ctx>>) -> ServerSession {
        let mut session = ServerSession::new_http1(stream);
        session.set_keepalive(Some(self.keepalive.as_secs()));
        session.set_pipelining_enabled(true);
        session.set_connection_user_context(Some(self.context(begun)));
        session
    }

    fn context(&self, begun: Option<Box<Ctx>>) -> Box<ConnectionContext> {
        let watch = self.watch.clone();
        Box::new(ConnectionContext { watch, begun })
    }

    /// To the end of the connection: where a request isn't plain, only Pingora knows its end.
    async fn serve_by_pingora(self, stream: Box<Downstream>) {
        let mut session = self.session(stream, None);
        loop {
            let served = self.proxy.process_new_http(session, &self.shutdown).await;
            let Some(reused) = served else {
                return;
            };
            self.watch.reading();
            let (stream, settings) = reused.consume();
            session = ServerSession::new_http1(stream);
            if let Some(settings) = settings {
                settings.apply_to_session(&mut session);
            }
            session.set_connection_user_context(Some(self.context(None)));
        }
    }
}
