//! The listeners, and the proxies in front of them whose word about a caller's address is believed.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;

use super::value::{ConfType, Plain, RawSection, RelativePath, raw_section, relative_to};
use crate::config::Section;

/// The name of the main listener, which `--bind` and `--port` set.
pub const EDGE: &str = "edge";
/// The names of ati's own listeners, which a `[[listener]]` can't have.
const RESERVED: [&str; 3] = [EDGE, "admin", "upgrade"];
/// As many descriptors can be handed to a successor in one message.
pub const MOST_LISTENERS: usize = 64;
/// The system takes 107 bytes; the socket is created under a longer, temporary name.
const LONGEST_PATH: usize = 90;

/// An address to accept connections on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// For metrics and messages.
    pub name: String,
    pub address: Address,
    /// Connections that don't begin with a PROXY protocol header, version 2, are closed.
    pub proxy_protocol: bool,
    pub tls: Option<Tls>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    Unix {
        path: PathBuf,
        /// The file mode of the socket, which says who may connect.
        mode: u32,
    },
}

impl Address {
    /// Whether only programs of this machine can connect.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Address::Unix { .. } => true,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix { path, .. } => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The files of one listener's TLS. Their contents belong to the snapshot, so that SIGHUP replaces
/// them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// The chain, beginning with the server's certificate.
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub clients: Option<ClientCertificates>,
    pub http2: bool,
}

impl Tls {
    /// Whether callers without a certificate are refused.
    pub fn wants_certificates(&self) -> bool {
        self.clients
            .as_ref()
            .is_some_and(|clients| clients.required)
    }
}

/// Client certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificates {
    /// The CAs that may have issued them.
    pub ca: PathBuf,
    /// Callers without one are refused.
    pub required: bool,
}

/// The proxies in front of ati that may say which address a caller has. Other peers' PROXY headers
/// and `X-Forwarded-For` are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
    /// Every peer of a Unix socket.
    unix: bool,
}

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Inet(IpAddr),
    /// A process on this machine, through a Unix socket.
    Unix,
    /// A proxy in front of ati sent no address for it.
    Unknown,
}

impl TrustedProxies {
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let mut trusted = TrustedProxies::default();
        for word in words {
            if word == "unix" {
                trusted.unix = true;
                continue;
            }
            let network = word.parse::<IpNet>().or_else(|e| {
                let single = word.parse::<IpAddr>().map(IpNet::from);
                single.map_err(|_| e)
            });
            let network = network.map_err(|_| {
                format!("'{word}' is no address or network, like 10.0.0.0/8, and not \"unix\"")
            })?;
            trusted.networks.push(network);
        }
        Ok(trusted)
    }

    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && !self.unix
    }

    pub fn trusts(&self, peer: Peer) -> bool {
        match peer {
            Peer::Unknown => false,
            Peer::Unix => self.unix,
            Peer::Inet(peer) => {
                // A listener on [::] sees IPv4 peers as IPv4-mapped IPv6 addresses.
                let peer = peer.to_canonical();
                self.networks.iter().any(|network| network.contains(&peer))
            }
        }
    }

    fn could_reach(&self, address: &Address) -> bool {
        match address {
            Address::Tcp(_) => !self.networks.is_empty(),
            Address::Unix { .. } => self.unix,
        }
    }
}

raw_section! {
    /// `[[listener]]`.
    RawListener {
        name: Plain<String>,
        listen: Plain<String>,
        mode: Plain<String>,
        proxy_protocol: Plain<bool>,
        tls: Tls,
    }
}

/// Every `[[listener]]` that can be used.
pub(super) fn read_all(root: &mut Section<'_>, conf: &Path) -> Vec<Listener> {
    let mut listeners = Vec::new();
    root.each("listener", |section| {
        let raw = RawListener::take(section, conf);
        listeners.extend(raw.resolve(section, conf));
    });
    listeners
}

