//! JSON text with files in it, scanned while it comes in. The strings of chosen members leave it as
//! decoded base64, the rest is kept as text with `null` in their places. So a text of gigabytes
//! takes as much memory as the rest of it has bytes, and that is limited.
//!
//! ```
//! use ati::json_scan::{Event, Scanner};
//!
//! let mut scanner = Scanner::new(1 << 20).divert("args.content_base64");
//! let events = scanner.push(br#"{"args":{"content_base64":"Zm9v","filename":"f"}}"#).unwrap();
//! assert!(events.contains(&Event::Bytes(b"foo".to_vec())));
//! let rest = scanner.finish().unwrap();
//! assert_eq!(rest, br#"{"args":{"content_base64":null,"filename":"f"}}"#);
//! ```
//!
//! Brackets, commas, colons and quotes are checked here. Numbers, words and the text of kept
//! strings are not: what was kept has to be parsed anyway, and that finds the rest.

mod base64;
mod path;

use ::base64::DecodeError;

use base64::Decoder;
use path::{Container, Pattern, Tracker, Wanted};

/// Levels of nesting, as in [`crate::json::CheckedText`].
const DEEPEST: usize = 10_000;
/// In the place of what left the text.
const HOLE: &[u8] = b"null";

/// Why a text can't be scanned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    #[error("{expected} expected at byte {at}")]
    Syntax { expected: &'static str, at: u64 },
    #[error("it ends too early, after {0} bytes")]
    Incomplete(u64),
    #[error("it is nested too deep")]
    TooDeep,
    #[error("duplicate field `{0}`")]
    Duplicate(String),
    #[error("more than {0} bytes")]
    TooLong(usize),
    /// Of the diverted member of this name.
    #[error("{error}")]
    Base64 { member: String, error: DecodeError },
}

/// What a scanner tells while the text comes in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A member of [`Scanner::tell`], if it is a string.
    Found { path: Vec<String>, text: String },
    /// A member of [`Scanner::divert`] begins: names, and numbers for places in a list.
    Begin { path: Vec<String> },
    /// Decoded bytes of the member that began last. No longer than the piece of text was.
    Bytes(Vec<u8>),
    /// The member is complete.
    End,
}

/// A push parser: it is given the text in pieces of any size.
#[derive(Debug)]
pub struct Scanner {
    state: State,
    tracker: Tracker,
    kept: Vec<u8>,
    limit: usize,
    /// Bytes of the text before the piece that is being scanned.
    before: u64,
    /// What is wrong with the text. It is told after the events that came before it.
    fault: Option<ScanError>,
}

#[derive(Debug)]
enum State {
    Value,
    /// After `[`.
    FirstElement,
    /// After `{`.
    FirstKey,
    /// After a comma in an object.
    Key,
    Colon,
    /// After a value.
    After,
    /// In a number, `true`, `false` or `null`.
    Scalar,
    Text(Text),
    Payload(Box<Payload>),
}

/// A string that is kept.
#[derive(Debug)]
struct Text {
    role: Role,
    /// Where its opening quote is in the kept text.
    start: usize,
    escaped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Key,
    Reported,
    Plain,
}

/// A string that is diverted.
#[derive(Debug)]
struct Payload {
    decoder: Decoder,
    member: String,
    escape: Escape,
}

#[derive(Debug, Clone, Copy)]
enum Escape {
    None,
    Begun,
    /// `\u`, with this many digits so far.
    Digits {
        count: u8,
        value: u32,
    },
}

impl Scanner {
    /// At most `limit` bytes are kept.
    pub fn new(limit: usize) -> Self {
        Scanner {
            state: State::Value,
            tracker: Tracker::default(),
            kept: Vec::new(),
            limit,
            before: 0,
            fault: None,
        }
    }

    /// Diverts the strings at this path, like `result.outputs.*.content_base64`: names with dots
    /// between them, and `*` for every member of an object or a list. A value that is no string
    /// stays in the text.
    pub fn divert(mut self, path: &str) -> Self {
        self.tracker.add(Pattern::new(path, Wanted::Diverted));
        self
    }

    /// Tells the string at this path as soon as it is there. It stays in the text too.
    pub fn tell(mut self, path: &str) -> Self {
        self.tracker.add(Pattern::new(path, Wanted::Reported));
        self
    }

