//! `ATI_DOWNLOAD_ALLOWLIST`: the hosts that files may be downloaded from.

use url::{Host, Url};

/// Host patterns. Empty: every host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowlist(Vec<Pattern>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Any,
    Exact(Host),
    /// `*.suffix`: the name itself, and every name below it.
    Below(String),
    /// As it is written, and what no host is.
    Unusable(String),
}

impl Allowlist {
    /// Patterns, separated by commas. What is no pattern matches nothing.
    pub fn parse(text: &str) -> Self {
        let words = text.split(',').map(str::trim);
        Allowlist(
            words
                .filter(|word| !word.is_empty())
                .map(Pattern::parse)
                .collect(),
        )
    }

    /// Whether any host may be used.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn allows(&self, url: &Url) -> bool {
        let Some(host) = url.host() else {
            return false;
        };
        let host = without_dot(host.to_owned());
        self.0.is_empty() || self.0.iter().any(|pattern| pattern.matches(&host))
    }

    /// Patterns that match no host at all.
    pub fn unusable(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|pattern| match pattern {
            Pattern::Unusable(text) => Some(text.as_str()),
            Pattern::Any | Pattern::Exact(_) | Pattern::Below(_) => None,
        })
    }
}

impl Pattern {
    fn parse(word: &str) -> Self {
        if word == "*" {
            return Pattern::Any;
        }
        // The URL parser's own spelling of hosts: punycode, lower case, addresses of any notation.
        let host = |text: &str| Host::parse(text).ok().map(without_dot);
        let below = word.strip_prefix("*.");
        let parsed = match below {
            Some(suffix) => match host(suffix) {
                Some(Host::Domain(name)) if !name.contains('*') => Some(Pattern::Below(name)),
                _ => None,
            },
            None => {
                let address = || word.parse().ok().map(Host::Ipv6);
                let found = host(word).or_else(address);
                found
                    .filter(|host| !matches!(host, Host::Domain(name) if name.contains('*')))
                    .map(Pattern::Exact)
            }
        };
        parsed.unwrap_or_else(|| Pattern::Unusable(word.to_owned()))
    }

    fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            (Pattern::Any, _) => true,
            (Pattern::Exact(own), host) => own == host,
            (Pattern::Below(suffix), Host::Domain(name)) => name
                .strip_suffix(suffix.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
            (Pattern::Below(_), _) | (Pattern::Unusable(_), _) => false,
        }
    }
}

/// `fal.media.` is the same host as `fal.media`.
fn without_dot(host: Host) -> Host {
    match host {
        Host::Domain(name) => Host::Domain(name.trim_end_matches('.').to_owned()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(list: &str, url: &str) -> bool {
        Allowlist::parse(list).allows(&Url::parse(url).unwrap())
    }

    #[test]
    fn host_is_allowed_by_its_name_or_a_name_above_it_and_by_no_other() {
        let list = "*.fal.media, Example.COM ,10.0.0.1,::1,bücher.example";
        for url in [
            "https://fal.media/x",
            "https://v3b.fal.media/x",
            "https://a.b.FAL.media./x",
            "http://example.com:8080/",
            "http://user:pw@example.com/",
            "http://0xa.1/",
            "http://[::1]/",
            "http://xn--bcher-kva.example/",
        ] {
            assert!(allows(list, url), "{url}");
        }
        for url in [
            "https://evilfal.media/",
            "https://fal.media.evil.test/",
            "http://fal.media@127.0.0.1/",
            "http://127.0.0.1/?fal.media",
            "http://127.0.0.1/#@fal.media",
            "http://www.example.com/",
            "http://10.0.0.2/",
            "http://fal.mediax/",
            "http://fal%2emedia.evil.test/",
        ] {
            assert!(!allows(list, url), "{url}");
        }
    }

    #[test]
    fn empty_list_and_star_allow_every_host() {
        for list in ["", " ", " , ", "*", "a.test,*"] {
            assert!(allows(list, "http://anything.test/"), "{list}");
        }
    }

    #[test]
    fn unusable_pattern_is_told_and_matches_nothing() {
        let text = "https://fal.media,fal.*,*fal.media,*.10.0.0.1,good.test:80";
        let list = Allowlist::parse(text);
        assert_eq!(list.unusable().count(), 5);
        assert!(!allows(text, "https://fal.media/"));
        assert!(!allows(text, "http://good.test:80/"));
    }
}
