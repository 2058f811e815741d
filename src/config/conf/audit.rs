use super::value::{Plain, raw_section};

raw_section! {
    /// `[audit]`.
    RawAudit {
        chain: Plain<bool>,
        routes: Plain<bool>,
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditSettings {
    /// Audit lines are a hash chain.
    pub chain: bool,
    /// Requests to routes leave an audit line, as tool calls do.
    pub routes: bool,
}

impl RawAudit {
    pub(in crate::config) fn resolve(self) -> AuditSettings {
        AuditSettings {
            chain: self.chain.unwrap_or(false),
            routes: self.routes.unwrap_or(false),
        }
    }
}
