//! The head of a request, and whether it is plain: so simple that every reader understands it the
//! same way. Whatever isn't certainly plain goes to Pingora as it came.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Request, Status};

use super::{EndOfHead, Field, Span};

/// A plain request has no more headers.
pub const MOST_HEADERS: usize = 100;
/// The head of a plain request is no longer.
pub const LONGEST_HEAD: usize = 32 << 10;
/// The name of a header of a plain request is no longer.
pub const LONGEST_NAME: usize = 64;
const LONGEST_METHOD: usize = 16;
/// Of a head that comes in small pieces, the first bytes are looked at piece by piece, so that
/// what is no HTTP is known at once.
const LOOKED_AT: usize = 256;

/// A plain request. Method, target, names and values are spans of the bytes that it was parsed
/// from.
#[derive(Debug, Default)]
pub struct Head {
    /// Bytes of the head, with its empty line: the body begins behind them.
    pub length: usize,
    /// Of upper-case letters.
    pub method: Span,
    /// A path that begins with a slash, and perhaps a query.
    pub target: Span,
    pub fields: Vec<Field>,
    /// None: there is no such header, and no body.
    pub content_length: Option<u64>,
    /// The caller wants the connection to end after the answer.
    pub closes: bool,
}

impl Head {
    /// The bytes of the request's body.
    pub fn body(&self) -> u64 {
        self.content_length.unwrap_or_default()
    }
}

/// What the bytes of a connection are so far.
#[derive(Debug)]
pub enum Reading<'a> {
    /// More have to come.
    Incomplete,
    Plain(&'a Head),
    NotPlain,
}

/// Parses heads. It keeps its memory: one parser serves a connection.
#[derive(Debug, Default)]
pub struct Parser {
    end: EndOfHead,
    looked_at: usize,
    head: Head,
}

