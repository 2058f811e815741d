//! What a proxy in front of ati says about the caller. Only a trusted proxy is believed.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;

use crate::config::{Peer, TrustedProxies};

/// More hops than any chain of trusted proxies has. It bounds the work for a hostile header.
const MAX_HOPS: usize = 32;

/// Whether a header is what a front proxy says to ati. Such headers aren't sent to upstreams.
pub fn is_forwarding(name: &[u8]) -> bool {
    matches!(name, b"forwarded" | b"via" | b"x-real-ip") || name.starts_with(b"x-forwarded-")
}

/// The last address in `X-Forwarded-For` that isn't a trusted proxy's: the caller may have
/// invented everything before it.
pub fn client(headers: &HeaderMap, trusted: &TrustedProxies) -> Option<IpAddr> {
    let lines = headers.get_all("x-forwarded-for");
    let lines: Vec<&str> = lines
        .iter()
        .map(|line| line.to_str().unwrap_or(""))
        .collect();
    let hops = lines.iter().rev().flat_map(|line| line.rsplit(','));
    let mut nearest = None;
    for hop in hops.take(MAX_HOPS) {
        let Some(address) = parse(hop.trim()) else {
            break;
        };
        nearest = Some(address);
        if !trusted.trusts(Peer::Inet(address)) {
            break;
        }
    }
    nearest
}

fn parse(hop: &str) -> Option<IpAddr> {
    let bare = hop.trim_start_matches('[').trim_end_matches(']');
    bare.parse()
        .ok()
        .or_else(|| hop.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_untrusted_address_is_the_caller() {
        let trusted = ["10.0.0.0/8".to_owned(), "::1".to_owned()];
        let trusted = TrustedProxies::parse(&trusted).unwrap();
        for (lines, expected) in [
            (&["192.0.2.1"][..], Some("192.0.2.1")),
            (&["1.1.1.1, 192.0.2.1"], Some("192.0.2.1")),
            (&["1.1.1.1, 192.0.2.1, 10.0.0.9"], Some("192.0.2.1")),
            (&["1.1.1.1", "192.0.2.1 , 10.0.0.9,::1"], Some("192.0.2.1")),
            (&["10.0.0.1, 10.0.0.2"], Some("10.0.0.1")),
            (&["[2001:db8::1]:443"], Some("2001:db8::1")),
            (&["192.0.2.1:1234"], Some("192.0.2.1")),
            (&["1.1.1.1, nonsense, 10.0.0.9"], Some("10.0.0.9")),
            (&["1.1.1.1, "], None),
            (&["unknown"], None),
            (&[""], None),
            (&[], None),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append("x-forwarded-for", line.parse().unwrap());
            }
            let found = client(&headers, &trusted).map(|address| address.to_string());
            assert_eq!(found.as_deref(), expected, "{lines:?}");
        }
        let mut headers = HeaderMap::new();
        headers.append(
            "x-forwarded-for",
            "10.0.0.1,".repeat(100_000).parse().unwrap(),
        );
        assert_eq!(client(&headers, &trusted), None);
    }
}
