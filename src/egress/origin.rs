//! Where requests of a tool go: the parts of a URL, taken apart once instead of at each call.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use url::{Host, Position, Url};

use super::guard;
use super::is_http_url;

/// Scheme, host and port of an http or https URL.
#[derive(Debug, Clone)]
pub struct Origin {
    /// `scheme://host`, and the port where it isn't the scheme's own.
    text: Box<str>,
    pub(super) tls: bool,
    /// Without brackets.
    pub(super) host: Box<str>,
    pub(super) port: u16,
    /// Where the host is an IP address.
    pub(super) address: Option<IpAddr>,
    pub(super) is_internal: bool,
}

impl PartialEq for Origin {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Origin {}

impl Hash for Origin {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Origin {
    /// None for other schemes.
    pub fn of(url: &Url) -> Option<Self> {
        if !is_http_url(url) {
            return None;
        }
        let (host, address) = match url.host()? {
            Host::Domain(name) => (name.to_owned(), None),
            Host::Ipv4(ip) => (ip.to_string(), Some(ip.into())),
            Host::Ipv6(ip) => (ip.to_string(), Some(ip.into())),
        };
        Some(Origin {
            text: url.origin().ascii_serialization().into(),
            tls: url.scheme() == "https",
            host: host.into(),
            port: url.port_or_known_default()?,
            address,
            is_internal: guard::is_internal(url),
        })
    }

    /// `scheme://host:port`: what may be shown of a URL.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The host as URLs have it: an IPv6 address in brackets.
    pub(super) fn host_in_url(&self) -> &str {
        let authority = self.authority();
        match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => host,
            _ => authority,
        }
    }

    /// Host and port, as the `Host` header has them.
    pub fn authority(&self) -> &str {
        let scheme = if self.tls { "https://" } else { "http://" };
        self.text.strip_prefix(scheme).unwrap_or(&self.text)
    }
}

/// One URL: its origin, and its path and query as they are sent. No `Debug`: a query may hold a
/// credential.
#[derive(Clone)]
pub struct Target {
    pub origin: Arc<Origin>,
    pub path_and_query: String,
}

impl Target {
    /// None for other schemes than http and https.
    pub fn of(url: &Url) -> Option<Self> {
        Some(Target {
            origin: Arc::new(Origin::of(url)?),
            path_and_query: url[Position::BeforePath..Position::AfterQuery].to_owned(),
        })
    }

    /// Bytes of the whole URL.
    pub fn length(&self) -> usize {
        self.origin.as_str().len() + self.path_and_query.len()
    }

    pub fn to_url(&self) -> Result<Url, url::ParseError> {
        Url::parse(&format!("{}{}", self.origin.as_str(), self.path_and_query))
    }

    /// The query, without its `?`.
    pub fn query(&self) -> &str {
        let split = self.path_and_query.split_once('?');
        split.map_or("", |(_, query)| query)
    }

    pub fn set_query(&mut self, query: &str) {
        let path = self.path_and_query.find('?');
        self.path_and_query
            .truncate(path.unwrap_or(self.path_and_query.len()));
        self.path_and_query.push('?');
        self.path_and_query.push_str(query);
    }
}

/// A base URL that was parsed when its manifest was loaded. Paths and queries that the URL parser
/// would leave as they are can be appended without it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Base {
    origin: Arc<Origin>,
    /// Without a slash at its end.
    path: Box<str>,
}

impl Base {
    /// None where only the parser knows what a path behind this text makes of it.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_end_matches('/');
        let url = Url::parse(text).ok()?;
        let has_credential = !url.username().is_empty() || url.password().is_some();
        if has_credential || text.contains(['?', '#']) {
            return None;
        }
        let base = Base {
            origin: Arc::new(Origin::of(&url)?),
            path: Some(url.path())
                .filter(|path| *path != "/")
                .unwrap_or_default()
                .into(),
        };
        // The proof that appending is what the parser does.
        let parsed = Url::parse(&format!("{text}/ati/probe?a=b")).ok()?;
        let joined = base.join("/ati/probe", "a=b")?;
        let whole = format!("{}{}", base.origin.as_str(), joined.path_and_query);
        (parsed.as_str() == whole).then_some(base)
    }

    /// This URL, a path, and a query behind a `?` or, where the path has one, an `&`. None where
    /// the parser would write it in another way.
    pub fn join(&self, path: &str, query: &str) -> Option<Target> {
        let (own_path, own_query) = match path.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (path, None),
        };
        let is_plain = own_path
            .bytes()
            .all(|byte| STABLE[usize::from(byte)] & PATH != 0)
            && own_query.unwrap_or("").bytes().all(is_plain_in_query)
            && query.bytes().all(is_plain_in_query)
            && !own_path.contains("://")
            && !own_path.split('/').any(is_dot_segment);
        if !is_plain {
            return None;
        }
        let length = self.path.len() + path.len() + query.len() + 3;
        let mut joined = String::with_capacity(length);
        joined.push_str(&self.path);
        let needs_slash = match own_path {
            "" => joined.is_empty(),
            own_path => !own_path.starts_with('/'),
        };
        if needs_slash {
            joined.push('/');
        }
        joined.push_str(path);
        if !query.is_empty() {
            joined.push(if own_query.is_some() { '&' } else { '?' });
            joined.push_str(query);
        }
        Some(Target {
            origin: self.origin.clone(),
            path_and_query: joined,
        })
    }
}

