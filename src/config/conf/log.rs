use super::value::{Plain, raw_section};

raw_section! {
    /// `[log]`.
    RawLog {
        access: Plain<bool>,
        signatures: Plain<bool>,
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// One line per request.
    pub access: bool,
    /// One line per signature checked.
    pub signatures: bool,
}

impl Default for LogSettings {
    fn default() -> Self {
        LogSettings {
            access: true,
            signatures: true,
        }
    }
}

impl RawLog {
    pub(in crate::config) fn resolve(self) -> LogSettings {
        let default = LogSettings::default();
        LogSettings {
            access: self.access.unwrap_or(default.access),
            signatures: self.signatures.unwrap_or(default.signatures),
        }
    }
}
