//! Refuses requests whose headers allow two readings of where the body ends. Where both
//! Content-Length and Transfer-Encoding are there, Pingora drops the former before any hook runs:
//! so this looks at the bytes as received.

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, Version};

use crate::error::Refusal;

/// `raw` gives the header section as received. It is called only if there is a Transfer-Encoding.
pub fn check(
    headers: &HeaderMap,
    raw: impl FnOnce() -> Option<bytes::Bytes>,
) -> Result<(), Refusal> {
    if headers.contains_key(TRANSFER_ENCODING) {
        return check_encoding(headers, raw);
    }
    // RFC 9110 allows the same length twice, but upstreams differ in how they read "5, 5".
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else {
        return Ok(());
    };
    let digits = !length.is_empty() && length.as_bytes().iter().all(u8::is_ascii_digit);
    if digits && lengths.next().is_none() {
        Ok(())
    } else {
        Err(Refusal::AmbiguousFraming)
    }
}

/// One Host in HTTP/1.1 (RFC 9112, 3.2), or an authority in the request line; never two.
pub fn check_host(request: &Parts) -> Result<(), Refusal> {
    let mut hosts = request.headers.get_all(HOST).iter();
    let is_named = hosts.next().is_some() || request.uri.authority().is_some();
    if hosts.next().is_some() {
        return Err(Refusal::Malformed("more than one Host header"));
    }
    if request.version == Version::HTTP_11 && !is_named {
        return Err(Refusal::Malformed("no Host header"));
    }
    Ok(())
}

/// `chunked`, once, and no Content-Length.
fn check_encoding(
    headers: &HeaderMap,
    raw: impl FnOnce() -> Option<bytes::Bytes>,
) -> Result<(), Refusal> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let chunked = encodings
        .next()
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"chunked"));
    let has_length = match raw() {
        Some(raw) => raw.split(|b| *b == b'\n').any(|line| {
            line.get(..15)
                .is_some_and(|name| name.eq_ignore_ascii_case(b"content-length:"))
        }),
        // Nothing was received, so nothing was dropped: a request that is only explained.
        None => headers.contains_key(CONTENT_LENGTH),
    };
    if chunked && encodings.next().is_none() && !has_length {
        Ok(())
    } else {
        Err(Refusal::AmbiguousFraming)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn check_raw(raw: &'static str) -> Result<(), Refusal> {
        let mut headers = HeaderMap::new();
        if raw.to_lowercase().contains("transfer-encoding") {
            headers.insert(TRANSFER_ENCODING, "chunked".parse().unwrap());
        }
        check(&headers, || Some(Bytes::from_static(raw.as_bytes())))
    }

    #[test]
    fn content_length_other_than_one_number_is_refused() {
        let lengths = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CONTENT_LENGTH, value.parse().unwrap());
            }
            check(&headers, || None)
        };
        assert_eq!(lengths(&[]), Ok(()));
        assert_eq!(lengths(&["5"]), Ok(()));
        for bad in [&["5, 5"][..], &["5", "5"], &["+5"], &[""], &["0x5"]] {
            assert_eq!(lengths(bad), Err(Refusal::AmbiguousFraming), "{bad:?}");
        }
    }

    #[test]
    fn content_length_with_transfer_encoding_is_refused() {
        let both = "POST / HTTP/1.1\r\nCONTENT-length: 5\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(check_raw(both), Err(Refusal::AmbiguousFraming));
        let chunked =
            "POST / HTTP/1.1\r\nX-Content-Length: 5\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(check_raw(chunked), Ok(()));
        assert_eq!(
            check_raw("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n"),
            Ok(())
        );
        let mut headers = HeaderMap::new();
        headers.insert(TRANSFER_ENCODING, "chunked".parse().unwrap());
        assert_eq!(check(&headers, || None), Ok(()));
        headers.insert(CONTENT_LENGTH, "5".parse().unwrap());
        assert_eq!(check(&headers, || None), Err(Refusal::AmbiguousFraming));
    }
}