impl Parser {
    /// The request at the beginning of `bytes`, which are all that have come so far. After any
    /// answer but `Incomplete`, the parser is ready for the next request, whose bytes begin anew.
    pub fn parse(&mut self, bytes: &[u8]) -> Reading<'_> {
        match self.try_parse(bytes) {
            Ok(false) => Reading::Incomplete,
            Ok(true) => {
                self.restart();
                Reading::Plain(&self.head)
            }
            Err(NotPlain) => {
                self.restart();
                Reading::NotPlain
            }
        }
    }

    /// The request that was found last.
    pub fn head(&self) -> &Head {
        &self.head
    }

    fn restart(&mut self) {
        self.end = EndOfHead::default();
        self.looked_at = 0;
    }

    fn try_parse(&mut self, bytes: &[u8]) -> Result<bool, NotPlain> {
        let Some(length) = self.end.find(bytes).map_err(|_| NotPlain)? else {
            return self.look_at_part(bytes).map(|()| false);
        };
        if length > LONGEST_HEAD {
            return Err(NotPlain);
        }
        let bytes = &bytes[..length];
        let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; MOST_HEADERS];
        let mut request = Request::new(&mut []);
        let parsed = ParserConfig::default().parse_request_with_uninit_headers(
            &mut request,
            bytes,
            &mut headers,
        );
        if !matches!(parsed, Ok(Status::Complete(end)) if end == length) {
            return Err(NotPlain);
        }
        let (Some(method), Some(target)) = (request.method, request.path) else {
            return Err(NotPlain);
        };
        check_line(bytes, method, target)?;
        let head = &mut self.head;
        head.length = length;
        head.method = Span::of(method.as_bytes(), bytes);
        head.target = Span::of(target.as_bytes(), bytes);
        head.fields.clear();
        let mut claims = Claims::default();
        for header in request.headers.iter() {
            claims.take(header.name, header.value)?;
            head.fields.push(Field {
                name: Span::of(header.name.as_bytes(), bytes),
                value: Span::of(header.value, bytes),
            });
        }
        if !claims.has_host {
            return Err(NotPlain);
        }
        head.content_length = claims.length;
        head.closes = claims.closes;
        Ok(true)
    }

    /// Whether these bytes can become a plain request.
    fn look_at_part(&mut self, bytes: &[u8]) -> Result<(), NotPlain> {
        if bytes.len() > LONGEST_HEAD {
            return Err(NotPlain);
        }
        let new = bytes.get(self.looked_at..).unwrap_or_default();
        let has_line = memchr::memchr(b'\n', new).is_some();
        self.looked_at = bytes.len();
        if bytes.is_empty() || (bytes.len() > LOOKED_AT && !has_line) {
            return Ok(());
        }
        if !bytes[0].is_ascii_uppercase() {
            return Err(NotPlain);
        }
        let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; MOST_HEADERS];
        let mut request = Request::new(&mut []);
        let parsed = ParserConfig::default().parse_request_with_uninit_headers(
            &mut request,
            bytes,
            &mut headers,
        );
        match parsed {
            Ok(Status::Partial) => Ok(()),
            Ok(Status::Complete(_)) | Err(_) => Err(NotPlain),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NotPlain;

/// One blank between three words, and nothing before the first: the parser is more lenient.
fn check_line(bytes: &[u8], method: &str, target: &str) -> Result<(), NotPlain> {
    let (method, target) = (method.as_bytes(), target.as_bytes());
    let is_method = method.len() <= LONGEST_METHOD
        && method != b"CONNECT"
        && method.iter().all(u8::is_ascii_uppercase);
    let is_path = target.starts_with(b"/") && !target.starts_with(b"//");
    let is_line = bytes
        .strip_prefix(method)
        .and_then(|rest| rest.strip_prefix(b" "))
        .and_then(|rest| rest.strip_prefix(target))
        .is_some_and(|rest| rest.starts_with(b" HTTP/1.1\r\n"));
    if is_line && is_method && is_path && target.iter().all(|byte| TARGET[*byte as usize]) {
        Ok(())
    } else {
        Err(NotPlain)
    }
}

/// What the headers say about the connection and the body.
#[derive(Debug, Default)]
struct Claims {
    has_host: bool,
    has_connection: bool,
    has_cookie: bool,
    closes: bool,
    length: Option<u64>,
}

impl Claims {
    fn take(&mut self, name: &str, value: &[u8]) -> Result<(), NotPlain> {
        let is_name = name.len() <= LONGEST_NAME && name.bytes().all(|byte| NAME[byte as usize]);
        // The parser takes no control characters but the tab.
        let is_value = value.is_ascii();
        if !is_name || !is_value {
            return Err(NotPlain);
        }
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        // By length first: most headers have another one.
        let is_fine = match name.len() {
            2 => !is("te"),
            4 if is("host") => {
                let is_first = !std::mem::replace(&mut self.has_host, true);
                is_first && !value.is_empty() && value.iter().all(|byte| HOST[*byte as usize])
            }
            6 if is("cookie") => !std::mem::replace(&mut self.has_cookie, true),
            6 => !is("expect"),
            7 => !is("upgrade") && !is("trailer"),
            8 => !is("trailers"),
            10 if is("connection") => {
                let is_first = !std::mem::replace(&mut self.has_connection, true);
                self.closes = value.eq_ignore_ascii_case(b"close");
                is_first && (self.closes || value.eq_ignore_ascii_case(b"keep-alive"))
            }
            14 if is("content-length") => {
                let is_first = self.length.is_none();
                self.length = decimal(value);
                is_first && self.length.is_some()
            }
            14 => !is("http2-settings"),
            16 => !is("proxy-connection"),
            17 => !is("transfer-encoding"),
            _ => true,
        };
        if is_fine { Ok(()) } else { Err(NotPlain) }
    }
}

/// As every server reads it: digits without a zero in front, and few enough.
fn decimal(digits: &[u8]) -> Option<u64> {
    let is_canonical = matches!(digits, [b'0'] | [b'1'..=b'9', ..]);
    if !is_canonical || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(
        digits
            .iter()
            .fold(0, |number, digit| number * 10 + u64::from(digit - b'0')),
    )
}

/// The bytes of a plain target: those of RFC 3986.
const TARGET: [bool; 256] = table(b"-._~!$&'()*+,;=:@/%?[]");
const NAME: [bool; 256] = table(b"-_.");
const HOST: [bool; 256] = table(b"-._:[]");

/// Letters, digits and these.
const fn table(more: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < more.len() {
        table[more[at] as usize] = true;
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests;
