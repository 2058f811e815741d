//! The log records of each request, written as JSON without a formatter, in the shape of every
//! other log line.

use std::cell::RefCell;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A record under construction. Fields come out in the order in which they were added.
pub struct Record<'a> {
    buf: &'a mut Vec<u8>,
}

impl Record<'_> {
    pub fn str(&mut self, key: &'static str, value: &str) -> &mut Self {
        self.key(key);
        // Writing to a Vec can't fail, and a &str is always valid JSON text once escaped.
        let _ = serde_json::to_writer(&mut *self.buf, value);
        self
    }

    pub fn num(&mut self, key: &'static str, value: u64) -> &mut Self {
        self.key(key);
        let _ = write!(self.buf, "{value}");
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
        let micros = value.as_micros();
        let _ = write!(self.buf, "{}.{:03}", micros / 1000, micros % 1000);
        self
    }

    fn key(&mut self, key: &'static str) {
        self.buf.extend_from_slice(b",\"");
        self.buf.extend_from_slice(key.as_bytes());
        self.buf.extend_from_slice(b"\":");
    }
}

/// A request's path is cut to this many bytes in its record.
pub const LONGEST_PATH: usize = 2048;

/// Writes one record at info level. Callers ask [`tracing::enabled!`] first.
pub fn emit(message: &'static str, fill: impl FnOnce(&mut Record<'_>)) {
    thread_local! {
        static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    LINE.with_borrow_mut(|buf| {
        buf.clear();
        buf.extend_from_slice(b"{\"timestamp\":\"");
        timestamp(buf, SystemTime::now());
        buf.extend_from_slice(b"\",\"level\":\"INFO\",\"message\":\"");
        buf.extend_from_slice(message.as_bytes());
        buf.push(b'"');
        fill(&mut Record { buf });
        buf.extend_from_slice(b"}\n");
        super::writer().push(buf);
    });
}

/// RFC 3339 with microseconds. The part down to the seconds is cached for each thread.
fn timestamp(buf: &mut Vec<u8>, now: SystemTime) {
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
    let _ = write!(buf, ".{:06}Z", since.subsec_micros());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn record_with_control_characters_is_valid_json() {
        let mut buf = b"{\"message\":\"m\"".to_vec();
        Record { buf: &mut buf }
            .str("path", "/a\"b\n\u{1}\\")
            .num("status", 200)
            .bool("valid", false)
            .millis("ms", Duration::from_micros(1042));
        buf.push(b'}');
        let value: serde_json::Value = serde_json::from_slice(&buf).unwrap();
        assert_eq!(value["path"], "/a\"b\n\u{1}\\");
        assert_eq!(value["ms"], 1.042);
        assert_eq!(value["valid"], false);
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
