//! Parses a JSON object of strings. Its values are copied from the text straight to locked memory.
//!
//! serde_json only finds where the values are. Its own string decoding would leave them in a heap
//! buffer that is never wiped.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::locked::Locked;
use super::secret::Secret;

/// Why a text is not a keyring. No message quotes the text.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Malformed {
    #[error("not a JSON object of strings (line {line}, column {column})")]
    Json { line: usize, column: usize },
    #[error("the value of '{0}' is not a string")]
    NotAString(String),
    #[error("the value of '{0}' is not valid text")]
    BadEscape(String),
    #[error("no memory for it")]
    Memory,
}

pub fn parse(text: &[u8]) -> Result<BTreeMap<String, Secret>, Malformed> {
    let raw: BTreeMap<String, &RawValue> =
        serde_json::from_slice(text).map_err(|e| Malformed::Json {
            line: e.line(),
            column: e.column(),
        })?;
    // An escaped text is never shorter than its value, so the values fit.
    let mut pages = Locked::with_capacity(text.len()).map_err(|_| Malformed::Memory)?;
    let mut ranges = Vec::with_capacity(raw.len());
    for (name, value) in raw {
        let quoted = value.get();
        let Some(inner) = quoted
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
        else {
            return Err(Malformed::NotAString(name));
        };
        let start = pages.as_slice().len();
        if unescape(inner, &mut pages).is_none() {
            return Err(Malformed::BadEscape(name));
        }
        ranges.push((name, start..pages.as_slice().len()));
    }
    let pages = Arc::new(pages);
    Ok(ranges
        .into_iter()
        .map(|(name, range)| (name, Secret::within(pages.clone(), range)))
        .collect())
}

/// Appends the value of the inside of a JSON string literal.
fn unescape(mut text: &str, out: &mut Locked) -> Option<()> {
    while let Some(at) = text.find('\\') {
        out.push(&text.as_bytes()[..at]).ok()?;
        let escape = *text.as_bytes().get(at + 1)?;
        text = text.get(at + 2..)?;
        let plain: &[u8] = match escape {
            b'"' => b"\"",
            b'\\' => b"\\",
            b'/' => b"/",
            b'b' => b"\x08",
            b'f' => b"\x0c",
            b'n' => b"\n",
            b'r' => b"\r",
            b't' => b"\t",
            b'u' => {
                let (character, rest) = unicode(text)?;
                out.push(character.encode_utf8(&mut [0; 4]).as_bytes())
                    .ok()?;
                text = rest;
                continue;
            }
            _ => return None,
        };
        out.push(plain).ok()?;
    }
    out.push(text.as_bytes()).ok().map(drop)
}

/// The character of the hexadecimal digits after `\u`. Where they are the first half of a surrogate
/// pair, a second escape follows.
fn unicode(text: &str) -> Option<(char, &str)> {
    let unit = |text: &str| u32::from_str_radix(text.get(..4)?, 16).ok();
    let first = unit(text)?;
    let rest = &text[4..];
    if let Some(character) = char::from_u32(first) {
        return Some((character, rest));
    }
    let second_text = rest.strip_prefix("\\u")?;
    let second = unit(second_text)?;
    if !(0xD800..0xDC00).contains(&first) || !(0xDC00..0xE000).contains(&second) {
        return None;
    }
    let character = char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))?;
    Some((character, &second_text[4..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_equals_the_one_that_serde_json_reads() {
        let long = "x".repeat(5000);
        for value in [
            "",
            "plain",
            "a\"b\\c/\n\r\t\u{8}\u{c}",
            "é𝄞\u{0}",
            long.as_str(),
        ] {
            for ascii in [false, true] {
                let mut text = serde_json::json!({"name": value}).to_string();
                if ascii {
                    text = to_ascii(&text);
                }
                let parsed = parse(text.as_bytes()).unwrap();
                assert_eq!(parsed["name"].expose(), value.as_bytes(), "{text}");
            }
        }
    }

    fn to_ascii(text: &str) -> String {
        text.chars()
            .map(|c| match c {
                c if c.is_ascii() => c.to_string(),
                c => c
                    .encode_utf16(&mut [0; 2])
                    .iter()
                    .map(|unit| format!("\\u{unit:04x}"))
                    .collect(),
            })
            .collect()
    }

    #[test]
    fn malformed_keyring_is_refused_without_quoting_it() {
        for bad in [
            r#""s3cret""#,
            r#"["s3cret"]"#,
            r#"{"k": "s3cret"#,
            r#"{"k": ["s3cret"]}"#,
            r#"{"k": "s3cret\ud800"}"#,
            r#"{"k": 5}"#,
            "",
        ] {
            let error = parse(bad.as_bytes()).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{bad}");
        }
    }
}
