//! JSON from untrusted sources. A text of a few megabytes can stand for gigabytes of parsed
//! values, so the values are counted before the text is parsed.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read};

use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

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

/// The members of an object in the order of the text, each value as it is written there.
pub struct Members<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

/// Whether the text is one JSON value, in UTF-8 and not nested too deep.
pub fn is_valid(text: impl Read) -> bool {
    let text = BufReader::new(CheckedText::new(text));
    serde_json::from_reader::<_, serde::de::IgnoredAny>(text).is_ok()
}

/// Levels of nesting in a [`CheckedText`]. serde_json remembers every open bracket of a value that
/// it skips, so a text of brackets alone would take as much memory as it is long.
const DEEPEST: usize = 10_000;

/// A reader of JSON text that fails where the text is no UTF-8 or is nested too deep.
pub struct CheckedText<R> {
    text: R,
    depth: usize,
    quoted: bool,
    escaped: bool,
    /// The beginning of a character whose last bytes are still to come.
    partial: Vec<u8>,
}

impl<R> CheckedText<R> {
    pub fn new(text: R) -> Self {
        CheckedText {
            text,
            depth: 0,
            quoted: false,
            escaped: false,
            partial: Vec::new(),
        }
    }

    fn check_depth(&mut self, piece: &[u8]) -> io::Result<()> {
        for byte in piece {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.quoted => self.escaped = true,
                b'"' => self.quoted = !self.quoted,
                b'[' | b'{' if !self.quoted => self.depth += 1,
                b']' | b'}' if !self.quoted => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            if self.depth > DEEPEST {
                return Err(io::Error::other("it is nested too deep"));
            }
        }
        Ok(())
    }

    fn check_characters(&mut self, piece: &[u8]) -> io::Result<()> {
        let no_utf8 = || io::Error::other("it is not UTF-8");
        if piece.is_empty() && !self.partial.is_empty() {
            return Err(no_utf8());
        }
        let mut text = std::mem::take(&mut self.partial);
        text.extend_from_slice(piece);
        match std::str::from_utf8(&text) {
            Ok(_) => Ok(()),
            Err(e) if e.error_len().is_none() => {
                self.partial = text.split_off(e.valid_up_to());
                Ok(())
            }
            Err(_) => Err(no_utf8()),
        }
    }
}

impl<R: Read> Read for CheckedText<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.text.read(buffer)?;
        self.check_depth(&buffer[..read])?;
        self.check_characters(&buffer[..read])?;
        Ok(read)
    }
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

/// Looks for integers of more than 64 bits, piece by piece: parsed, they lose digits.
#[derive(Default)]
pub struct LongIntegers {
    found: bool,
    quoted: bool,
    escaped: bool,
    /// The number that is being read.
    number: Option<Digits>,
}

#[derive(Default)]
struct Digits {
    is_negative: bool,
    is_integer: bool,
    /// Saturates.
    magnitude: u128,
}

impl Digits {
    fn push(&mut self, byte: u8) {
        match byte {
            b'0'..=b'9' => {
                let shifted = self.magnitude.saturating_mul(10);
                self.magnitude = shifted.saturating_add(u128::from(byte - b'0'));
            }
            _ => self.is_integer = false,
        }
    }

    fn is_long_integer(&self) -> bool {
        let most = if self.is_negative {
            u128::from(i64::MIN.unsigned_abs())
        } else {
            u128::from(u64::MAX)
        };
        self.is_integer && self.magnitude > most
    }
}

impl LongIntegers {
    pub fn are_in(text: &str) -> bool {
        let mut search = LongIntegers::default();
        search.push(text.as_bytes());
        search.end()
    }

    /// From a reader, which is read to its end.
    pub fn are_in_all_of(mut text: impl Read) -> io::Result<bool> {
        let mut search = LongIntegers::default();
        let mut piece = vec![0; 64 << 10];
        loop {
            match text.read(&mut piece)? {
                0 => return Ok(search.end()),
                read => search.push(&piece[..read]),
            }
        }
    }

    fn push(&mut self, piece: &[u8]) {
        for byte in piece {
            if self.quoted {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.quoted = false,
                    _ => {}
                }
                continue;
            }
            match (byte, &mut self.number) {
                (b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E', Some(number)) => {
                    number.push(*byte);
                }
                (b'0'..=b'9' | b'-', None) => {
                    let mut number = Digits {
                        is_negative: *byte == b'-',
                        is_integer: true,
                        magnitude: 0,
                    };
                    if *byte != b'-' {
                        number.push(*byte);
                    }
                    self.number = Some(number);
                }
                _ => {
                    self.end_number();
                    self.quoted = *byte == b'"';
                }
            }
        }
    }

    fn end_number(&mut self) {
        let number = self.number.take();
        self.found |= number.is_some_and(|number| number.is_long_integer());
    }

    fn end(mut self) -> bool {
        self.end_number();
        self.found
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

    #[test]
    fn long_integers_are_found_outside_of_strings_only() {
        for (text, found) in [
            ("18446744073709551616", true),
            ("-9223372036854775809", true),
            (r#"{"a\"": [1, "x", 18446744073709551616]}"#, true),
            ("18446744073709551615", false),
            ("-9223372036854775808", false),
            ("18446744073709551616e1", false),
            ("18446744073709551616.0", false),
            (
                r#"{"1\\18446744073709551616": "18446744073709551616"}"#,
                false,
            ),
        ] {
            assert_eq!(LongIntegers::are_in(text), found, "{text}");
            let slowly = LongIntegers::are_in_all_of(Slow(text.as_bytes()));
            assert_eq!(slowly.unwrap(), found, "{text}");
        }
    }

    /// Reads one byte at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let end = buffer.len().min(1);
            self.0.read(&mut buffer[..end])
        }
    }

    #[test]
    fn text_that_is_no_utf8_or_too_deep_is_not_valid() {
        for (text, valid) in [
            ("\"\u{e4}\u{1f600}\"".as_bytes().to_vec(), true),
            (b"\"\xff\"".to_vec(), false),
            (b"\"\xc3".to_vec(), false),
            (b"\"[[[[\\\"[[[\"".to_vec(), true),
            ([vec![b'['; 9_000], vec![b']'; 9_000]].concat(), true),
            ([vec![b'['; 11_000], vec![b']'; 11_000]].concat(), false),
        ] {
            assert_eq!(is_valid(&text[..]), valid);
            assert_eq!(is_valid(Slow(&text)), valid);
        }
    }
}
