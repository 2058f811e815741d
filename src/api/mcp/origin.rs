//! Protection against DNS rebinding: a web page whose name was made to lead to this server.

use http::HeaderMap;
use http::header::{HOST, ORIGIN};
use url::{Host, Url};

use crate::config::McpSettings;
use crate::error::Refusal;

/// Browsers say which page a request comes from; other programs don't. A page of this machine may
/// ask, one of the operator's list, and one that was loaded from this server under an address.
/// Under a name it may not: a foreign name can lead here.
pub fn check(headers: &HeaderMap, settings: &McpSettings) -> Result<(), Refusal> {
    let mut origins = headers.get_all(ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return Ok(());
    };
    if origins.next().is_some() {
        return Err(Refusal::OriginDenied);
    }
    let Ok(origin) = origin.to_str() else {
        return Err(Refusal::OriginDenied);
    };
    let listed = settings.allowed_origins.iter();
    if listed.into_iter().any(|allowed| allowed == origin) {
        return Ok(());
    }
    let url = Url::parse(origin).ok();
    let host = url.as_ref().and_then(Url::host);
    let is_here = match host {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback() || is_addressed(headers, url.as_ref()),
        Some(Host::Ipv6(ip)) => ip.is_loopback() || is_addressed(headers, url.as_ref()),
        None => false,
    };
    if is_here && is_addressed_safely(headers) {
        Ok(())
    } else {
        Err(Refusal::OriginDenied)
    }
}

/// Whether the request is for the host and port that the page comes from.
fn is_addressed(headers: &HeaderMap, origin: Option<&Url>) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.and_then(|host| Url::parse(&format!("http://{host}/")).ok());
    match (host, origin) {
        (Some(host), Some(origin)) => {
            host.host() == origin.host()
                && host.port_or_known_default() == origin.port_or_known_default()
        }
        _ => false,
    }
}

/// Whether the browser reached this server by an address or as localhost.
fn is_addressed_safely(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let url = host.and_then(|host| Url::parse(&format!("http://{host}/")).ok());
    url.is_some_and(|url| match url.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(_) | Host::Ipv6(_)) => true,
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(origin: &str, host: &str) -> bool {
        let settings = McpSettings {
            allowed_origins: vec!["https://app.example.com".to_owned()],
            ..McpSettings::default()
        };
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        headers.insert(ORIGIN, origin.parse().unwrap());
        check(&headers, &settings).is_ok()
    }

    #[test]
    fn page_of_another_site_is_refused() {
        let here = "127.0.0.1:8090";
        for good in [
            "http://localhost:3000",
            "http://127.0.0.1:8090",
            "http://[::1]:1",
            "https://app.example.com",
        ] {
            assert!(allows(good, here), "{good}");
        }
        for bad in [
            "http://evil.example",
            "null",
            "",
            "http://10.0.0.7",
            "file://",
        ] {
            assert!(!allows(bad, here), "{bad}");
        }
        // Its name leads here, and so does the page's.
        assert!(!allows("http://evil.example:8090", "evil.example:8090"));
        assert!(!allows("http://localhost:3000", "evil.example:8090"));
        assert!(allows("http://10.0.0.7:8090", "10.0.0.7:8090"));
        assert!(!allows("http://10.0.0.7:8091", "10.0.0.7:8090"));
        assert!(allows("https://app.example.com", "ati.example.com"));
        assert!(check(&HeaderMap::new(), &McpSettings::default()).is_ok());
    }
}
