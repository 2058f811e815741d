//! From the received path to the forwarded one. Rules are matched against the decoded path; the
//! upstream gets the caller's own bytes.

use crate::error::Refusal;

const SPLIT: Refusal = Refusal::UnsafePath("encoded slash where the path is cut");

#[derive(Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// For the upstream: as received, except for the part that was cut off or replaced.
    pub path: String,
    /// The same, decoded, for rules to be matched against.
    pub decoded: String,
}

/// Removes `prefix` from the beginning of both paths. An empty rest becomes `/`.
pub fn strip(received: &str, decoded: &str, prefix: &str) -> Result<Rewritten, Refusal> {
    let rest = &received[cut(received, prefix.len())?..];
    if !rest.is_empty() && !rest.starts_with('/') {
        return Err(SPLIT);
    }
    let or_root = |path: &str| {
        if path.is_empty() {
            "/".to_owned()
        } else {
            path.to_owned()
        }
    };
    Ok(Rewritten {
        path: or_root(rest),
        decoded: or_root(&decoded[prefix.len()..]),
    })
}

/// Replaces `from` by `to`, if the path begins with `from`.
pub fn replace(path: Rewritten, from: &str, to: &str) -> Result<Rewritten, Refusal> {
    let Some(decoded_rest) = path.decoded.strip_prefix(from) else {
        return Ok(path);
    };
    let rest = &path.path[cut(&path.path, from.len())?..];
    let joined = |rest: &str| {
        let path = format!("{to}{rest}");
        if path.starts_with('/') {
            path
        } else {
            format!("/{path}")
        }
    };
    Ok(Rewritten {
        decoded: joined(decoded_rest),
        path: joined(rest),
    })
}

/// Where in `received` the first `length` bytes of its decoded form end. A run of slashes counts
/// as one, as in the path that is matched.
fn cut(received: &str, length: usize) -> Result<usize, Refusal> {
    let bytes = received.as_bytes();
    let (mut at, mut decoded) = (0, 0);
    let mut after_slash = false;
    while decoded < length {
        let (byte, width) = match bytes.get(at..) {
            Some([b'%', high, low, ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 3),
                _ => (b'%', 1),
            },
            Some([byte, ..]) => (*byte, 1),
            _ => return Err(SPLIT),
        };
        if byte == b'/' && width == 3 {
            return Err(SPLIT);
        }
        at += width;
        if byte == b'/' && after_slash {
            continue;
        }
        after_slash = byte == b'/';
        decoded += 1;
    }
    Ok(at)
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use percent_encoding::percent_decode_str;

    fn decode(path: &str) -> String {
        let mut decoded = percent_decode_str(path).decode_utf8_lossy().into_owned();
        while decoded.contains("//") {
            decoded = decoded.replace("//", "/");
        }
        decoded
    }

    fn stripped(received: &str, prefix: &str) -> Result<(String, String), u16> {
        strip(received, &decode(received), prefix)
            .map(|path| (path.path, path.decoded))
            .map_err(|refusal| refusal.status().as_u16())
    }

    #[test]
    fn rest_after_the_prefix_keeps_its_encoding() {
        let both = |a: &str, b: &str| Ok((a.to_owned(), b.to_owned()));
        assert_eq!(stripped("/svc/a%20b", "/svc"), both("/a%20b", "/a b"));
        assert_eq!(stripped("/svc", "/svc"), both("/", "/"));
        assert_eq!(stripped("/svc/", "/svc"), both("/", "/"));
        assert_eq!(
            stripped("/svc/@scope%2fpkg", "/svc"),
            both("/@scope%2fpkg", "/@scope/pkg")
        );
        assert_eq!(stripped("/%73vc/x", "/svc"), both("/x", "/x"));
        assert_eq!(stripped("//svc//x", "/svc"), both("//x", "/x"));
        assert_eq!(stripped("/a//b/c", "/a/b"), both("/c", "/c"));
        assert_eq!(stripped("/any/thing", ""), both("/any/thing", "/any/thing"));
        assert_eq!(stripped("/caf%C3%A9/x", "/café"), both("/x", "/x"));
    }

    #[test]
    fn encoded_slash_at_the_cut_is_refused() {
        assert_eq!(stripped("/svc%2fadmin", "/svc"), Err(400));
        assert_eq!(stripped("/a%2fb/c", "/a/b"), Err(400));
        assert_eq!(stripped("%2fsvc/x", "/svc"), Err(400));
    }

    #[test]
    fn replacement_keeps_the_encoding_of_the_rest() {
        let path = |received: &str| strip(received, &decode(received), "").unwrap();
        let replaced =
            |received: &str, from: &str, to: &str| replace(path(received), from, to).unwrap();
        assert_eq!(
            replaced("/v1/a%20b", "/v1", "/api/v2").path,
            "/api/v2/a%20b"
        );
        assert_eq!(
            replaced("/v1/a%20b", "/v1", "/api/v2").decoded,
            "/api/v2/a b"
        );
        assert_eq!(replaced("/v10", "/v1", "/x").path, "/x0");
        assert_eq!(replaced("/other", "/v1", "/x").path, "/other");
        assert_eq!(replaced("/v1", "/v1", "").path, "/");
        assert!(replace(path("/v1%2fx"), "/v1/", "/y/").is_err());
    }
}
