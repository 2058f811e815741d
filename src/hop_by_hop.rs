//! Hop-by-hop headers: they concern one connection, so a proxy never forwards them.

use http::HeaderMap;
use http::header::CONNECTION;

/// The lists of RFC 9110 (7.6.1) and RFC 2616 (13.5.1), and the header of the HTTP/2 upgrade.
const NAMES: [&str; 11] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
];

/// Whether a header is always hop-by-hop. The name is in lower case, as `HeaderName` has it.
pub fn contains(name: impl AsRef<[u8]>) -> bool {
    let name = name.as_ref();
    NAMES.iter().any(|own| own.as_bytes() == name)
}

/// Whether any `Connection` header, and not only the first, says that the connection ends.
pub fn closes(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONNECTION).iter();
    values.any(|value| {
        let mut options = value.as_bytes().split(|byte| *byte == b',');
        options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
    })
}

/// The names of further hop-by-hop headers, as `Connection` spells them.
pub fn named(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(named_in)
}

/// As [`named`], of one value of `Connection`.
pub fn named_in(value: &str) -> impl Iterator<Item = &str> {
    value
        .split(',')
        .map(str::trim)
        // These two say how long the connection lives. They stand in most responses.
        .filter(|name| !matches!(*name, "" | "close" | "keep-alive"))
}

/// Whether a header of an answer stays on the upstream's connection. `named` are those that the
/// answer's `Connection` names. The headers that frame a body aren't among them: what reads the
/// body decides on those.
pub fn stays_here(name: impl AsRef<[u8]>, named: &[&str]) -> bool {
    let name = name.as_ref();
    let frames_body = matches!(name, b"content-length" | b"transfer-encoding" | b"trailer");
    let is_named = || {
        let mut named = named.iter();
        named.any(|other| other.as_bytes().eq_ignore_ascii_case(name))
    };
    !frames_body && (contains(name) || is_named())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_header_names_further_headers() {
        let mut headers = HeaderMap::new();
        headers.append(CONNECTION, "close, X-One ,, keep-alive".parse().unwrap());
        headers.append(CONNECTION, "x-two".parse().unwrap());
        assert_eq!(named(&headers).collect::<Vec<_>>(), ["X-One", "x-two"]);
        assert!(contains("keep-alive") && !contains("x-one"));
        assert!(closes(&headers));
        headers.remove(CONNECTION);
        headers.append(CONNECTION, "x, closed".parse().unwrap());
        assert!(!closes(&headers));
        headers.append(CONNECTION, "Close".parse().unwrap());
        assert!(closes(&headers));
    }
}
