use super::value::{Plain, raw_section};

raw_section! {
    /// `[log]`.
    RawLog {
        format: Plain<LogFormat>,
        access: Plain<bool>,
        signatures: Plain<bool>,
    }
}

/// How the server's log looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Lines for people.
    Text,
    /// Text where stderr is a terminal, JSON otherwise.
    #[default]
    Auto,
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
