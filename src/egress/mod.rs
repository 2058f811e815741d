//! Outgoing connections of routes and tools: name resolution, allowed addresses, source addresses,
//! trusted certificates.

pub mod address;
mod allowlist;
mod client;
mod error;
mod guard;
pub mod http1;
mod identity;
pub mod idle;
mod origin;
mod peer;
mod resolve;
mod roots;
mod upstream;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;

pub use allowlist::Allowlist;
pub use client::{Clients, fault, proxy_client, proxy_client_as};
pub use error::EgressError;
pub use guard::{Blocked, Guard};
pub use identity::ClientIdentity;
pub use origin::{Base, Origin, Target};
pub use peer::{Attempt, peer};
pub use resolve::Resolver;
pub use roots::bundle as trusted_roots;
pub use upstream::{ConnectionKey, Speaks, Timeouts, Unresolved, Upstream};

use url::Url;

use crate::error::Problem;

/// Whether ati can send requests to a URL. Such URLs always have a host.
pub fn is_http_url(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
}

/// Host and port of an http or https URL, for logs. It never has more than that: user, path and
/// query may hold a credential. The text may be a manifest's, with `${key}` in place of a secret.
pub fn host_and_port(url: &str) -> Option<Box<str>> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority
        .rsplit('@')
        .next()
        .filter(|host| !host.is_empty())?;
    let behind_address = host.rsplit(']').next()?;
    if behind_address.contains(':') {
        return Some(host.into());
    }
    let port = if scheme.eq_ignore_ascii_case("https") {
        443
    } else {
        80
    };
    Some(format!("{host}:{port}").into())
}

/// `[egress]` of the conf file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Used instead of the system's.
    pub nameservers: Vec<SocketAddr>,
    /// Certificates that are trusted in addition to the system's roots.
    pub ca_file: Option<PathBuf>,
    /// The default source address of connections; a provider can name another one.
    pub source: Option<IpAddr>,
    /// Source addresses by the names that providers use for them.
    pub named: BTreeMap<String, IpAddr>,
    /// `ATI_DOWNLOAD_ALLOWLIST`: where files may be downloaded from.
    pub downloads: Allowlist,
}

impl Settings {
    /// Tries to bind each source address: one that this machine doesn't have would fail every
    /// request.
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
    fn host_and_port_of_a_url_leave_out_all_that_may_be_secret() {
        for (url, shown) in [
            ("https://api.example/v1?key=1", Some("api.example:443")),
            ("http://user:pass@h:8080/x#y", Some("h:8080")),
            ("http://[::1]/a:b", Some("[::1]:80")),
            ("https://[::1]:8443?a@b", Some("[::1]:8443")),
            ("https://${tenant}.example/", Some("${tenant}.example:443")),
            ("https://", None),
            ("nonsense", None),
        ] {
            assert_eq!(host_and_port(url).as_deref(), shown, "{url}");
        }
    }

    #[test]
    fn source_address_of_another_machine_is_a_problem() {
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
