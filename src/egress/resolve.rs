//! Resolves names without blocking a thread, with the system's nameservers or the configured ones.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;

pub struct Resolver {
    /// None on a machine without a configured nameserver.
    inner: Option<TokioResolver>,
}

pub struct Resolved {
    pub addresses: Vec<IpAddr>,
    pub until: Instant,
}

impl Resolver {
    pub fn new(nameservers: &[SocketAddr]) -> Self {
        let builder = if nameservers.is_empty() {
            TokioResolver::builder_tokio().ok()
        } else {
            let servers = nameservers.iter().map(|address| server(*address)).collect();
            let config = ResolverConfig::from_parts(None, Vec::new(), servers);
            Some(TokioResolver::builder_with_config(
                config,
                TokioRuntimeProvider::default(),
            ))
        };
        Resolver {
            inner: builder.and_then(|builder| builder.build().ok()),
        }
    }

    /// `None` if the name has no address, or no nameserver answers.
    pub async fn lookup(&self, name: &str) -> Option<Resolved> {
        let found = self.inner.as_ref()?.lookup_ip(name).await.ok()?;
        let addresses: Vec<IpAddr> = found.iter().collect();
        (!addresses.is_empty()).then(|| Resolved {
            until: found.valid_until(),
            addresses,
        })
    }
}

fn server(address: SocketAddr) -> NameServerConfig {
    let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = address.port();
    }
    NameServerConfig::new(address.ip(), true, connections)
}
