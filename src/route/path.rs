//! The path that routes and rules are matched against: decoded once, duplicate slashes collapsed.
//! A path that an upstream might read differently is refused before anything is matched.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::error::Refusal;

/// How many levels of percent-encoding are looked through for dot segments. A path with more is
/// refused.
const MAX_DECODINGS: usize = 4;

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

/// Fast path: nothing to decode, collapse or refuse. Nearly every path is so.
fn is_plain(raw: &str) -> bool {
    let bytes = raw.as_bytes();
    bytes
        .iter()
        .all(|b| !matches!(b, b'%' | b'\\' | 0x7f) && *b >= 0x20)
        && bytes
            .windows(2)
            .all(|pair| pair[0] != b'/' || !matches!(pair[1], b'/' | b'.'))
}

/// Also finds them behind further levels of encoding, and with path parameters (`..;x`), which
/// some servers strip.
fn has_dot_segment(decoded: &str) -> bool {
    let mut text = Cow::Borrowed(decoded);
    for _ in 0..MAX_DECODINGS {
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
    fn path_is_decoded_once_and_its_slashes_collapsed() {
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
    fn path_with_dot_segment_backslash_or_control_is_refused() {
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
