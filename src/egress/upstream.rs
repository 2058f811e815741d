//! One upstream: where it is, and how long to wait for it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;

use super::resolve::Resolver;
use crate::backoff::Backoff;
use crate::single_flight::SingleFlight;

/// Bounds of the lifetime of an answer, whatever its zone says.
const SHORTEST_TTL: Duration = Duration::from_secs(1);
const LONGEST_TTL: Duration = Duration::from_secs(300);
/// A failed lookup is repeated after this.
const RETRY: Backoff = Backoff::new(SHORTEST_TTL, SHORTEST_TTL);
/// Expired addresses are used for this long while no name server answers.
const STALE: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP, TLS, and the answer to a WebSocket handshake.
    pub connect: Duration,
    /// No byte for so long.
    pub inactivity: Duration,
    /// How long an unused connection is kept.
    pub idle: Duration,
}

/// What all connections to an upstream's addresses have in common. Two upstreams with the same one
/// can use each other's.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ConnectionKey {
    tls: bool,
    /// The name that the certificate was checked for.
    host: Box<str>,
    source: Option<IpAddr>,
}

/// The version of HTTP that an upstream has answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    Unknown,
    Http1,
    Http2,
}

pub struct Upstream {
    pub tls: bool,
    /// A name, or an IP address without brackets.
    pub host: String,
    pub port: u16,
    /// Host and port, for logs.
    pub authority: Box<str>,
    pub source: Option<IpAddr>,
    pub timeouts: Timeouts,
    pub key: Arc<ConnectionKey>,
    /// [`Speaks`] as a number.
    speaks: AtomicU8,
    known: ArcSwapOption<KnownAddresses>,
    lookup: SingleFlight<Unresolved>,
}

struct KnownAddresses {
    addresses: Arc<[SocketAddr]>,
    until: Instant,
}

/// The name has no address that could be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name can't be resolved")]
pub struct Unresolved;

impl Upstream {
    pub fn new(
        tls: bool,
        host: &str,
        port: u16,
        source: Option<IpAddr>,
        timeouts: Timeouts,
    ) -> Self {
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        // An IP address is never looked up.
        let known = host.parse::<IpAddr>().ok().map(|ip| {
            Arc::new(KnownAddresses {
                addresses: Arc::from([SocketAddr::new(ip, port)]),
                until: Instant::now() + Duration::from_secs(1 << 40),
            })
        });
        let authority = if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        };
        let key = Arc::new(ConnectionKey {
            tls,
            host: host.as_str().into(),
            source,
        });
        Upstream {
            tls,
            key,
            speaks: AtomicU8::new(Speaks::Unknown as u8),
            host,
            port,
            authority: authority.into(),
            source,
            timeouts,
            known: ArcSwapOption::new(known),
            lookup: SingleFlight::new(RETRY),
        }
    }

    /// What its addresses depend on.
    pub fn key(&self) -> (&str, u16, Option<IpAddr>) {
        (&self.host, self.port, self.source)
    }

    pub fn adopt(&self, old: &Upstream) {
        self.known.store(old.known.load_full());
        if self.tls == old.tls {
            let speaks = old.speaks.load(Ordering::Relaxed);
            self.speaks.store(speaks, Ordering::Relaxed);
        }
    }

    /// Which version its last answer had. Without TLS it is always HTTP/1.
    pub fn speaks(&self) -> Speaks {
        match self.speaks.load(Ordering::Relaxed) {
            _ if !self.tls => Speaks::Http1,
            1 => Speaks::Http1,
            2 => Speaks::Http2,
            _ => Speaks::Unknown,
        }
    }

    pub fn observe_version(&self, speaks: Speaks) {
        if self.tls && self.speaks() != speaks {
            self.speaks.store(speaks as u8, Ordering::Relaxed);
        }
    }

    /// The addresses to try, in order. However many callers there are, one looks the name up
    /// (single flight). While expired addresses are at hand, callers use them and the lookup runs
    /// in the background.
    pub async fn addresses(
        self: &Arc<Self>,
        resolver: &Arc<Resolver>,
        now: Instant,
    ) -> Result<Arc<[SocketAddr]>, Unresolved> {
        let Some(known) = self.known.load_full() else {
            // Boxed: it is rare, and large.
            return Box::pin(self.refresh(resolver)).await;
        };
        if known.until <= now && !self.lookup.is_running() {
            let (this, resolver) = (self.clone(), resolver.clone());
            tokio::spawn(async move { this.refresh(&resolver).await });
        }
        if known.until + STALE > now {
            Ok(known.addresses.clone())
        } else {
            Box::pin(self.refresh(resolver)).await
        }
    }

    async fn refresh(&self, resolver: &Resolver) -> Result<Arc<[SocketAddr]>, Unresolved> {
        let valid = || {
            let known = self.known.load_full();
            let known = known.filter(|known| known.until > Instant::now())?;
            Some(known.addresses.clone())
        };
        let look_up = async {
            let known = self.look_up(resolver).await.ok_or(Unresolved)?;
            let addresses = known.addresses.clone();
            self.known.store(Some(Arc::new(known)));
            Ok(addresses)
        };
        self.lookup.run(valid, || None, look_up).await
    }

    async fn look_up(&self, resolver: &Resolver) -> Option<KnownAddresses> {
        let found = tokio::time::timeout(self.timeouts.connect, resolver.lookup(&self.host))
            .await
            .ok()??;
        let addresses: Vec<SocketAddr> = found
            .addresses
            .into_iter()
            // An IPv4 source can't reach an IPv6 address.
            .filter(|ip| {
                self.source
                    .is_none_or(|source| source.is_ipv4() == ip.is_ipv4())
            })
            .map(|ip| SocketAddr::new(ip, self.port))
            .collect();
        let now = Instant::now();
        let ttl = found
            .until
            .saturating_duration_since(now)
            .clamp(SHORTEST_TTL, LONGEST_TTL);
        (!addresses.is_empty()).then(|| KnownAddresses {
            addresses: addresses.into(),
            until: now + ttl,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeouts() -> Timeouts {
        Timeouts {
            connect: Duration::from_secs(1),
            inactivity: Duration::from_secs(1),
            idle: Duration::from_secs(1),
        }
    }

    #[tokio::test]
    async fn ip_address_needs_no_name_server() {
        let unreachable = Arc::new(Resolver::new(&["127.0.0.1:1".parse().unwrap()]));
        for (host, address) in [("127.0.0.1", "127.0.0.1:80"), ("[::1]", "[::1]:80")] {
            let upstream = Arc::new(Upstream::new(false, host, 80, None, timeouts()));
            let found = upstream
                .addresses(&unreachable, Instant::now())
                .await
                .unwrap();
            assert_eq!(found[0].to_string(), address);
        }
        let upstream = Arc::new(Upstream::new(
            false,
            "no.such.name.invalid",
            80,
            None,
            timeouts(),
        ));
        assert_eq!(
            upstream
                .addresses(&unreachable, Instant::now())
                .await
                .unwrap_err(),
            Unresolved
        );
    }
}
