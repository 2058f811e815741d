//! Request targets that are a whole URL (RFC 9112, 3.2.2). They count as the path and query that
//! they name, and their authority counts as `Host`.

use crate::error::Refusal;

#[derive(Debug, PartialEq, Eq)]
pub struct Absolute {
    pub authority: Vec<u8>,
    /// Begins with a slash.
    pub path_and_query: Vec<u8>,
}

/// The parts of a target in absolute form. None where it is a path, or the `*` of OPTIONS. Pingora
/// takes every other target for the path `/`: those are refused.
pub fn absolute(target: &[u8]) -> Result<Option<Absolute>, Refusal> {
    if target.starts_with(b"/") || target == b"*" {
        return Ok(None);
    }
    let rest = ["http://", "https://"].iter().find_map(|scheme| {
        let (begin, rest) = target.split_at_checked(scheme.len())?;
        begin
            .eq_ignore_ascii_case(scheme.as_bytes())
            .then_some(rest)
    });
    let rest = rest.ok_or(Refusal::UnknownTarget)?;
    // A fragment is no part of a target.
    let rest = rest.split(|byte| *byte == b'#').next().unwrap_or_default();
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?'));
    let (authority, path) = rest.split_at(end.unwrap_or(rest.len()));
    // User info is no part of a host. Pingora refuses it as well.
    if authority.is_empty() || authority.contains(&b'@') {
        return Err(Refusal::UnknownTarget);
    }
    let slash: &[u8] = if path.starts_with(b"/") { b"" } else { b"/" };
    Ok(Some(Absolute {
        authority: authority.to_vec(),
        path_and_query: [slash, path].concat(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(target: &str) -> (String, String) {
        let found = absolute(target.as_bytes()).unwrap().unwrap();
        (
            String::from_utf8(found.authority).unwrap(),
            String::from_utf8(found.path_and_query).unwrap(),
        )
    }

    #[test]
    fn absolute_target_is_taken_apart_at_the_end_of_its_authority() {
        for (target, authority, path) in [
            ("http://api.host/a/b?c=d", "api.host", "/a/b?c=d"),
            ("HTTPS://api.host:8443/", "api.host:8443", "/"),
            ("http://api.host", "api.host", "/"),
            ("http://api.host?q=/x", "api.host", "/?q=/x"),
            ("http://[::1]:80//a", "[::1]:80", "//a"),
            ("http://a/http://b/c", "a", "/http://b/c"),
            ("http://a#b/c", "a", "/"),
            ("http://a/b#c?d", "a", "/b"),
        ] {
            let expected = (authority.to_owned(), path.to_owned());
            assert_eq!(parts(target), expected, "{target}");
        }
    }

    #[test]
    fn path_is_no_absolute_target() {
        for target in ["/", "/a?b", "//host/a", "/http://a/b", "*"] {
            assert_eq!(absolute(target.as_bytes()), Ok(None), "{target}");
        }
    }

    #[test]
    fn target_that_is_neither_path_nor_http_url_is_refused() {
        for target in [
            "",
            "?q",
            "a/b",
            "host:80",
            "http:/a",
            "http:///a",
            "http://",
            "http://user@host/",
            "http://user:password@host/",
            "ftp://host/a",
            "**",
        ] {
            let refused = Err(Refusal::UnknownTarget);
            assert_eq!(absolute(target.as_bytes()), refused, "{target}");
        }
    }
}
