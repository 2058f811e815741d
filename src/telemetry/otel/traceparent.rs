//! The `traceparent` header of W3C Trace Context.

use http::{HeaderMap, HeaderValue};
use opentelemetry::trace::{SpanId, TraceId};

/// The name of the header, and of the member of MCP's `_meta`.
pub const HEADER: &str = "traceparent";

const LENGTH: usize = 55;

/// What a `traceparent` says: which trace, which span of it, and whether that one is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traceparent {
    pub trace: TraceId,
    pub span: SpanId,
    pub sampled: bool,
}

/// A `traceparent` as it is sent.
#[derive(Clone, Copy)]
pub struct Text([u8; LENGTH]);

impl Text {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl Traceparent {
    /// A caller's. None where there is none, or where it can't be read: then the trace begins here.
    /// Two of them contradict each other, so neither counts.
    pub fn of_caller(headers: &HeaderMap) -> Option<Self> {
        let mut found = headers.get_all(HEADER).iter();
        let first = found.next()?;
        match found.next() {
            None => Traceparent::parse(first.as_bytes()),
            Some(_) => None,
        }
    }

    pub fn parse(text: &[u8]) -> Option<Self> {
        let (known, rest) = text.split_at_checked(LENGTH)?;
        let is_dash = |at: usize| known[at] == b'-';
        if !(is_dash(2) && is_dash(35) && is_dash(52)) {
            return None;
        }
        let [version] = hex(&known[..2])?;
        // A later version may have more fields behind these four; `ff` is no version.
        let is_whole = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.first().is_none_or(|byte| *byte == b'-'),
        };
        let trace = TraceId::from_bytes(hex(&known[3..35])?);
        let span = SpanId::from_bytes(hex(&known[36..52])?);
        let [flags] = hex(&known[53..])?;
        let is_valid = is_whole && trace != TraceId::INVALID && span != SpanId::INVALID;
        is_valid.then_some(Traceparent {
            trace,
            span,
            sampled: flags & 1 == 1,
        })
    }

    /// In the place of any other: two contradict each other.
    pub fn insert(&self, headers: &mut HeaderMap) {
        if let Ok(value) = HeaderValue::from_bytes(self.text().as_bytes()) {
            headers.insert(HEADER, value);
        }
    }

    pub fn text(&self) -> Text {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        // The lengths are those of the slices, so that encoding can't fail.
        let _ = hex::encode_to_slice(self.trace.to_bytes(), &mut text[3..35]);
        let _ = hex::encode_to_slice(self.span.to_bytes(), &mut text[36..52]);
        text[54] += u8::from(self.sampled);
        Text(text)
    }
}

/// Digits in lower case only, as the specification wants them.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    if digits.iter().any(u8::is_ascii_uppercase) {
        return None;
    }
    let mut bytes = [0; N];
    hex::decode_to_slice(digits, &mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn traceparent_is_written_as_it_was_read() {
        for text in [GOOD, &GOOD.replace("-01", "-00")] {
            let read = Traceparent::parse(text.as_bytes()).unwrap();
            assert_eq!(read.text().as_str(), text);
            assert_eq!(read.sampled, text.ends_with('1'));
        }
    }

    #[test]
    fn traceparent_of_a_later_version_is_read() {
        for text in [
            GOOD.replace("00-0af", "01-0af"),
            format!("cc{}-more", &GOOD[2..]),
        ] {
            assert!(Traceparent::parse(text.as_bytes()).is_some(), "{text}");
        }
    }

    #[test]
    fn traceparent_that_breaks_a_rule_is_ignored() {
        let zero_trace = GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32));
        let zero_span = GOOD.replace("b7ad6b7169203331", &"0".repeat(16));
        let others = [
            "",
            "00",
            &GOOD[..54],
            &format!("{GOOD}-x"),
            &GOOD.to_uppercase(),
            &GOOD.replace("00-0af", "ff-0af"),
            &GOOD.replace('-', "_"),
            &GOOD.replace("0af7", "0agz"),
            &zero_trace,
            &zero_span,
            &format!("cc{}x", &GOOD[2..]),
        ];
        for text in others {
            assert_eq!(Traceparent::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn two_traceparents_count_as_none() {
        let mut headers = HeaderMap::new();
        headers.append(HEADER, GOOD.parse().unwrap());
        assert!(Traceparent::of_caller(&headers).is_some());
        headers.append(HEADER, GOOD.parse().unwrap());
        assert_eq!(Traceparent::of_caller(&headers), None);
    }
}
