//! `X-Ati-Upstream-Url`: an MCP server of the caller's choice, among those that the operator
//! allows.

use url::Url;

use crate::catalog::Provider;
use crate::catalog::mcp::Transport;
use crate::credential::Lookup;
use crate::error::CallError;
use crate::pattern;

/// The URL to use, or why it may not be used.
pub fn check(wanted: &str, provider: &Provider, lookup: &Lookup<'_>) -> Result<Url, CallError> {
    let declares = provider.mcp().is_some_and(
        |mcp| matches!(&mcp.transport, Transport::Http { url_env, .. } if url_env.is_some()),
    );
    let provider = &provider.name;
    if !declares {
        let what = format!("provider '{provider}' does not declare mcp_url_env");
        return Err(CallError::UpstreamUrl(what));
    }
    let url = Url::parse(wanted.trim()).ok().filter(Url::has_host);
    let Some(mut url) = url else {
        let what = "X-Ati-Upstream-Url is not a valid URL".to_owned();
        return Err(CallError::UpstreamUrl(what));
    };
    // A list that can't be read allows nothing.
    let allowed = lookup.get(&format!("{provider}_allowed_urls"));
    let allowed = allowed.ok().flatten();
    let allowed = allowed.as_ref();
    let allowed = allowed.and_then(|list| std::str::from_utf8(list.expose()).ok());
    let Some(entries) = allowed.and_then(parse) else {
        let what = format!("no upstream URL allowlist for provider '{provider}'");
        return Err(CallError::UpstreamDenied(what));
    };
    if entries.iter().any(|entry| entry.matches(&url)) {
        // A fragment is never sent, and must not make two sessions out of one URL.
        url.set_fragment(None);
        Ok(url)
    } else {
        let what = format!("the URL is not in provider '{provider}'s allowlist");
        Err(CallError::UpstreamDenied(what))
    }
}

struct AllowedUrl {
    scheme: String,
    labels: Vec<String>,
    port: Option<u16>,
    path: String,
    query: Option<String>,
}

/// None where an entry can't be parsed: a list with a mistake allows nothing.
fn parse(list: &str) -> Option<Vec<AllowedUrl>> {
    let entries = list
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty());
    let entries: Option<Vec<AllowedUrl>> = entries.map(AllowedUrl::parse).collect();
    entries.filter(|entries| !entries.is_empty())
}

impl AllowedUrl {
    fn parse(text: &str) -> Option<Self> {
        if text.contains("**") || text.contains('@') {
            return None;
        }
        // A URL can't have a star in its host, so scheme and host are split by hand.
        let (scheme, rest) = text.split_once("://")?;
        let host_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(host_end);
        let (host, port) = match authority.rsplit_once(':') {
            // The colons of an IPv6 address stand in brackets.
            Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse().ok()?)),
            _ => (authority, None),
        };
        if host.is_empty() {
            return None;
        }
        let plain = Url::parse(&format!("{scheme}://host{tail}")).ok()?;
        Some(AllowedUrl {
            scheme: plain.scheme().to_owned(),
            labels: host.split('.').map(label).collect::<Option<_>>()?,
            port,
            path: plain.path().to_owned(),
            query: plain.query().map(str::to_owned),
        })
    }

    fn matches(&self, url: &Url) -> bool {
        let Some(host) = url.host_str() else {
            return false;
        };
        let host = host.to_lowercase();
        let labels: Vec<&str> = host.split('.').collect();
        let known = |scheme: &str| match scheme {
            "https" => Some(443),
            "http" => Some(80),
            _ => None,
        };
        url.username().is_empty()
            && url.password().is_none()
            && url.scheme() == self.scheme
            && url.port_or_known_default() == self.port.or_else(|| known(&self.scheme))
            && (!host.starts_with('[') || self.labels.iter().all(|label| !label.contains('*')))
            && labels.len() == self.labels.len()
            && labels
                .iter()
                .zip(&self.labels)
                .all(|(label, pattern)| pattern::matches(pattern, label))
            && url.path() == self.path
            && url.query() == self.query.as_deref()
    }
}

/// A label as URLs have it: in lower case, other alphabets in Punycode. There a star would match
/// encoded characters, so it is refused.
fn label(text: &str) -> Option<String> {
    if text.is_ascii() {
        return Some(text.to_lowercase());
    }
    let url = Url::parse(&format!("https://{text}/")).ok()?;
    (!text.contains('*')).then(|| url.host_str().map(str::to_owned))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_matches_only_if_every_component_is_allowed() {
        let list = "https://*.example.com/mcp, https://mcp-*.corp.net:8443/x?y=1";
        let allows = |url: &str| {
            let entries = parse(list).unwrap();
            let url = Url::parse(url).unwrap();
            entries.iter().any(|entry| entry.matches(&url))
        };
        for good in [
            "https://a.example.com/mcp",
            "https://A.EXAMPLE.com/mcp",
            "https://a.example.com:443/mcp#fragment",
            "https://mcp-7.corp.net:8443/x?y=1",
        ] {
            assert!(allows(good), "{good}");
        }
        for bad in [
            "http://a.example.com/mcp",
            "https://example.com/mcp",
            "https://a.b.example.com/mcp",
            "https://a.example.com.evil.net/mcp",
            "https://a.example.com/mcp/",
            "https://a.example.com/mcp?x=1",
            "https://a.example.com:8443/mcp",
            "https://user@a.example.com/mcp",
            "https://mcp-7.corp.net/x?y=1",
        ] {
            assert!(!allows(bad), "{bad}");
        }
        let six = parse("http://[::1]:8080/mcp, http://[::1]/x").unwrap();
        let allows = |url: &str| {
            six.iter()
                .any(|entry| entry.matches(&Url::parse(url).unwrap()))
        };
        assert!(allows("http://[::1]:8080/mcp") && allows("http://[::1]/x"));
        assert!(!allows("http://[::2]:8080/mcp") && !allows("http://[::1]:8080/x"));
        let foreign = parse("https://*.BÜCHER.example/mcp").unwrap();
        for url in [
            "https://a.bücher.example/mcp",
            "https://a.xn--bcher-kva.example/mcp",
        ] {
            assert!(foreign[0].matches(&Url::parse(url).unwrap()), "{url}");
        }
        for unusable in [
            "",
            "https://bü*.example/",
            " , ",
            "https://**.example.com/",
            "nonsense",
            "https://a.com/,bad",
        ] {
            assert!(parse(unusable).is_none(), "{unusable}");
        }
    }
}
