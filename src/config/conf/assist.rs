use std::time::Duration;

use super::value::{Plain, PositiveSeconds, raw_section};

raw_section! {
    /// `[assist]`.
    RawAssist {
        require_scope: Plain<bool>,
        timeout_seconds: PositiveSeconds,
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssistSettings {
    /// `/help` wants the scope `help`.
    pub require_scope: bool,
    /// The longest time in which no byte comes from the language model.
    pub patience: Duration,
}

impl Default for AssistSettings {
    fn default() -> Self {
        AssistSettings {
            require_scope: false,
            patience: Duration::from_secs(120),
        }
    }
}

impl RawAssist {
    pub(in crate::config) fn resolve(self) -> AssistSettings {
        let default = AssistSettings::default();
        AssistSettings {
            require_scope: self.require_scope.unwrap_or(default.require_scope),
            patience: self.timeout_seconds.unwrap_or(default.patience),
        }
    }
}