const PATH: u8 = 1;
const QUERY: u8 = 2;
/// Where the URL parser leaves a byte as it is. Not all such bytes are here, only those that URLs
/// mostly have.
static STABLE: [u8; 256] = stable();

const fn stable() -> [u8; 256] {
    let mut table = [0; 256];
    let both = b"-._~!$&()*+,;=:@/%";
    let mut at = 0;
    while at < both.len() {
        table[both[at] as usize] = PATH | QUERY;
        at += 1;
    }
    let mut byte = 0;
    while byte < 128 {
        if (byte as u8).is_ascii_alphanumeric() {
            table[byte] = PATH | QUERY;
        }
        byte += 1;
    }
    table[b'\'' as usize] = PATH;
    table[b'?' as usize] = QUERY;
    table
}

fn is_plain_in_query(byte: u8) -> bool {
    STABLE[usize::from(byte)] & QUERY != 0
}

/// `.` and `..`, in every spelling that the parser removes.
fn is_dot_segment(segment: &str) -> bool {
    if segment.len() > 6 || !segment.starts_with(['.', '%']) {
        return false;
    }
    let dots = segment.to_ascii_lowercase().replace("%2e", ".");
    matches!(dots.as_str(), "." | "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_target_is_what_the_parser_makes_of_the_whole_text() {
        let bases = [
            "https://up.example",
            "https://up.example/",
            "https://UP.example:443/v1/",
            "http://up.example:8080/a%20b",
            "http://[::1]:80/x",
            "http://127.1/v1",
            "https://b\u{fc}cher.example/v1",
            "https://up.example/a/../b",
            "https://up.example/a/.",
            "https://up.example/a b",
            "https://up.example//",
            "https://up.example/a\\",
        ];
        let paths = [
            "",
            "/",
            "/s",
            "s",
            "?v=2",
            "/s?",
            "/s?v=2",
            "/s/{id}",
            "/a/../b",
            "/a/./b",
            "/a/%2E%2e/b",
            "/a/.",
            "/..",
            "/a..b/.c",
            "//x",
            "/a'b",
            "/s?q='",
            "/a#b",
            "/a b",
            "/\u{e4}",
            "/a\\b",
            "/a|b",
            "/a%zz",
            "/s?v=2?w",
            "/a:b@c;d",
            "http://other.example/",
            "/\t",
            "/a/%2e",
            "/a/.%2E/",
        ];
        let queries = [
            "",
            "q=1",
            "q=a%20b&r=c,d",
            "q='",
            "q=a b",
            "q=[1]",
            "q=\u{e4}",
            "q=a#b",
            "q=/?:@",
        ];
        let mut fast = 0;
        for base in bases {
            let prepared = Base::parse(base);
            for (path, query) in paths
                .iter()
                .flat_map(|path| queries.map(|query| (*path, query)))
            {
                let Some(target) = prepared.as_ref().and_then(|base| base.join(path, query)) else {
                    continue;
                };
                fast += 1;
                let slash = if path.is_empty() || path.starts_with(['/', '?']) {
                    ""
                } else {
                    "/"
                };
                let mut text = format!("{}{slash}{path}", base.trim_end_matches('/'));
                if !query.is_empty() {
                    text.push(if text.contains('?') { '&' } else { '?' });
                    text.push_str(query);
                }
                let parsed = Url::parse(&text).unwrap();
                let whole = format!("{}{}", target.origin.as_str(), target.path_and_query);
                assert_eq!(whole, parsed.as_str(), "{text}");
                assert_eq!(target.length(), whole.len());
                assert_eq!(target.to_url().unwrap(), parsed);
            }
        }
        assert!(fast > 300, "{fast}");
    }

    #[test]
    fn base_that_only_the_parser_understands_is_left_to_it() {
        for base in [
            "",
            "nonsense",
            "ftp://h",
            "https://u:p@h",
            "https://h/?a",
            "https://h/#a",
        ] {
            assert!(Base::parse(base).is_none(), "{base}");
        }
    }

    #[test]
    fn origin_tells_scheme_host_and_port() {
        for (url, text, authority, host, port) in [
            (
                "https://A.example/x?y",
                "https://a.example",
                "a.example",
                "a.example",
                443,
            ),
            (
                "http://a.example:8080",
                "http://a.example:8080",
                "a.example:8080",
                "a.example",
                8080,
            ),
            (
                "https://[::1]:444/",
                "https://[::1]:444",
                "[::1]:444",
                "::1",
                444,
            ),
        ] {
            let origin = Origin::of(&Url::parse(url).unwrap()).unwrap();
            assert_eq!((origin.as_str(), origin.authority()), (text, authority));
            assert_eq!((&*origin.host, origin.port), (host, port));
            let url = Url::parse(url).unwrap();
            assert_eq!(Some(origin.host_in_url()), url.host_str());
        }
        assert!(Origin::of(&Url::parse("file:///etc/passwd").unwrap()).is_none());
    }

    #[test]
    fn query_of_a_target_is_replaced() {
        for (before, after) in [("/", "/?k=v"), ("/a?b", "/a?k=v"), ("/a?b?c", "/a?k=v")] {
            let url = Url::parse(&format!("http://h{before}")).unwrap();
            let mut target = Target::of(&url).unwrap();
            target.set_query("k=v");
            assert_eq!(target.path_and_query, after);
            assert_eq!(target.query(), "k=v");
        }
    }
}
