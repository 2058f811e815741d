//! One upstream: where it is, and how long to wait for it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use tokio::sync::Mutex;

use super::resolve::Resolver;

/// However a zone is set up: not asked more often, and not trusted for longer.
const TTL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// While nobody answers, old addresses are better than none.
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

pub struct Upstream {
    pub tls: bool,
    /// A name, or an IP address without brackets.
    pub host: String,
    pub port: u16,
    pub source: Option<IpAddr>,
    pub timeouts: Timeouts,
    known: ArcSwapOption<Known>,
    asking: Mutex<()>,
}

struct Known {
    addresses: Arc<[SocketAddr]>,
    until: Instant,
}

/// The name has no address that could be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
        // A literal needs nobody to be asked, ever.
        let known = host.parse::<IpAddr>().ok().map(|ip| {
            Arc::new(Known {
                addresses: Arc::from([SocketAddr::new(ip, port)]),
                until: Instant::now() + Duration::from_secs(1 << 40),
            })
        });
        Upstream {
            tls,
            host,
            port,
            source,
            timeouts,
            known: ArcSwapOption::new(known),
            asking: Mutex::new(()),
        }
    }

    /// The addresses to try, in order. However many callers wait, one asks; while an old answer is at hand, nobody waits.
    pub async fn addresses(&self, resolver: &Resolver) -> Result<Arc<[SocketAddr]>, Unresolved> {
        let fresh = |known: &Option<Arc<Known>>| {
            let known = known.as_ref()?;
            (known.until > Instant::now()).then(|| known.addresses.clone())
        };
        let known = self.known.load_full();
        if let Some(addresses) = fresh(&known) {
            return Ok(addresses);
        }
        let stale = known.filter(|known| known.until + STALE > Instant::now());
        let _turn = match (&stale, self.asking.try_lock()) {
            (_, Ok(turn)) => turn,
            (Some(stale), Err(_)) => return Ok(stale.addresses.clone()),
            (None, Err(_)) => self.asking.lock().await,
        };
        if let Some(addresses) = fresh(&self.known.load_full()) {
            return Ok(addresses);
        }
        match self.ask(resolver).await {
            Some(known) => {
                let addresses = known.addresses.clone();
                self.known.store(Some(Arc::new(known)));
                Ok(addresses)
            }
            None => stale.map(|stale| stale.addresses.clone()).ok_or(Unresolved),
        }
    }

    async fn ask(&self, resolver: &Resolver) -> Option<Known> {
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
            .clamp(TTL.0, TTL.1);
        (!addresses.is_empty()).then(|| Known {
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
    async fn literals_need_no_nameserver() {
        let nobody = Resolver::new(&["127.0.0.1:1".parse().unwrap()]);
        for (host, address) in [("127.0.0.1", "127.0.0.1:80"), ("[::1]", "[::1]:80")] {
            let upstream = Upstream::new(false, host, 80, None, timeouts());
            let found = upstream.addresses(&nobody).await.unwrap();
            assert_eq!(found[0].to_string(), address);
        }
        let upstream = Upstream::new(false, "no.such.name.invalid", 80, None, timeouts());
        assert_eq!(upstream.addresses(&nobody).await.unwrap_err(), Unresolved);
    }
}
