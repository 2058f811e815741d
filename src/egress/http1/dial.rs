//! Opens connections: the same addresses, in the same order and with the same settings, as the
//! client for HTTP/2.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use quick_cache::sync::Cache;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::super::client::{CONNECT_TIMEOUT, Clients, ResolveError, resolve};
use super::super::origin::Origin;
use super::SendError;
use super::pool::Stream;
use crate::error::UpstreamFault;

/// The second address family gets its turn after this, while the first goes on (RFC 8305).
const NEXT_FAMILY: Duration = Duration::from_millis(300);
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 3;
/// Sent bytes that stay unacknowledged for so long end the connection.
const USER_TIMEOUT: Duration = Duration::from_secs(30);
/// Of https origins.
const KNOWN: usize = 4096;

/// The https origins that answered in HTTP/1. That can't mislead: each new connection offers both
/// versions, and its server chooses.
pub struct KnownHttp1(Cache<Box<str>, ()>);

impl Default for KnownHttp1 {
    fn default() -> Self {
        KnownHttp1(Cache::new(KNOWN))
    }
}

impl KnownHttp1 {
    pub fn contains(&self, origin: &Origin) -> bool {
        self.0.get(origin.as_str()).is_some()
    }

    pub fn add(&self, origin: &Origin) {
        self.0.insert(origin.as_str().into(), ());
    }

    pub fn remove(&self, origin: &Origin) {
        self.0.remove(origin.as_str());
    }
}

/// Resolves the name, connects, and makes the TLS handshake, all within the time for connecting.
pub(super) async fn dial(
    clients: &Clients,
    source: Option<IpAddr>,
    origin: &Origin,
) -> Result<Stream, SendError> {
    let dialled = timeout(CONNECT_TIMEOUT, dial_unbounded(clients, source, origin)).await;
    dialled.unwrap_or(Err(UpstreamFault::ConnectTimeout.into()))
}

async fn dial_unbounded(
    clients: &Clients,
    source: Option<IpAddr>,
    origin: &Origin,
) -> Result<Stream, SendError> {
    let addresses = match origin.address {
        Some(address) => vec![address],
        None => {
            let (resolver, guard) = (clients.resolver(), clients.guard());
            let found = resolve(resolver, guard, source, &origin.host).await;
            found.map_err(|error| match error {
                ResolveError::Unresolved(_) => UpstreamFault::Unresolved.into(),
                ResolveError::Blocked(_) => SendError::Blocked,
            })?
        }
    };
    let stream = connect(&addresses, origin.port, source).await?;
    if !origin.tls {
        return Ok(Stream::Plain(stream));
    }
    let config = clients.tls().map_err(SendError::Setup)?;
    let host = String::from(&*origin.host);
    let name = ServerName::try_from(host).map_err(|_| UpstreamFault::Tls)?;
    let connected = TlsConnector::from(config).connect(name, stream).await;
    let stream = connected.map_err(|error| match error.get_ref() {
        Some(inner) if inner.is::<rustls::Error>() => UpstreamFault::Tls,
        _ => UpstreamFault::Connect,
    })?;
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        return Err(SendError::Http2);
    }
    Ok(Stream::Tls(Box::new(stream)))
}

/// The first address that answers. Addresses of the other family than the first one's are tried
/// after a while, too.
async fn connect(
    addresses: &[IpAddr],
    port: u16,
    source: Option<IpAddr>,
) -> Result<TcpStream, UpstreamFault> {
    let Some(first) = addresses.first() else {
        return Err(UpstreamFault::Unresolved);
    };
    let is_preferred = |ip: &&IpAddr| ip.is_ipv4() == first.is_ipv4();
    let (preferred, others): (Vec<_>, Vec<_>) = addresses.iter().partition(is_preferred);
    let preferred = one_by_one(preferred, port, source);
    if others.is_empty() {
        return preferred.await;
    }
    let others = async {
        tokio::time::sleep(NEXT_FAMILY).await;
        one_by_one(others, port, source).await
    };
    first_success(preferred, others).await
}

async fn first_success<T, E>(
    one: impl Future<Output = Result<T, E>>,
    other: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    tokio::pin!(one, other);
    tokio::select! {
        done = &mut one => match done {
            Ok(done) => Ok(done),
            Err(_) => other.await,
        },
        done = &mut other => match done {
            Ok(done) => Ok(done),
            Err(_) => one.await,
        },
    }
}

async fn one_by_one(
    addresses: Vec<&IpAddr>,
    port: u16,
    source: Option<IpAddr>,
) -> Result<TcpStream, UpstreamFault> {
    let share = CONNECT_TIMEOUT / addresses.len().max(1) as u32;
    let mut last = UpstreamFault::Connect;
    for ip in addresses {
        let address = SocketAddr::new(*ip, port);
        match timeout(share, connect_to(address, source)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(_)) => last = UpstreamFault::Connect,
            Err(_) => last = UpstreamFault::ConnectTimeout,
        }
    }
    Err(last)
}

async fn connect_to(address: SocketAddr, source: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE)
        .with_retries(KEEPALIVE_RETRIES);
    let options = SockRef::from(&socket);
    options.set_tcp_keepalive(&keepalive)?;
    options.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    socket.set_nodelay(true)?;
    if let Some(source) = source {
        socket.bind(SocketAddr::new(source, 0))?;
    }
    socket.connect(address).await
}
