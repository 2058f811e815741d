//! The log records of each request, written without a formatter, in the shape of every other log
//! line: JSON, or text for an operator at a terminal.

use std::cell::RefCell;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tracing::Level;

static AS_TEXT: AtomicBool = AtomicBool::new(false);

/// Records are text from now on. Called once, before the first of them.
pub(super) fn write_text() {
    AS_TEXT.store(true, Ordering::Relaxed);
}

/// A record under construction. Fields come out in the order in which they were added.
pub struct Record<'a> {
    buf: &'a mut Vec<u8>,
    as_text: bool,
}

impl Record<'_> {
    pub fn str(&mut self, key: &'static str, value: &str) -> &mut Self {
        self.key(key);
        let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'=');
        if self.as_text && !value.is_empty() && value.as_bytes().iter().all(is_plain) {
            self.buf.extend_from_slice(value.as_bytes());
            return self;
        }
        // All bytes, without an early end: so many at a time are compared.
        let is_escaped = |byte: u8| (byte < b' ') | (byte == b'"') | (byte == b'\\');
        if !value
            .bytes()
            .fold(false, |found, byte| found | is_escaped(byte))
        {
            self.buf.push(b'"');
            self.buf.extend_from_slice(value.as_bytes());
            self.buf.push(b'"');
            return self;
        }
        // Writing to a Vec can't fail, and a &str is always valid JSON text once escaped. The same
        // escapes keep control characters from a terminal.
        let _ = serde_json::to_writer(&mut *self.buf, value);
        self
    }

    pub fn num(&mut self, key: &'static str, value: u64) -> &mut Self {
        self.key(key);
        decimal(self.buf, value);
        self
    }

    pub fn address(&mut self, key: &'static str, value: SocketAddr) -> &mut Self {
        let SocketAddr::V4(address) = value else {
            return self.str(key, &value.to_string());
        };
        let quote: &[u8] = if self.as_text { b"" } else { b"\"" };
        self.key(key);
        self.buf.extend_from_slice(quote);
        for (index, octet) in address.ip().octets().into_iter().enumerate() {
            if index > 0 {
                self.buf.push(b'.');
            }
            decimal(self.buf, octet.into());
        }
        self.buf.push(b':');
        decimal(self.buf, address.port().into());
        self.buf.extend_from_slice(quote);
        self
    }

    pub fn bool(&mut self, key: &'static str, value: bool) -> &mut Self {
        self.key(key);
        self.buf
            .extend_from_slice(if value { b"true" } else { b"false" });
        self
    }

    /// Milliseconds with three decimals.
    pub fn millis(&mut self, key: &'static str, value: std::time::Duration) -> &mut Self {
        self.key(key);
        let micros = value.as_micros() as u64;
        decimal(self.buf, micros / 1000);
        let [hundreds, tens, ones] =
            [100, 10, 1].map(|unit| b'0' + (micros % 1000 / unit % 10) as u8);
        self.buf.extend_from_slice(&[b'.', hundreds, tens, ones]);
        self
    }

    #[inline]
    fn key(&mut self, key: &'static str) {
        let (before, after): (&[u8], &[u8]) = if self.as_text {
            (b" ", b"=")
        } else {
            (b",\"", b"\":")
        };
        self.buf.extend_from_slice(before);
        self.buf.extend_from_slice(key.as_bytes());
        self.buf.extend_from_slice(after);
    }
}

