use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::RawAdmin;
use super::listener::{self, Address, EDGE, Listener, Tls, TrustedProxies};
use super::value::{Plain, Positive, RelativePath, Seconds, raw_section};
use crate::config::Flags;
use crate::error::Problem;

/// Where a successor asks for the listeners, below `ati_dir`: in a folder that only the owner may
/// enter.
const UPGRADE_SOCKET: &str = "run/upgrade.sock";

const DEFAULT_PORT: u16 = 8090;
const DEFAULT_DRAIN: Duration = Duration::from_secs(30);

raw_section! {
    /// `[server]`.
    RawServer {
        bind: Plain<String>,
        port: Plain<u16>,
        workers: Positive,
        drain_seconds: Seconds,
        proxy_protocol: Plain<bool>,
        trusted_proxies: Plain<Vec<String>>,
        upgrade_socket: RelativePath,
        insecure: Plain<bool>,
        tls: Tls,
    }
}

/// `[server]`, `[[listener]]` and `[admin]`.
pub(in crate::config) struct ServerSettings {
    pub(in crate::config) listeners: Vec<Listener>,
    pub(in crate::config) trusted_proxies: TrustedProxies,
    pub(in crate::config) admin: Option<SocketAddr>,
    pub(in crate::config) insecure: bool,
    pub(in crate::config) upgrade_socket: PathBuf,
    pub(in crate::config) workers: usize,
    pub(in crate::config) drain: Duration,
}

impl RawServer {
    pub(in crate::config) fn resolve(
        self,
        others: Vec<Listener>,
        admin: RawAdmin,
        flags: &Flags,
        ati_dir: &Path,
        problems: &mut Vec<Problem>,
    ) -> ServerSettings {
        let named = |flag: bool, name, key, message: String| named(flags, flag, name, key, message);
        let bind = flags.bind.clone().or(self.bind).unwrap_or_default();
        let ip = parse_ip(&bind).unwrap_or_else(|| {
            let message =
                format!("'{bind}' is not an IP address (host names are not resolved here)");
            problems.push(named(
                flags.bind.is_some(),
                "--bind",
                "server.bind",
                message,
            ));
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        });
        let port = flags.port.or(self.port).unwrap_or(DEFAULT_PORT);
        let admin = flags.admin.clone().or(admin.listen).and_then(|text| {
            let address = text.parse().ok();
            if address.is_none() {
                let message = format!("'{text}' is not an address and port, like 127.0.0.1:9090");
                problems.push(named(
                    flags.admin.is_some(),
                    "--admin",
                    "admin.listen",
                    message,
                ));
            }
            address
        });

        let mut listeners = vec![Listener {
            name: EDGE.to_owned(),
            address: Address::Tcp(SocketAddr::new(ip, port)),
            proxy_protocol: self.proxy_protocol.unwrap_or(false),
            tls: self.tls,
        }];
        listeners.extend(others);
        let in_conf = |message: String| Problem {
            file: flags.conf.clone(),
            ..Problem::new(message)
        };
        let trusted_proxies = TrustedProxies::parse(&self.trusted_proxies.unwrap_or_default())
            .unwrap_or_else(|message| {
                problems.push(in_conf(message).key("server.trusted_proxies"));
                TrustedProxies::default()
            });
        let together = listener::check(&listeners, &trusted_proxies);
        problems.extend(together.into_iter().map(in_conf));

        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        ServerSettings {
            listeners,
            trusted_proxies,
            admin,
            insecure: flags.insecure || self.insecure.unwrap_or(false),
            upgrade_socket: self
                .upgrade_socket
                .unwrap_or_else(|| default_upgrade_socket(ati_dir)),
            workers: self.workers.unwrap_or_else(cores),
            drain: self.drain_seconds.unwrap_or(DEFAULT_DRAIN),
        }
    }
}

pub(in crate::config) fn default_upgrade_socket(ati_dir: &Path) -> PathBuf {
    ati_dir.join(UPGRADE_SOCKET)
}

/// A problem of a value that a flag or the conf file has given: it names the one or the other.
pub(super) fn named(
    flags: &Flags,
    by_flag: bool,
    flag: &str,
    key: &str,
    message: String,
) -> Problem {
    let problem = Problem::new(message);
    match &flags.conf {
        Some(conf) if !by_flag => problem.file(conf).key(key),
        _ => problem.key(flag),
    }
}

/// IPv6 with or without brackets. Nothing means loopback.
fn parse_ip(text: &str) -> Option<IpAddr> {
    if text.is_empty() {
        return Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let inner = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    inner.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bind_takes_ip_literals() {
        for (text, ip) in [
            ("", "127.0.0.1"),
            ("0.0.0.0", "0.0.0.0"),
            ("[::]", "::"),
            ("::1", "::1"),
        ] {
            assert_eq!(parse_ip(text).unwrap().to_string(), ip);
        }
        assert_eq!(parse_ip("localhost"), None);
    }
}
