//! The head of an answer, and how its body is framed.

use std::borrow::Cow;
use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Response, Status};

use super::{Doubt, EndOfHead, Field, Span, unfolded};

/// As many headers as Pingora takes from an upstream.
pub const MOST_HEADERS: usize = 256;
/// As long a head as Pingora takes from an upstream.
pub const LONGEST_HEAD: usize = 1 << 20;

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    Length(u64),
    Chunked,
    /// The body ends with the connection.
    UntilClose,
}

/// What a head says. Names, values and the reason are spans of the bytes that it was parsed from.
#[derive(Debug, Clone)]
pub struct Head {
    /// Bytes of the head, with its empty line: the body begins behind them.
    pub length: usize,
    pub status: u16,
    /// Of version 1.
    pub minor_version: u8,
    /// Empty where it has other bytes than ASCII.
    pub reason: Span,
    pub fields: Vec<Field>,
    /// A value may have more than one line. False: none has.
    pub may_be_folded: bool,
    pub framing: Framing,
    /// Whether the connection can be used again, once the body was read to its end and nothing came
    /// behind it.
    pub may_reuse: bool,
}

impl Head {
    fn empty() -> Self {
        Head {
            length: 0,
            status: 0,
            minor_version: 1,
            reason: Span::default(),
            fields: Vec::new(),
            may_be_folded: false,
            framing: Framing::UntilClose,
            may_reuse: false,
        }
    }

    /// Whether another answer follows that is the real one. A 101 is the last answer in HTTP.
    pub fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// A value of this head in one line.
    pub fn unfolded<'a>(&self, value: &'a [u8]) -> Cow<'a, [u8]> {
        match self.may_be_folded {
            true => unfolded(value),
            false => Cow::Borrowed(value),
        }
    }

    /// The values of a header. The name is in lower case.
    pub fn values<'a>(
        &'a self,
        bytes: &'a [u8],
        name: &'a str,
    ) -> impl Iterator<Item = &'a [u8]> + 'a {
        let named = move |field: &&Field| {
            let own = field.name.get(bytes);
            own.eq_ignore_ascii_case(name.as_bytes())
        };
        let named = self.fields.iter().filter(named);
        named.map(move |field| field.value.get(bytes))
    }
}

/// Parses heads. It keeps its memory: one parser can serve a connection, or a thread, for good.
#[derive(Debug)]
pub struct Parser {
    end: EndOfHead,
    head: Head,
    is_lenient: bool,
}

impl Default for Parser {
    fn default() -> Self {
        Parser {
            end: EndOfHead::default(),
            head: Head::empty(),
            is_lenient: false,
        }
    }
}

impl Parser {
    /// For answers that are passed on in other words, as Pingora takes them: lines may end with LF
    /// alone, headers may be folded or have a blank before their colon, and next to a
    /// Transfer-Encoding a Content-Length counts for nothing (RFC 9112, 2.2, 5 and 6.3). After any
    /// of these, the connection isn't used again.
    pub fn of_proxy() -> Self {
        Parser {
            is_lenient: true,
            ..Parser::default()
        }
    }

    /// The head at the beginning of `bytes`, which are all that have come so far. None: more have
    /// to come. After a head, the parser is ready for the next one, whose bytes begin anew.
    /// `to_head` says that the request was a HEAD.
    pub fn parse(&mut self, bytes: &[u8], to_head: bool) -> Result<Option<&Head>, Doubt> {
        let parsed = self.try_parse(bytes, to_head);
        if !matches!(parsed, Ok(false)) {
            self.end = EndOfHead::default();
        }
        Ok(parsed?.then_some(&self.head))
    }