/// Appends a number. Formatting it would take most of the time of a record.
fn decimal(buf: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut begin = digits.len();
    loop {
        begin -= 1;
        digits[begin] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    buf.extend_from_slice(&digits[begin..]);
}

/// A request's path is cut to this many bytes in its record.
pub const LONGEST_PATH: usize = 2048;

/// Writes one record. Callers ask [`tracing::enabled!`] first.
pub fn emit(
    level: Level,
    target: &'static str,
    message: &'static str,
    fill: impl FnOnce(&mut Record<'_>),
) {
    thread_local! {
        static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    LINE.with_borrow_mut(|buf| {
        buf.clear();
        let as_text = AS_TEXT.load(Ordering::Relaxed);
        let now = SystemTime::now();
        if as_text {
            timestamp(buf, now);
            let _ = write!(buf, " {:>5} {message}:", level.as_str());
            fill(&mut Record { buf, as_text });
        } else {
            buf.extend_from_slice(b"{\"timestamp\":\"");
            timestamp(buf, now);
            buf.extend_from_slice(b"\",\"level\":\"");
            buf.extend_from_slice(level.as_str().as_bytes());
            buf.extend_from_slice(b"\",\"message\":\"");
            buf.extend_from_slice(message.as_bytes());
            buf.push(b'"');
            fill(&mut Record { buf, as_text });
            buf.extend_from_slice(b",\"target\":\"");
            buf.extend_from_slice(target.as_bytes());
            buf.extend_from_slice(b"\"}");
        }
        buf.push(b'\n');
        super::writer().push(buf);
    });
}

/// RFC 3339 with microseconds, in UTC.
fn timestamp(buf: &mut Vec<u8>, now: SystemTime) {
    timestamp_with_offset(buf, now, b"Z");
}

/// The same, with UTC's offset spelled in this way. The part down to the seconds is cached for each
/// thread.
pub(super) fn timestamp_with_offset(buf: &mut Vec<u8>, now: SystemTime, offset: &[u8]) {
    thread_local! {
        static SECOND: RefCell<(u64, Vec<u8>)> = const { RefCell::new((0, Vec::new())) };
    }
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    SECOND.with_borrow_mut(|(second, text)| {
        if *second != since.as_secs() || text.is_empty() {
            *second = since.as_secs();
            text.clear();
            let whole = OffsetDateTime::from_unix_timestamp(since.as_secs() as i64)
                .unwrap_or(OffsetDateTime::UNIX_EPOCH);
            let _ = whole.format_into(text, &Rfc3339);
            text.pop(); // the Z, which comes after the fraction
        }
        buf.extend_from_slice(text);
    });
    let mut fraction = *b".000000";
    let mut micros = since.subsec_micros();
    for digit in fraction[1..].iter_mut().rev() {
        *digit += (micros % 10) as u8;
        micros /= 10;
    }
    buf.extend_from_slice(&fraction);
    buf.extend_from_slice(offset);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn record_with_control_characters_is_valid_json() {
        let mut buf = b"{\"message\":\"m\"".to_vec();
        Record {
            buf: &mut buf,
            as_text: false,
        }
        .str("path", "/a\"b\n\u{1}\\")
        .num("status", 200)
        .bool("valid", false)
        .num("zero", 0)
        .num("most", u64::MAX)
        .millis("ms", Duration::from_micros(1042))
        .millis("short", Duration::from_micros(7))
        .address("v4", "127.0.0.1:18093".parse().unwrap())
        .address("v6", "[2001:db8::1]:80".parse().unwrap());
        buf.push(b'}');
        let value: serde_json::Value = serde_json::from_slice(&buf).unwrap();
        assert_eq!(
            (&value["zero"], &value["most"]),
            (&0.into(), &u64::MAX.into())
        );
        assert_eq!(value["short"], 0.007);
        assert_eq!(value["v4"], "127.0.0.1:18093");
        assert_eq!(value["v6"], "[2001:db8::1]:80");
        assert_eq!(value["path"], "/a\"b\n\u{1}\\");
        assert_eq!(value["ms"], 1.042);
        assert_eq!(value["valid"], false);
    }

    #[test]
    fn record_as_text_quotes_what_could_mislead_a_reader() {
        let mut buf = Vec::new();
        Record {
            buf: &mut buf,
            as_text: true,
        }
        .str("path", "/a/b?")
        .str("cause", "two words")
        .str("forged", "x status=200")
        .str("escape", "\u{1b}[2J")
        .str("empty", "")
        .num("status", 502)
        .address("peer", "127.0.0.1:80".parse().unwrap());
        let text = String::from_utf8(buf).unwrap();
        assert_eq!(
            text,
            r#" path=/a/b? cause="two words" forged="x status=200" escape="\u001b[2J" empty="" status=502 peer=127.0.0.1:80"#
        );
    }

    #[test]
    fn timestamp_is_rfc3339_with_microseconds() {
        let mut buf = Vec::new();
        timestamp(
            &mut buf,
            UNIX_EPOCH + Duration::from_micros(1_763_258_400_000_042),
        );
        assert_eq!(
            String::from_utf8(buf).unwrap(),
            "2025-11-16T02:00:00.000042Z"
        );
    }
}
