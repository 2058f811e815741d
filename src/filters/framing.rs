//! Requests whose end could be told in two ways. Pingora drops Content-Length beside Transfer-Encoding before any hook runs,
//! so this looks at the bytes that came.

use http::HeaderMap;
use http::header::TRANSFER_ENCODING;

use crate::error::Refusal;

/// `raw` is the header section as received; only asked for where there is a Transfer-Encoding.
pub fn check(
    headers: &HeaderMap,
    raw: impl FnOnce() -> Option<bytes::Bytes>,
) -> Result<(), Refusal> {
    if !headers.contains_key(TRANSFER_ENCODING) {
        return Ok(());
    }
    let has_length = raw().is_some_and(|raw| {
        raw.split(|b| *b == b'\n').any(|line| {
            line.get(..15)
                .is_some_and(|name| name.eq_ignore_ascii_case(b"content-length:"))
        })
    });
    if has_length {
        Err(Refusal::AmbiguousFraming)
    } else {
        Ok(())
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
    fn both_lengths_are_refused() {
        let both = "POST / HTTP/1.1\r\nCONTENT-length: 5\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(check_raw(both), Err(Refusal::AmbiguousFraming));
        let chunked =
            "POST / HTTP/1.1\r\nX-Content-Length: 5\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(check_raw(chunked), Ok(()));
        assert_eq!(
            check_raw("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n"),
            Ok(())
        );
    }
}
