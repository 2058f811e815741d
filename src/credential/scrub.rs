//! Finding what we attached in what comes back. Upstreams quote keys in their errors, and some repeat whole requests.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;
use percent_encoding::percent_encode;
use url::form_urlencoded;
use zeroize::Zeroizing;

use super::UNRESERVED;
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
        // Whatever is read line by line repeats a secret of several lines line by line.
        let with_lines = |value: &'a [u8]| {
            let lines = value.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
            std::iter::once(value).chain(lines.filter(move |line| line.len() < value.len()))
        };
        for value in values
            .flat_map(with_lines)
            .filter(|value| value.len() >= SHORTEST)
        {
            for form in spellings(value) {
                if form.len() >= SHORTEST && !forms.contains(&form) {
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

/// How a value may come back: as it is, in a URL or a form, in base64 with whatever stands before it, and in JSON as one library or another
/// writes it.
fn spellings(value: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let text = String::from_utf8_lossy(value);
    let percent = percent_encode(value, UNRESERVED).to_string();
    let form: String = form_urlencoded::byte_serialize(value).collect();
    let quoted = Zeroizing::new(serde_json::to_string(&text).unwrap_or_default());
    let quoted = quoted.trim_matches('"');
    let mut all = vec![
        value.to_vec(),
        quoted.as_bytes().to_vec(),
        quoted.replace('/', "\\/").into_bytes(),
        lower_hex(&percent).into_bytes(),
        percent.into_bytes(),
        lower_hex(&form).into_bytes(),
        form.into_bytes(),
    ];
    for upper in [true, false] {
        for cautious in [true, false] {
            all.push(escaped(&text, upper, cautious).into_bytes());
        }
    }
    // Three bytes become four characters: what is in front decides where they fall. The characters at the seams depend on the neighbours.
    for before in 0..3 {
        let padded = Zeroizing::new([&vec![0; before][..], value].concat());
        let encoded = Zeroizing::new(STANDARD.encode(&*padded));
        let begin = [0, 2, 3][before];
        let end = padded.len() * 8 / 6;
        all.push(encoded.as_bytes()[begin..end].to_vec());
    }
    all.into_iter().map(Zeroizing::new).collect()
}

/// `%2F` as `%2f`.
fn lower_hex(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut hex = 0;
    for c in text.chars() {
        match c {
            '%' => hex = 2,
            _ if hex > 0 => {
                hex -= 1;
                out.push(c.to_ascii_lowercase());
                continue;
            }
            _ => {}
        }
        out.push(c);
    }
    out
}

/// JSON in ASCII; the cautious also escape what means something in HTML.
fn escaped(text: &str, upper: bool, cautious: bool) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        let risky = matches!(c, '"' | '&' | '\'' | '+' | '<' | '>' | '`');
        match c {
            '\\' => out.push_str("\\\\"),
            '"' if !cautious => out.push_str("\\\""),
            c if !c.is_ascii() || c.is_control() || (cautious && risky) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out += &match upper {
                        true => format!("\\u{unit:04X}"),
                        false => format!("\\u{unit:04x}"),
                    };
                }
            }
            c => out.push(c),
        }
    }
    out
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
        let key = "sk-\"q\"/1+2&ü 345";
        for form in [
            key,
            r#"sk-\"q\"/1+2&ü 345"#,
            r#"sk-\"q\"\/1+2&ü 345"#,
            r#"sk-\u0022q\u0022/1\u002B2\u0026\u00FC 345"#,
            r#"sk-\u0022q\u0022/1\u002b2\u0026\u00fc 345"#,
            r#"sk-\"q\"/1+2&\u00fc 345"#,
            "sk-%22q%22%2F1%2B2%26%C3%BC%20345",
            "sk-%22q%22%2f1%2b2%26%c3%bc%20345",
            "sk-%22q%22%2F1%2B2%26%C3%BC+345",
        ] {
            let text = format!("a {form} b {form}");
            assert_eq!(scrub(&[key], &text), "a [REDACTED] b [REDACTED]", "{form}");
        }
        for before in ["", "u", "us", "user:", "some-user:"] {
            for after in ["", ":", ":x", " and more"] {
                let text = STANDARD.encode(format!("{before}{key}{after}"));
                let left = scrub(&[key], &text);
                assert!(left.contains("[REDACTED]"), "{before} {after}: {left}");
                assert!(left.len() < 60, "{left}");
            }
        }
        assert_eq!(scrub(&["a long secret"], "nothing here"), "nothing here");
        assert_eq!(scrub(&["short"], "short words stay"), "short words stay");
        assert_eq!(scrub(&[], "x"), "x");
    }
}