    /// The next piece of the text. Where it has a fault, the events before that come first, and the
    /// next call has the error.
    pub fn push(&mut self, piece: &[u8]) -> Result<Vec<Event>, ScanError> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        let mut events = Vec::new();
        let mut at = 0;
        while at < piece.len() {
            match self.step(&piece[at..], at, &mut events) {
                Ok(used) => at += used,
                Err(fault) if events.is_empty() => return Err(fault),
                Err(fault) => {
                    self.fault = Some(fault);
                    return Ok(events);
                }
            }
        }
        self.before += piece.len() as u64;
        Ok(events)
    }

    /// The text without what was diverted, if it is complete.
    pub fn finish(self) -> Result<Vec<u8>, ScanError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let ended = matches!(self.state, State::After | State::Scalar);
        if ended && self.tracker.depth() == 0 {
            Ok(self.kept)
        } else {
            Err(ScanError::Incomplete(self.before))
        }
    }

    /// How many bytes of the rest of the piece were used. `at` is where the rest begins.
    fn step(
        &mut self,
        rest: &[u8],
        at: usize,
        events: &mut Vec<Event>,
    ) -> Result<usize, ScanError> {
        match &mut self.state {
            State::Text(_) => return self.text(rest, events),
            State::Payload(payload) => {
                let used = payload.push(rest, self.before + at as u64, events)?;
                if let Some(Event::End) = events.last() {
                    self.state = State::After;
                }
                return Ok(used);
            }
            State::Scalar if !ends_scalar(rest[0]) => {
                self.keep(&rest[..1])?;
                return Ok(1);
            }
            State::Scalar => self.state = State::After,
            _ => {}
        }
        let byte = rest[0];
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            self.keep(&[byte])?;
            return Ok(1);
        }
        self.structure(byte, self.before + at as u64, events)?;
        Ok(1)
    }

    /// A byte outside of strings, numbers and words.
    fn structure(&mut self, byte: u8, at: u64, events: &mut Vec<Event>) -> Result<(), ScanError> {
        let wrong = |expected| Err(ScanError::Syntax { expected, at });
        let container = self.tracker.container();
        self.state = match (&self.state, byte) {
            (State::FirstKey, b'}') | (State::FirstElement, b']') => {
                self.tracker.close();
                State::After
            }
            (State::FirstKey | State::Key, b'"') => {
                let start = self.kept.len();
                State::Text(Text::new(Role::Key, start))
            }
            (State::FirstKey | State::Key, _) => return wrong("a quote"),
            (State::Colon, b':') => State::Value,
            (State::Colon, _) => return wrong("a colon"),
            (State::After, b',') => match container {
                Some(Container::Object) => State::Key,
                Some(Container::List) => State::Value,
                None => return wrong("the end"),
            },
            (State::After, b'}') if container == Some(Container::Object) => {
                self.tracker.close();
                State::After
            }
            (State::After, b']') if container == Some(Container::List) => {
                self.tracker.close();
                State::After
            }
            (State::After, _) => {
                return wrong(match container {
                    Some(_) => "a comma or a closing bracket",
                    None => "the end",
                });
            }
            (State::Value | State::FirstElement, _) => return self.value(byte, at, events),
            (State::Scalar | State::Text(_) | State::Payload(_), _) => return wrong("a value"),
        };
        self.keep(&[byte])
    }

    /// The first byte of a value.
    fn value(&mut self, byte: u8, at: u64, events: &mut Vec<Event>) -> Result<(), ScanError> {
        self.tracker.begin_value();
        self.state = match byte {
            b'{' | b'[' => {
                if self.tracker.depth() == DEEPEST {
                    return Err(ScanError::TooDeep);
                }
                let (container, state) = match byte {
                    b'{' => (Container::Object, State::FirstKey),
                    _ => (Container::List, State::FirstElement),
                };
                self.tracker.open(container);
                state
            }
            b'"' => match self.tracker.wanted() {
                Some(Wanted::Diverted) => {
                    let path = self.tracker.path();
                    let member = path.last().cloned().unwrap_or_default();
                    events.push(Event::Begin { path });
                    self.state = State::Payload(Box::new(Payload::new(member)));
                    return self.keep(HOLE);
                }
                Some(Wanted::Reported) => State::Text(Text::new(Role::Reported, self.kept.len())),
                None => State::Text(Text::new(Role::Plain, self.kept.len())),
            },
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => State::Scalar,
            _ => {
                let expected = "a value";
                return Err(ScanError::Syntax { expected, at });
            }
        };
        self.keep(&[byte])
    }

    /// Inside of a kept string.
    fn text(&mut self, rest: &[u8], events: &mut Vec<Event>) -> Result<usize, ScanError> {
        let State::Text(text) = &mut self.state else {
            return Ok(0);
        };
        let (used, ended) = text.run(rest);
        let (role, start) = (text.role, text.start);
        self.keep(&rest[..used])?;
        if ended {
            self.state = match role {
                Role::Key => State::Colon,
                Role::Reported | Role::Plain => State::After,
            };
            // A text that is no string as JSON has it is found when the kept text is parsed.
            let read = || serde_json::from_slice::<String>(&self.kept[start..]).ok();
            match role {
                Role::Key if self.tracker.is_tracking() => self.tracker.name(read())?,
                Role::Key | Role::Plain => {}
                Role::Reported => {
                    let path = self.tracker.path();
                    events.extend(read().map(|text| Event::Found { path, text }));
                }
            }
        }
        Ok(used)
    }

    fn keep(&mut self, text: &[u8]) -> Result<(), ScanError> {
        if self.kept.len() + text.len() > self.limit {
            return Err(ScanError::TooLong(self.limit));
        }
        self.kept.extend_from_slice(text);
        Ok(())
    }
}

