//! The path that everything is matched by: decoded once, duplicate slashes collapsed. What an upstream might read differently
//! is refused before anything matches.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::error::Refusal;

/// Deeper nesting of escapes than this is no dot segment that anybody could resolve.
const DECODINGS: usize = 4;

/// `raw` is the path as received, without its query.
pub fn normalise(raw: &str) -> Result<Cow<'_, str>, Refusal> {
    if !raw.starts_with('/') {
        return Err(Refusal::UnsafePath("the path does not start with a slash"));
    }
    if is_plain(raw) {
        return Ok(Cow::Borrowed(raw));
    }
    let decoded = percent_decode_str(raw).decode_utf8_lossy();
    if decoded.contains('\\') {
        return Err(Refusal::UnsafePath("backslash in the path"));
    }
    if decoded.bytes().any(|b| b.is_ascii_control()) {
        return Err(Refusal::UnsafePath("control character in the path"));
    }
    if has_dot_segment(&decoded) {
        return Err(Refusal::UnsafePath("dot segment in the path"));
    }
    Ok(collapse_slashes(decoded))
}

/// Nothing to decode, collapse or refuse: nearly every path.
fn is_plain(raw: &str) -> bool {
    let bytes = raw.as_bytes();
    bytes
        .iter()
        .all(|b| !matches!(b, b'%' | b'\\' | 0x7f) && *b >= 0x20)
        && bytes
            .windows(2)
            .all(|pair| pair[0] != b'/' || !matches!(pair[1], b'/' | b'.'))
}

/// Also behind further levels of encoding, and with path parameters (`..;x`), which some servers strip.
fn has_dot_segment(decoded: &str) -> bool {
    let mut text = Cow::Borrowed(decoded);
    for _ in 0..DECODINGS {
        let found = text.split(['/', '\\']).any(|segment| {
            let name = segment.split(';').next().unwrap_or_default();
            name == "." || name == ".."
        });
        if found {
            return true;
        }
        let again = percent_decode_str(&text).decode_utf8_lossy().into_owned();
        if again == *text {
            return false;
        }
        text = Cow::Owned(again);
    }
    true
}

fn collapse_slashes(path: Cow<'_, str>) -> Cow<'_, str> {
    if !path.contains("//") {
        return path;
    }
    let mut out = String::with_capacity(path.len());
    for character in path.chars() {
        if character != '/' || !out.ends_with('/') {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_matched() {
        for (raw, matched) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/svc//admin///x", "/svc/admin/x"),
            ("/svc/%61dmin", "/svc/admin"),
            ("/svc/admin%2fx", "/svc/admin/x"),
            ("/@scope%2fpkg", "/@scope/pkg"),
            ("/.well-known/jwks.json", "/.well-known/jwks.json"),
            ("/a/..b/c..", "/a/..b/c.."),
            ("/...", "/..."),
            ("/100%", "/100%"),
            ("/%zz", "/%zz"),
            ("/%2561", "/%61"),
            ("/caf%C3%A9", "/café"),
        ] {
            assert_eq!(normalise(raw).unwrap(), matched, "{raw}");
        }
        assert!(matches!(
            normalise("/plain/path").unwrap(),
            Cow::Borrowed(_)
        ));
    }

    #[test]
    fn what_no_honest_client_sends() {
        for raw in [
            "",
            "*",
            "x",
            "http://h/p",
            "/..",
            "/.",
            "/a/../b",
            "/a/./b",
            "/a/..",
            "/a/%2e%2e/b",
            "/a/.%2E/b",
            "/a%2f..%2fb",
            "/a/%252e%252e/b",
            "/a/%25252e%25252e/b",
            "/..;x/a",
            "/a\\b",
            "/a%5cb",
            "/a%5c..%5cb",
            "/a%00",
            "/a%0d%0ab",
            "/a%7f",
            "/a\tb",
            "/%2525252525252e",
            "/..%252fx",
        ] {
            let refusal = normalise(raw).unwrap_err();
            assert_eq!(refusal.status(), 400, "{raw}");
        }
    }
}