    fn try_parse(&mut self, bytes: &[u8], to_head: bool) -> Result<bool, Doubt> {
        if !begins_like_http1(bytes) {
            return Err(Doubt::NotHttp1);
        }
        // None: where it ends is for the parser to find.
        let length = match self.end.find(bytes) {
            Ok(Some(length)) => Some(length),
            Ok(None) if bytes.len() > LONGEST_HEAD => return Err(Doubt::LongHead),
            Ok(None) => return Ok(false),
            Err(_) if self.is_lenient && bytes.len() <= LONGEST_HEAD => {
                // Parsing begins anew each time: a server could send its head byte by byte.
                if !self.end.has_come(bytes) {
                    return Ok(false);
                }
                None
            }
            Err(bare) => return Err(bare.into()),
        };
        if length > Some(LONGEST_HEAD) {
            return Err(Doubt::LongHead);
        }
        let bytes = &bytes[..length.unwrap_or(bytes.len())];
        let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; MOST_HEADERS];
        let mut response = Response::new(&mut []);
        let mut config = ParserConfig::default();
        config.allow_spaces_after_header_name_in_responses(self.is_lenient);
        config.allow_obsolete_multiline_headers_in_responses(self.is_lenient);
        let parsed = config.parse_response_with_uninit_headers(&mut response, bytes, &mut headers);
        let end = match parsed {
            Ok(Status::Complete(end)) if length.is_none_or(|length| end == length) => end,
            Ok(Status::Partial) if length.is_none() => return Ok(false),
            Ok(_) => return Err(Doubt::StatusLine),
            Err(error) => return Err(doubt(error)),
        };
        let head = &mut self.head;
        head.length = end;
        head.status = response.code.unwrap_or_default();
        head.minor_version = response.version.unwrap_or_default();
        head.reason = Span::of(response.reason.unwrap_or_default().as_bytes(), bytes);
        if !(100..1000).contains(&head.status) {
            return Err(Doubt::StatusLine);
        }
        head.fields.clear();
        // One line for each header, the status and the end: no value has a second one.
        let lines = response.headers.len() + 2;
        head.may_be_folded = length.is_none() || self.end.lines() != lines;
        let mut claims = Claims::default();
        let mut is_odd = false;
        for header in response.headers.iter() {
            let value = head.unfolded(header.value);
            claims.hear(header.name, &value)?;
            let name = Span::of(header.name.as_bytes(), bytes);
            let is_tight = bytes.get(name.end as usize) == Some(&b':');
            is_odd |= matches!(value, Cow::Owned(_)) || !is_tight;
            head.fields.push(Field {
                name,
                value: Span::of(header.value, bytes),
            });
        }
        let has_both = claims.transfer_codings > 0 && claims.length.is_some();
        if has_both && self.is_lenient {
            claims.length = None;
        }
        (head.framing, head.may_reuse) = claims.decide(head.status, head.minor_version, to_head)?;
        head.may_reuse &= !has_both && !is_odd && length.is_some();
        Ok(true)
    }
}

/// Whether no answer with this status has a body, whatever its headers say (RFC 9112, 6.3).
pub fn has_no_body(status: u16) -> bool {
    status < 200 || matches!(status, 204 | 304)
}

/// So that a server of another protocol is known by its first bytes, and not after a timeout.
fn begins_like_http1(bytes: &[u8]) -> bool {
    const START: &[u8] = b"HTTP/1.";
    let known = bytes.len().min(START.len());
    bytes[..known] == START[..known]
}

fn doubt(error: httparse::Error) -> Doubt {
    match error {
        httparse::Error::HeaderName => Doubt::HeaderName,
        httparse::Error::HeaderValue | httparse::Error::NewLine => Doubt::HeaderValue,
        httparse::Error::TooManyHeaders => Doubt::TooManyHeaders,
        httparse::Error::Version => Doubt::NotHttp1,
        httparse::Error::Status | httparse::Error::Token => Doubt::StatusLine,
    }
}

/// What the headers say about framing.
#[derive(Debug, Default)]
struct Claims {
    length: Option<u64>,
    transfer_codings: usize,
    is_chunked: bool,
    closes: bool,
    keeps_alive: bool,
}

impl Claims {
    fn hear(&mut self, name: &str, value: &[u8]) -> Result<(), Doubt> {
        // The lengths of the three names: most headers have another one.
        match name.len() {
            10 if name.eq_ignore_ascii_case("connection") => {
                for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                    self.closes |= option.eq_ignore_ascii_case(b"close");
                    self.keeps_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if name.eq_ignore_ascii_case("content-length") => {
                // Some servers say the same length twice, which RFC 9110 (8.6) lets pass.
                for number in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                    let number = decimal(number).ok_or(Doubt::BadLength)?;
                    if self.length.is_some_and(|known| known != number) {
                        return Err(Doubt::TwoLengths);
                    }
                    self.length = Some(number);
                }
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                self.transfer_codings += 1;
                self.is_chunked = value.eq_ignore_ascii_case(b"chunked");
            }
            _ => {}
        }
        Ok(())
    }

    /// RFC 9112, 6.3, without its leniency.
    fn decide(&self, status: u16, minor: u8, to_head: bool) -> Result<(Framing, bool), Doubt> {
        let persists = !self.closes && (minor >= 1 || self.keeps_alive);
        let has_codings = self.transfer_codings > 0;
        if has_codings {
            if minor == 0 {
                return Err(Doubt::ChunksInHttp10);
            }
            if self.length.is_some() {
                return Err(Doubt::LengthAndChunks);
            }
            if self.transfer_codings > 1 || !self.is_chunked {
                return Err(Doubt::TransferCoding);
            }
        }
        if to_head || status == 304 {
            return Ok((Framing::None, persists));
        }
        if has_no_body(status) {
            // A server that announces a body here may send one.
            let is_bodiless = !has_codings && self.length.unwrap_or(0) == 0;
            return Ok((Framing::None, persists && is_bodiless && status != 101));
        }
        Ok(match self.length {
            _ if has_codings => (Framing::Chunked, persists),
            Some(length) => (Framing::Length(length), persists),
            None => (Framing::UntilClose, false),
        })
    }
}

/// Digits only, no sign, no overflow.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests;
