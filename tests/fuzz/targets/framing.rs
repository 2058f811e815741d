//! Input: the head of a request, as bytes. It is parsed as Pingora parses it. If it is accepted, no
//! reader finds another length in the bytes: not one that ignores white space, nor one that takes
//! the first or the last of two headers.
#![no_main]

use ati::filters::framing;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;

/// The headers as Pingora gives them to its hooks, and the bytes that it read for them.
fn parsed(data: &[u8]) -> Option<(HeaderMap, &[u8])> {
    let mut places = [httparse::EMPTY_HEADER; 256];
    let mut request = httparse::Request::new(&mut places);
    let httparse::Status::Complete(end) = request.parse(data).ok()? else {
        return None;
    };
    let mut headers = HeaderMap::new();
    for header in request.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_bytes(header.value).ok()?);
    }
    // Pingora lets the Transfer-Encoding win.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    Some((headers, &data[..end]))
}

/// All values of a header, for a reader who takes white space as it likes.
fn values(raw: &[u8], name: &str) -> Vec<String> {
    let lines = raw.split(|byte| matches!(byte, b'\n' | b'\r')).skip(1);
    lines
        .filter_map(|line| {
            let line = String::from_utf8_lossy(line).to_ascii_lowercase();
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
        .collect()
}

fuzz_target!(|data: &[u8]| {
    let Some((headers, raw)) = parsed(data) else {
        return;
    };
    let mut asked = false;
    let verdict = framing::check(&headers, || {
        asked = true;
        Some(Bytes::copy_from_slice(raw))
    });
    assert!(asked || !headers.contains_key(TRANSFER_ENCODING));
    if verdict.is_err() {
        return;
    }
    let raw = raw.trim_ascii_start();
    let lengths = values(raw, "content-length");
    let encodings = values(raw, "transfer-encoding");
    match (&lengths[..], &encodings[..]) {
        ([], []) => {}
        ([length], []) => {
            let digits = length.bytes().all(|byte| byte.is_ascii_digit());
            assert!(digits && !length.is_empty(), "{length:?}");
        }
        ([], [encoding]) => assert_eq!(encoding, "chunked"),
        _ => panic!("lengths {lengths:?}, encodings {encodings:?}"),
    }
});
