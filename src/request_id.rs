//! One id per request: it joins the access, signature and audit records, and the answer's header.

use std::fmt;

use serde::{Serialize, Serializer};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// The header that carries it, in requests of trusted proxies, in answers, and towards upstreams.
pub const HEADER: &str = "x-request-id";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(Uuid);

impl RequestId {
    /// A random one.
    pub fn generate() -> Self {
        RequestId(Uuid::new_v4())
    }

    /// The id in a trusted proxy's header, where it is a UUID in its usual form with hyphens.
    pub fn parse(text: &str) -> Option<Self> {
        let id = (text.len() == 36).then(|| Uuid::try_parse(text).ok())?;
        id.filter(|id| !id.is_nil()).map(RequestId)
    }

    pub fn uuid(self) -> Uuid {
        self.0
    }

    pub fn text(self) -> Text {
        let mut text = [0; Hyphenated::LENGTH];
        self.0.hyphenated().encode_lower(&mut text);
        Text(text)
    }
}

/// The text of an id, on the stack: writing a header or a log field allocates nothing.
#[derive(Debug, Clone, Copy)]
pub struct Text([u8; Hyphenated::LENGTH]);

impl Text {
    pub fn as_str(&self) -> &str {
        // Always ASCII: `encode_lower` wrote it.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text().as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_hyphenated_uuid_is_taken_over() {
        let own = RequestId::generate();
        assert_eq!(RequestId::parse(&own.to_string()), Some(own));
        let upper = own.to_string().to_uppercase();
        assert_eq!(RequestId::parse(&upper), Some(own));
        for other in [
            "",
            "abc",
            "00000000-0000-0000-0000-000000000000",
            "67e5504410b1426f9247bb680e5fe0c8",
            "{67e55044-10b1-426f-9247-bb680e5fe0c8}",
            "67e55044-10b1-426f-9247-bb680e5fe0cz",
        ] {
            assert_eq!(RequestId::parse(other), None, "{other}");
        }
    }
}
