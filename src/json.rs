//! JSON from untrusted sources. A text of a few megabytes can stand for gigabytes of parsed
//! values, so the values are counted before the text is parsed.

use std::io::{BufRead as _, BufReader, Read};

use serde::de::DeserializeOwned;

/// Why a text wasn't parsed.
#[derive(Debug, thiserror::Error)]
pub enum Unparsed {
    #[error("it has more than {0} values")]
    TooMany(usize),
    #[error("{0}")]
    Malformed(#[from] serde_json::Error),
}

/// Parses the text, unless it has more values than `most`.
pub fn parse<T: DeserializeOwned>(text: &str, most: usize) -> Result<T, Unparsed> {
    if has_more_values_than(text.as_bytes(), most) {
        return Err(Unparsed::TooMany(most));
    }
    Ok(serde_json::from_str(text)?)
}

pub fn has_more_values_than(text: &[u8], most: usize) -> bool {
    // Each value takes a byte at least.
    text.len() > most && count_values(text) > most
}

/// As [`parse`], from a reader that can be opened twice: once to count, once to parse.
pub fn parse_from<T: DeserializeOwned, R: Read>(
    open: impl Fn() -> R,
    most: usize,
) -> Result<T, Unparsed> {
    let mut counter = ValueCounter::default();
    let mut reader = BufReader::new(open());
    loop {
        let piece = reader.fill_buf().map_err(serde_json::Error::io)?;
        if piece.is_empty() {
            break;
        }
        counter.push(piece);
        let read = piece.len();
        reader.consume(read);
        if counter.count() > most {
            return Err(Unparsed::TooMany(most));
        }
    }
    Ok(serde_json::from_reader(BufReader::new(open()))?)
}

/// Whether the text is one JSON value.
pub fn is_valid(text: impl Read) -> bool {
    let text = BufReader::new(text);
    serde_json::from_reader::<_, serde::de::IgnoredAny>(text).is_ok()
}

fn count_values(text: &[u8]) -> usize {
    let mut counter = ValueCounter::default();
    counter.push(text);
    counter.count()
}

/// Counts the values in one pass, piece by piece, without parsing them. Of malformed text it may
/// count too many.
#[derive(Default)]
struct ValueCounter {
    separators: usize,
    quoted: bool,
    escaped: bool,
}

impl ValueCounter {
    fn push(&mut self, piece: &[u8]) {
        for byte in piece {
            if self.quoted {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.quoted = false,
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => self.quoted = true,
                    b',' | b'[' | b'{' => self.separators += 1,
                    _ => {}
                }
            }
        }
    }

    fn count(&self) -> usize {
        self.separators + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn values_outside_of_strings_are_counted() {
        assert_eq!(count_values(br#"{"a": [1, "x,[{\",", {}], "b": 2}"#), 7);
        let quoted = format!(r#"{{"a":["{}\",", 1]}}"#, ",[{".repeat(100_000));
        assert_eq!(count_values(quoted.as_bytes()), 4);
    }

    #[test]
    fn text_with_too_many_values_is_not_parsed() {
        assert!(parse::<Value>("[1,2,3]", 4).is_ok());
        assert!(matches!(
            parse::<Value>("[1,2,3,4]", 4),
            Err(Unparsed::TooMany(4))
        ));
        assert!(matches!(
            parse::<Value>("[1", 4),
            Err(Unparsed::Malformed(_))
        ));
        let bomb = format!("[{}[]]", "[],".repeat(1_000_000));
        assert!(parse::<Value>(&bomb, 100_000).is_err());
    }

    #[test]
    fn reader_is_counted_and_parsed_like_a_text() {
        let text = r#"{"a": [1, "x,[{\",", {}], "b": 2}"#;
        let open = || text.as_bytes();
        let value: Value = parse_from(open, 7).unwrap();
        assert_eq!(value, serde_json::from_str::<Value>(text).unwrap());
        assert!(matches!(
            parse_from::<Value, _>(open, 6),
            Err(Unparsed::TooMany(6))
        ));
        assert!(is_valid(text.as_bytes()));
        assert!(!is_valid(&text.as_bytes()[..10]) && !is_valid(&b"1 2"[..]));
    }
}