impl RawListener {
    fn resolve(self, section: &mut Section<'_>, conf: &Path) -> Option<Listener> {
        if self.name.as_deref().is_none_or(|name| !is_name(name)) {
            section.problem(
                "name",
                "a listener needs a name of its own: lower-case letters, digits, - and _",
            );
        }
        let Some(listen) = self.listen else {
            section.problem(
                "listen",
                "a listener needs an address, like 0.0.0.0:443 or unix:/run/ati-front/edge.sock",
            );
            return None;
        };
        let address = match parse(&listen, self.mode.as_deref(), conf) {
            Ok(address) => address,
            Err((key, message)) => {
                section.problem(key, message);
                return None;
            }
        };
        Some(Listener {
            name: self.name?,
            address,
            proxy_protocol: self.proxy_protocol.unwrap_or(false),
            tls: self.tls,
        })
    }
}

fn parse(listen: &str, mode: Option<&str>, conf: &Path) -> Result<Address, (&'static str, String)> {
    let Some(path) = listen.strip_prefix("unix:") else {
        if mode.is_some() {
            return Err(("mode", "only Unix sockets have one".to_owned()));
        }
        let address = listen.parse().map(Address::Tcp);
        return address.map_err(|_| {
            let message = format!(
                "'{listen}' is neither like 0.0.0.0:443 nor like unix:/run/ati-front/edge.sock"
            );
            ("listen", message)
        });
    };
    let path = relative_to(conf, Path::new(path));
    if path.as_os_str().is_empty() || path.as_os_str().len() > LONGEST_PATH {
        let message = format!("a Unix socket's path has 1 to {LONGEST_PATH} bytes");
        return Err(("listen", message));
    }
    let mode = mode.unwrap_or("0660");
    match u32::from_str_radix(mode, 8) {
        Ok(mode) if mode <= 0o777 => Ok(Address::Unix { path, mode }),
        _ => Err(("mode", format!("'{mode}' is no file mode, like 0660"))),
    }
}

raw_section! {
    /// The table `tls` of `[server]` or of a `[[listener]]`.
    RawTls {
        certificate: RelativePath,
        key: RelativePath,
        client_ca: RelativePath,
        client_certificates: Plain<String>,
        http2: Plain<bool>,
    }
}

impl ConfType for Tls {
    type Value = Tls;

    fn take(section: &mut Section<'_>, key: &'static str, conf: &Path) -> Option<Tls> {
        if !section.has(key) {
            return None;
        }
        let mut section = section.section(key);
        let tls = RawTls::take(&mut section, conf).resolve(&mut section);
        section.finish();
        tls
    }
}

impl RawTls {
    fn resolve(self, section: &mut Section<'_>) -> Option<Tls> {
        for (key, missing) in [
            ("certificate", self.certificate.is_none()),
            ("key", self.key.is_none()),
        ] {
            if missing {
                section.problem(key, "TLS needs a certificate and its key, each a PEM file");
            }
        }
        let required = match self.client_certificates.as_deref() {
            None | Some("required") => true,
            Some("optional") => false,
            Some(other) => {
                let message = format!("'{other}' is neither \"required\" nor \"optional\"");
                section.problem("client_certificates", message);
                true
            }
        };
        if self.client_certificates.is_some() && self.client_ca.is_none() {
            section.problem("client_certificates", "needs client_ca");
        }
        Some(Tls {
            certificate: self.certificate?,
            key: self.key?,
            clients: self.client_ca.map(|ca| ClientCertificates { ca, required }),
            http2: self.http2.unwrap_or(true),
        })
    }
}

