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
    // Overlong forms of a dot or a slash are no UTF-8, and lax servers decode them.
    let Ok(decoded) = percent_decode_str(raw).decode_utf8() else {
        return Err(Refusal::UnsafePath("the path is not UTF-8"));
    };
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

/// The path as the laxest server might read it: backslashes count as slashes, `;x` is cut off every
/// segment, and slashes that meet then are one.
pub fn without_parameters(path: &str) -> String {
    let mut bare = String::with_capacity(path.len());
    for segment in path.split(['/', '\\']) {
        let name = segment.split(';').next().unwrap_or_default();
        if !name.is_empty() {
            bare.push('/');
            bare.push_str(name);
        }
    }
    if bare.is_empty() || path.ends_with('/') {
        bare.push('/');
    }
    bare
}

/// The path decoded once more, for servers that decode twice. None where that changes nothing.
pub fn decoded_again(path: &str) -> Option<String> {
    if !path.contains('%') {
        return None;
    }
    let again = percent_decode_str(path).decode_utf8_lossy();
    (again != path).then(|| again.into_owned())
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
    fn lax_reading_cuts_parameters_and_collapses_slashes() {
        for (path, reading) in [
            ("/", "/"),
            ("/;x", "/"),
            ("/;x/admin", "/admin"),
            ("/;/;a=1/admin;b/x/", "/admin/x/"),
            ("/a\\admin", "/a/admin"),
        ] {
            assert_eq!(without_parameters(path), reading, "{path}");
        }
        assert_eq!(decoded_again("/%61dmin").unwrap(), "/admin");
        assert_eq!(decoded_again("/100%"), None);
        assert_eq!(decoded_again("/a"), None);
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
            "/%c0%ae%c0%ae/admin",
            "/a%ff",
            "/a%c3",
        ] {
            let refusal = normalise(raw).unwrap_err();
            assert_eq!(refusal.status(), 400, "{raw}");
        }
    }
}
