use std::time::Duration;

use super::value::{Positive, PositiveSeconds, raw_section};

raw_section! {
    /// `[files]`.
    RawFiles {
        max_bytes: Positive,
        spool_bytes: Positive,
        ttl_seconds: PositiveSeconds,
    }
}

/// Files on their way through ati: those of `file_manager`, and those that programs write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSettings {
    /// One file, in either direction.
    pub max_bytes: u64,
    /// The temporary files of all of them together.
    pub spool_bytes: u64,
    /// How long a file of `/files` is kept for its next step.
    pub ttl: Duration,
}

/// What a `/call` body has besides the file in base64.
const AROUND: u64 = 8 << 10;

impl FileSettings {
    /// The longest body of a `/call` that holds a file.
    pub fn max_call_bytes(&self) -> u64 {
        self.max_bytes.div_ceil(3) * 4 + AROUND
    }
}

impl Default for FileSettings {
    fn default() -> Self {
        FileSettings {
            max_bytes: 1 << 30,
            spool_bytes: 4 << 30,
            ttl: Duration::from_secs(300),
        }
    }
}

impl RawFiles {
    pub(in crate::config) fn resolve(self) -> FileSettings {
        let default = FileSettings::default();
        let or = |bytes: Option<usize>, default| bytes.map_or(default, |bytes| bytes as u64);
        FileSettings {
            max_bytes: or(self.max_bytes, default.max_bytes),
            spool_bytes: or(self.spool_bytes, default.spool_bytes),
            ttl: self.ttl_seconds.unwrap_or(default.ttl),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_cap_is_that_of_existing_deployments() {
        let cap = FileSettings::default().max_call_bytes();
        assert_eq!(cap, (1_u64 << 30).div_ceil(3) * 4 + 8192);
    }
}
