//! The SSRF guard: keeps tools out of internal networks. Passthrough routes aren't checked, because
//! the operator chose their upstreams.

use url::{Host, Url};

use super::address::is_public;
use super::origin::Origin;

/// `ATI_SSRF_PROTECTION`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Guard {
    #[default]
    Off,
    /// Log it, and allow it.
    Warn,
    On,
}

/// A host that is, or resolves to, an address that isn't public. Holds the host only: the rest of
/// the URL may contain a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is a private or internal address")]
pub struct Blocked(pub String);

impl Guard {
    /// `None` for an unknown word, so that the caller decides what is safe.
    pub fn parse(word: &str) -> Option<Self> {
        match word.trim().to_ascii_lowercase().as_str() {
            "" | "0" | "false" | "off" => Some(Guard::Off),
            "warn" => Some(Guard::Warn),
            "1" | "true" | "on" => Some(Guard::On),
            _ => None,
        }
    }

    /// The check before a name is resolved: for IP addresses, whose spellings the URL parser has
    /// unified, and for names that are internal by convention.
    pub fn check(self, url: &Url) -> Result<(), Blocked> {
        if is_internal(url) {
            self.report(url.host_str().unwrap_or_default())
        } else {
            Ok(())
        }
    }

    /// The same check of an origin, which was looked at when it was parsed.
    pub fn check_origin(self, origin: &Origin) -> Result<(), Blocked> {
        if origin.is_internal {
            self.report(origin.host_in_url())
        } else {
            Ok(())
        }
    }

    /// Blocks, logs or allows a host that was found to be internal.
    pub(super) fn report(self, host: &str) -> Result<(), Blocked> {
        match self {
            Guard::Off => Ok(()),
            Guard::Warn => {
                tracing::warn!(
                    host,
                    "SSRF protection: a tool reaches a private or internal address"
                );
                Ok(())
            }
            Guard::On => Err(Blocked(host.to_owned())),
        }
    }
}

/// Whether the host is an internal address, or a name that is internal by convention.
pub(super) fn is_internal(url: &Url) -> bool {
    match url.host() {
        None => true,
        Some(Host::Ipv4(ip)) => !is_public(ip.into()),
        Some(Host::Ipv6(ip)) => !is_public(ip.into()),
        Some(Host::Domain(name)) => is_internal_name(name),
    }
}

fn is_internal_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name.is_empty()
        || ["localhost", "internal", "local"].iter().any(|internal| {
            name == *internal
                || name
                    .strip_suffix(internal)
                    .is_some_and(|rest| rest.ends_with('.'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_host_in_any_spelling_is_blocked() {
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://0x7f.1/",
            "http://2130706433/",
            "http://017700000001/",
            "http://0/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://169.254.169.254/latest",
            "http://localhost/",
            "http://localhost./",
            "http://LOCALHOST../",
            "http://a.localhost/",
            "http://db.internal/",
            "http://printer.local./",
            "http://①②⑦.0.0.1/",
            "http://10.0.0.1:8080/",
        ] {
            let url = Url::parse(url).unwrap();
            assert!(Guard::On.check(&url).is_err(), "{url}");
            assert!(Guard::Warn.check(&url).is_ok(), "{url}");
            assert!(Guard::Off.check(&url).is_ok(), "{url}");
        }
        for url in [
            "http://example.com/",
            "https://1.1.1.1/",
            "http://localhost.example.com/",
            "http://internal.example/",
            "http://mylocal/",
        ] {
            assert!(Guard::On.check(&Url::parse(url).unwrap()).is_ok(), "{url}");
        }
    }

    #[test]
    fn unknown_word_is_no_setting() {
        assert_eq!(Guard::parse("1"), Some(Guard::On));
        assert_eq!(Guard::parse("TRUE"), Some(Guard::On));
        assert_eq!(Guard::parse("warn"), Some(Guard::Warn));
        assert_eq!(Guard::parse(""), Some(Guard::Off));
        assert_eq!(Guard::parse("yes please"), None);
    }
}