/// Conflicts between listeners, and with the trusted proxies.
pub fn check(listeners: &[Listener], trusted: &TrustedProxies) -> Vec<String> {
    let mut problems = Vec::new();
    if listeners.len() > MOST_LISTENERS {
        problems.push(format!("more than {MOST_LISTENERS} listeners"));
    }
    for (index, listener) in listeners.iter().enumerate() {
        let before = &listeners[..index];
        let name = &listener.name;
        if before.iter().any(|other| other.name == *name) {
            problems.push(format!("two listeners are called '{name}'"));
        }
        let is_fixed = !matches!(listener.address, Address::Tcp(address) if address.port() == 0);
        if is_fixed && before.iter().any(|other| other.address == listener.address) {
            problems.push(format!("two listeners want {}", listener.address));
        }
        if listener.proxy_protocol && !trusted.could_reach(&listener.address) {
            problems.push(format!(
                "listener '{name}' has proxy_protocol, but server.trusted_proxies names no \
                 proxy that may speak it there"
            ));
        }
    }
    problems
}

fn is_name(name: &str) -> bool {
    (1..=32).contains(&name.len())
        && !RESERVED.contains(&name)
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trusted(words: &[&str]) -> TrustedProxies {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        TrustedProxies::parse(&words).unwrap()
    }

    #[test]
    fn only_named_proxies_are_trusted() {
        let some = trusted(&["127.0.0.1", "10.0.0.0/8", "fd00::/8"]);
        let ip = |text: &str| Peer::Inet(text.parse().unwrap());
        for near in ["127.0.0.1", "10.1.2.3", "fd00::1", "::ffff:10.0.0.1"] {
            assert!(some.trusts(ip(near)), "{near}");
        }
        for far in ["127.0.0.2", "11.0.0.1", "::1", "::ffff:11.0.0.1"] {
            assert!(!some.trusts(ip(far)), "{far}");
        }
        assert!(!some.trusts(Peer::Unix));
        assert!(trusted(&["unix"]).trusts(Peer::Unix));
        assert!(!trusted(&["unix", "0.0.0.0/0"]).trusts(Peer::Unknown));
        assert!(!trusted(&[]).trusts(ip("127.0.0.1")));
        for bad in ["", "localhost", "10.0.0.0/33", "unix:"] {
            assert!(TrustedProxies::parse(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }

    #[test]
    fn listener_addresses_are_parsed_or_refused() {
        let conf = Path::new("/etc/ati/ati.toml");
        let text = |listen, mode| parse(listen, mode, conf).map(|address| address.to_string());
        assert_eq!(text("[::]:443", None).unwrap(), "[::]:443");
        assert_eq!(text("unix:/run/a.sock", None).unwrap(), "unix:/run/a.sock");
        assert_eq!(
            text("unix:a.sock", Some("600")).unwrap(),
            "unix:/etc/ati/a.sock"
        );
        for (listen, mode) in [
            ("443", None),
            ("localhost:443", None),
            ("127.0.0.1:1", Some("600")),
            ("unix:/a", Some("9")),
            ("unix:/a", Some("1777")),
        ] {
            assert!(text(listen, mode).is_err(), "{listen}");
        }
        assert!(text(&format!("unix:/{}", "a".repeat(90)), None).is_err());
    }

    #[test]
    fn proxy_protocol_without_trusted_proxies_is_a_problem() {
        let on = |name: &str, address: &str, proxy_protocol| Listener {
            name: name.to_owned(),
            address: parse(address, None, Path::new("")).unwrap(),
            proxy_protocol,
            tls: None,
        };
        let tcp = [on("edge", "0.0.0.0:1", true)];
        assert_eq!(check(&tcp, &trusted(&[])).len(), 1);
        assert_eq!(check(&tcp, &trusted(&["unix"])).len(), 1);
        assert!(check(&tcp, &trusted(&["10.0.0.0/8"])).is_empty());
        let unix = [on("edge", "unix:/a", true)];
        assert_eq!(check(&unix, &trusted(&["10.0.0.0/8"])).len(), 1);
        assert!(check(&unix, &trusted(&["unix"])).is_empty());
        let twice = [on("a", "0.0.0.0:1", false), on("a", "0.0.0.0:1", false)];
        assert_eq!(check(&twice, &trusted(&[])).len(), 2);
        let chosen = [on("a", "0.0.0.0:0", false), on("b", "0.0.0.0:0", false)];
        assert!(check(&chosen, &trusted(&[])).is_empty());
    }
}
