//! A caller's query next to a credential that belongs in the query.

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// The name of an encoded pair `name=value`, still encoded.
pub fn name(pair: &[u8]) -> &[u8] {
    let end = pair.iter().position(|byte| *byte == b'=');
    &pair[..end.unwrap_or(pair.len())]
}

/// The query without the parameters that a server may read under this encoded name: encoded in
/// another way, in another case, or behind a `;`, which some servers take for `&`. The rest keeps
/// its bytes.
pub fn without<'q>(query: &'q str, name: &[u8]) -> Cow<'q, str> {
    let own = decoded(name);
    let is_own = |part: &str| decoded(self::name(part.as_bytes())).eq_ignore_ascii_case(&own);
    if !query.split(['&', ';']).any(is_own) {
        return Cow::Borrowed(query);
    }
    let mut rest = String::with_capacity(query.len());
    for part in query.split_inclusive(['&', ';']) {
        if !is_own(part.trim_end_matches(['&', ';'])) {
            rest.push_str(part);
        }
    }
    rest.truncate(rest.trim_end_matches(['&', ';']).len());
    Cow::Owned(rest)
}

/// A query with the credential of this encoded pair, in place of any parameter that a server may
/// read under its name: a redirect of the upstream may have kept it, and a caller may have sent
/// one.
pub fn with_credential(query: &str, pair: &str) -> String {
    match without(query, name(pair.as_bytes())) {
        rest if rest.is_empty() => pair.to_owned(),
        rest => format!("{rest}&{pair}"),
    }
}

/// As a form is decoded: `+` is a space.
fn decoded(text: &[u8]) -> Vec<u8> {
    let spaced: Vec<u8> = text
        .iter()
        .map(|byte| if *byte == b'+' { b' ' } else { *byte })
        .collect();
    percent_decode(&spaced).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_copy_of_the_credential_is_removed_in_every_spelling() {
        for (query, rest) in [
            ("", ""),
            ("a=1&b=2", "a=1&b=2"),
            ("api_key=x", ""),
            ("api_key", ""),
            ("a=1&api_key=x&b=2", "a=1&b=2"),
            ("api%5Fkey=x&a=%20", "a=%20"),
            ("API_KEY=x&Api%5fKey=y&a", "a"),
            ("a=1;api_key=x", "a=1"),
            ("my_api_key=x&api_key2=y", "my_api_key=x&api_key2=y"),
            ("a=api_key", "a=api_key"),
        ] {
            assert_eq!(without(query, b"api_key"), rest, "{query}");
        }
        assert_eq!(without("a+key=1&a%20key=2&b", b"a%20key"), "b");
    }

    #[test]
    fn name_ends_at_the_first_equals_sign() {
        assert_eq!(name(b"k=v=w"), b"k");
        assert_eq!(name(b"k"), b"k");
    }
}
