//! MCP as a server speaks it: messages, eras, headers, cursors and texts. Nothing here reads or
//! writes a connection; `api/mcp` does that over HTTP, `cli/mcp` over standard streams.
//!
//! Two eras live on one endpoint, and each request says which is its own: `_meta` with a protocol
//! version is the stateless one (2026-07-28), everything else the handshake one.

mod cursor;
mod headers;
mod message;
mod meta;
mod received;
mod text;

pub use cursor::{after as cursor_after, read as read_cursor};
pub use headers::{PARAM_PREFIX, agree, check_params, era_of_headers, header_value, meta_era};
pub use message::{
    CONFIRM, Incoming, Meta, Params, Request, agrees, failure, parse, success, text_of,
};
pub use meta::with_confirm;
pub use received::{ClientRequest, Received, SKILLS_EXTENSION};
pub use text::PrettyText;

/// Every protocol version that is spoken, newest first.
pub const VERSIONS: [&str; 5] = [
    STATELESS,
    "2025-11-25",
    "2025-06-18",
    DEFAULT_HANDSHAKE,
    "2024-11-05",
];

/// The version without sessions.
pub const STATELESS: &str = "2026-07-28";
/// The newest version with a handshake.
const NEWEST_HANDSHAKE: &str = VERSIONS[1];
/// What clients of existing deployments observe, whatever they ask for.
const DEFAULT_HANDSHAKE: &str = "2025-03-26";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// `initialize` first, versions up to 2025-11-25.
    Handshake,
    /// Every request stands for itself, 2026-07-28.
    Stateless,
}

/// The version that `initialize` answers: the client's where it is known, the newest where the
/// client is ahead of it.
pub fn negotiate(requested: Option<&str>) -> &'static str {
    let Some(requested) = requested else {
        return DEFAULT_HANDSHAKE;
    };
    let known = VERSIONS[1..].iter().find(|known| **known == requested);
    match known {
        Some(known) => known,
        None if is_date(requested) && requested > NEWEST_HANDSHAKE => NEWEST_HANDSHAKE,
        None => DEFAULT_HANDSHAKE,
    }
}

/// Versions are dates, so they can be compared as texts.
fn is_date(text: &str) -> bool {
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = text.split('-').collect();
    parts.iter().map(|part| part.len()).eq([4, 2, 2]) && parts.into_iter().all(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_the_clients_or_the_nearest() {
        for known in &VERSIONS[1..] {
            assert_eq!(negotiate(Some(known)), *known);
        }
        assert_eq!(negotiate(Some(STATELESS)), "2025-11-25");
        assert_eq!(negotiate(Some("2099-01-01")), "2025-11-25");
        for unknown in [None, Some("1.0"), Some("2023-01-01"), Some("")] {
            assert_eq!(negotiate(unknown), "2025-03-26");
        }
    }
}
