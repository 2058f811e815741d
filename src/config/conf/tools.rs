use std::time::Duration;

use super::value::{Positive, PositiveSeconds, raw_section};
use crate::config::environment::MAX_CAPTURED_BYTES;

raw_section! {
    /// `[tools]`.
    RawTools {
        max_call_bytes: Positive,
        max_response_bytes: Positive,
        spool_bytes: Positive,
        max_spool_bytes: Positive,
        max_memory_bytes: Positive,
        max_programs: Positive,
        timeout_seconds: PositiveSeconds,
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSettings {
    /// The body of a `/call`.
    pub max_call_bytes: usize,
    /// The body of an upstream's answer to a tool call.
    pub max_response_bytes: usize,
    /// A longer body of a call or of an answer goes to a temporary file.
    pub spool_bytes: usize,
    /// Those files together.
    pub max_spool_bytes: u64,
    /// The bodies of calls that are in memory, together.
    pub max_memory_bytes: u64,
    /// Programs of `auth_generator` that run at a time. Calls beyond that wait, within their time.
    pub max_programs: usize,
    /// One file that a program writes for its caller: `ATI_CLI_MAX_OUTPUT_BYTES`.
    pub max_captured_bytes: u64,
    /// For one call: credentials, redirects and the answer's body included.
    pub timeout: Duration,
}

impl Default for ToolSettings {
    fn default() -> Self {
        ToolSettings {
            max_call_bytes: 16 << 20,
            max_response_bytes: 64 << 20,
            spool_bytes: 1 << 20,
            max_spool_bytes: 1 << 30,
            max_memory_bytes: 256 << 20,
            max_programs: 32,
            max_captured_bytes: MAX_CAPTURED_BYTES,
            timeout: Duration::from_secs(60),
        }
    }
}

impl RawTools {
    pub(in crate::config) fn resolve(self) -> ToolSettings {
        let default = ToolSettings::default();
        ToolSettings {
            max_call_bytes: self.max_call_bytes.unwrap_or(default.max_call_bytes),
            max_response_bytes: self
                .max_response_bytes
                .unwrap_or(default.max_response_bytes),
            spool_bytes: self.spool_bytes.unwrap_or(default.spool_bytes),
            max_spool_bytes: self
                .max_spool_bytes
                .map_or(default.max_spool_bytes, |bytes| bytes as u64),
            max_memory_bytes: self
                .max_memory_bytes
                .map_or(default.max_memory_bytes, |bytes| bytes as u64),
            max_programs: self.max_programs.unwrap_or(default.max_programs),
            max_captured_bytes: default.max_captured_bytes,
            timeout: self.timeout_seconds.unwrap_or(default.timeout),
        }
    }
}
