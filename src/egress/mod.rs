//! The way out, for passthrough and tools alike: names to addresses, which addresses are allowed, from which address, whom to trust.

pub mod address;
mod client;
mod error;
mod guard;
mod peer;
mod resolve;
mod roots;
mod upstream;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;

pub use client::{Clients, fault, proxy_client};
pub use error::EgressError;
pub use guard::{Blocked, Guard};
pub use peer::{Attempt, peer};
pub use resolve::Resolver;
pub use roots::bundle as trusted_roots;
pub use upstream::{Timeouts, Unresolved, Upstream};

use crate::error::Problem;

/// `[egress]` of the conf file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Asked instead of the system's.
    pub nameservers: Vec<SocketAddr>,
    /// Trusted besides the system's roots.
    pub ca_file: Option<PathBuf>,
    /// The address that connections come from, where a provider names no other.
    pub source: Option<IpAddr>,
    /// Addresses that providers can name.
    pub named: BTreeMap<String, IpAddr>,
}

impl Settings {
    /// An address that this machine doesn't have would fail every request; better to say so now.
    pub fn check(&self) -> Vec<Problem> {
        let default = self
            .source
            .iter()
            .map(|ip| ("egress.source".to_owned(), ip));
        let named = self
            .named
            .iter()
            .map(|(name, ip)| (format!("egress.addresses.{name}"), ip));
        default
            .chain(named)
            .filter_map(|(key, ip)| {
                let error = UdpSocket::bind((*ip, 0)).err()?;
                Some(
                    Problem::new(format!("{ip} is not an address of this machine: {error}"))
                        .key(key),
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_source_addresses_are_found_out() {
        let settings = Settings {
            source: Some("127.0.0.1".parse().unwrap()),
            named: BTreeMap::from([("eu".to_owned(), "192.0.2.77".parse().unwrap())]),
            ..Settings::default()
        };
        let problems = settings.check();
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0]
                .to_string()
                .starts_with("egress.addresses.eu: 192.0.2.77 is not")
        );
    }
}