fn ends_scalar(byte: u8) -> bool {
    matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r')
}

impl Text {
    fn new(role: Role, start: usize) -> Self {
        Text {
            role,
            start,
            escaped: false,
        }
    }

    /// How many bytes belong to the string, its closing quote included, and whether that came.
    fn run(&mut self, rest: &[u8]) -> (usize, bool) {
        let mut used = 0;
        while used < rest.len() {
            if std::mem::take(&mut self.escaped) {
                used += 1;
                continue;
            }
            match memchr::memchr2(b'"', b'\\', &rest[used..]) {
                None => return (rest.len(), false),
                Some(at) if rest[used + at] == b'"' => return (used + at + 1, true),
                Some(at) => {
                    self.escaped = true;
                    used += at + 1;
                }
            }
        }
        (used, false)
    }
}

impl Payload {
    fn new(member: String) -> Self {
        Payload {
            decoder: Decoder::default(),
            member,
            escape: Escape::None,
        }
    }

    /// How many bytes were used. The string ended if the last event is [`Event::End`].
    fn push(
        &mut self,
        rest: &[u8],
        offset: u64,
        events: &mut Vec<Event>,
    ) -> Result<usize, ScanError> {
        let (mut used, mut out, mut ended) = (0, Vec::new(), false);
        while used < rest.len() && !ended {
            if let Some(letter) = self.unescape(rest[used], offset + used as u64)? {
                used += 1;
                let mut buffer = [0; 4];
                if let Some(letter) = letter {
                    let letter = letter.encode_utf8(&mut buffer);
                    self.decode(letter.as_bytes(), &mut out)?;
                }
                continue;
            }
            let run = memchr::memchr2(b'"', b'\\', &rest[used..]).unwrap_or(rest.len() - used);
            let letters = &rest[used..used + run];
            if let Some(at) = letters.iter().position(|byte| *byte < b' ') {
                let (expected, at) = ("no control character", offset + (used + at) as u64);
                return Err(ScanError::Syntax { expected, at });
            }
            self.decode(letters, &mut out)?;
            used += run;
            match rest.get(used) {
                Some(b'"') => ended = true,
                Some(_) => self.escape = Escape::Begun,
                None => break,
            }
            used += 1;
        }
        if ended {
            let decoder = std::mem::take(&mut self.decoder);
            let finished = decoder.finish(&mut out);
            finished.map_err(|error| self.fault(error))?;
        }
        if !out.is_empty() {
            events.push(Event::Bytes(out));
        }
        if ended {
            events.push(Event::End);
        }
        Ok(used)
    }

    fn decode(&mut self, letters: &[u8], out: &mut Vec<u8>) -> Result<(), ScanError> {
        let decoded = self.decoder.push(letters, out);
        decoded.map_err(|error| self.fault(error))
    }

    fn fault(&self, error: DecodeError) -> ScanError {
        let member = self.member.clone();
        ScanError::Base64 { member, error }
    }

    /// `None` outside of an escape; otherwise the letter that it stands for, if it is complete.
    fn unescape(&mut self, byte: u8, at: u64) -> Result<Option<Option<char>>, ScanError> {
        let wrong = Err(ScanError::Syntax {
            expected: "an escape of JSON",
            at,
        });
        let letter = match self.escape {
            Escape::None => return Ok(None),
            Escape::Begun => match byte {
                b'u' => {
                    self.escape = Escape::Digits { count: 0, value: 0 };
                    return Ok(Some(None));
                }
                b'"' | b'\\' | b'/' => char::from(byte),
                b'b' => '\u{8}',
                b'f' => '\u{c}',
                b'n' => '\n',
                b'r' => '\r',
                b't' => '\t',
                _ => return wrong,
            },
            Escape::Digits { count, value } => {
                let Some(digit) = char::from(byte).to_digit(16) else {
                    return wrong;
                };
                let value = value * 16 + digit;
                if count < 3 {
                    let count = count + 1;
                    self.escape = Escape::Digits { count, value };
                    return Ok(Some(None));
                }
                // Half a pair is no letter of base64 either.
                char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
        };
        self.escape = Escape::None;
        Ok(Some(Some(letter)))
    }
}

#[cfg(test)]
mod tests;
