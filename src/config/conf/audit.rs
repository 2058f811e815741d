use super::value::{Plain, raw_section};

raw_section! {
    /// `[audit]`.
    RawAudit {
        routes: Plain<bool>,
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditSettings {
    /// Requests to routes leave an audit line, as tool calls do.
    pub routes: bool,
}

impl RawAudit {
    pub(in crate::config) fn resolve(self) -> AuditSettings {
        AuditSettings {
            routes: self.routes.unwrap_or(false),
        }
    }
}
