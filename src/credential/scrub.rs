//! Finding what we attached in what comes back. Upstreams quote keys in their errors, and some repeat whole requests.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;
use percent_encoding::percent_encode;
use zeroize::Zeroizing;

use super::QUERY;
use crate::keyring::Secret;

/// Shorter values can't be told from ordinary words.
const SHORTEST: usize = 8;
const INSTEAD: &[u8] = b"[REDACTED]";

/// Each value in each form in which it may turn up, on one locked page.
#[derive(Default)]
pub struct Needles(Option<(Secret, Vec<Range<usize>>)>);

impl Needles {
    pub fn new<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut forms: Vec<Zeroizing<Vec<u8>>> = Vec::new();
        for value in values.filter(|value| value.len() >= SHORTEST) {
            let with_colon = Zeroizing::new([value, b":"].concat());
            let text = String::from_utf8_lossy(value);
            let quoted = Zeroizing::new(serde_json::to_string(&text).unwrap_or_default());
            for form in [
                value.to_vec(),
                quoted.trim_matches('"').as_bytes().to_vec(),
                percent_encode(value, QUERY).to_string().into_bytes(),
                STANDARD.encode(value).into_bytes(),
                STANDARD.encode(&*with_colon).into_bytes(),
            ] {
                let form = Zeroizing::new(form);
                if !forms.contains(&form) {
                    forms.push(form);
                }
            }
        }
        // The longest first, so that none leaves the rest of another behind.
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        let parts: Vec<&[u8]> = forms.iter().map(|form| form.as_slice()).collect();
        let mut end = 0;
        let ranges = parts
            .iter()
            .map(|part| {
                let start = end;
                end += part.len();
                start..end
            })
            .collect();
        Needles(
            Some(parts)
                .filter(|parts| !parts.is_empty())
                .and_then(|parts| Secret::concat(&parts).ok())
                .map(|secret| (secret, ranges)),
        )
    }

    pub fn remove_from(&self, text: &mut Vec<u8>) {
        let Some((secret, ranges)) = &self.0 else {
            return;
        };
        for range in ranges {
            let needle = &secret.expose()[range.clone()];
            let mut clean = Vec::new();
            let mut rest = 0;
            for at in memmem::find_iter(text, needle) {
                clean.extend_from_slice(&text[rest..at]);
                clean.extend_from_slice(INSTEAD);
                rest = at + needle.len();
            }
            if rest > 0 {
                clean.extend_from_slice(&text[rest..]);
                *text = clean;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrub(values: &[&str], text: &str) -> String {
        let mut text = text.as_bytes().to_vec();
        Needles::new(values.iter().map(|value| value.as_bytes())).remove_from(&mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn every_form_of_a_value_goes_and_the_rest_stays() {
        let key = "sk-\"quoted\"/12345";
        for form in [
            key.to_owned(),
            key.replace('"', "\\\""),
            "sk-%22quoted%22%2F12345".to_owned(),
            STANDARD.encode(key),
            STANDARD.encode(format!("{key}:")),
        ] {
            let text = format!("a {form} b {form}");
            assert_eq!(scrub(&[key], &text), "a [REDACTED] b [REDACTED]", "{form}");
        }
        assert_eq!(scrub(&["a long secret"], "nothing here"), "nothing here");
        assert_eq!(scrub(&["short"], "short words stay"), "short words stay");
        assert_eq!(scrub(&[], "x"), "x");
    }
}
