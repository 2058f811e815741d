use std::time::Duration;

use super::value::{Positive, PositiveSeconds, raw_section};

raw_section! {
    /// `[limits]`.
    RawLimits {
        connections: Positive,
        requests_in_flight: Positive,
        header_seconds: PositiveSeconds,
        keepalive_seconds: PositiveSeconds,
        stall_seconds: PositiveSeconds,
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    pub connections: usize,
    pub requests_in_flight: usize,
    /// From the first byte of a connection, or from the end of a keep-alive pause, to the end of
    /// the header.
    pub header: Duration,
    /// How long an idle connection is kept.
    pub keepalive: Duration,
    /// A connection on which the caller takes or sends no byte for this long is closed.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 8_192,
            requests_in_flight: 5_000,
            header: Duration::from_secs(10),
            keepalive: Duration::from_secs(60),
            stall: Duration::from_secs(60),
        }
    }
}

impl RawLimits {
    pub(in crate::config) fn resolve(self) -> Limits {
        let default = Limits::default();
        Limits {
            connections: self.connections.unwrap_or(default.connections),
            requests_in_flight: self
                .requests_in_flight
                .unwrap_or(default.requests_in_flight),
            header: self.header_seconds.unwrap_or(default.header),
            keepalive: self.keepalive_seconds.unwrap_or(default.keepalive),
            stall: self.stall_seconds.unwrap_or(default.stall),
        }
    }
}
