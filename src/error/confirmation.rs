//! What a caller is told about a call that wants a confirmation, and why one isn't accepted.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A call that runs once its caller repeats it with this token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmation {
    pub token: String,
    /// RFC 3339.
    pub expires_at: String,
    pub tool: String,
    /// What is known about the tool's effects, in the words of ATIP.
    #[serde(default)]
    pub effects: Value,
    /// What wants the confirmation.
    #[serde(default)]
    pub rule: String,
}

/// Without the token.
impl fmt::Debug for Confirmation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Confirmation");
        shown.field("tool", &self.tool).field("rule", &self.rule);
        shown.finish_non_exhaustive()
    }
}

/// Why a confirmation isn't accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfirmationFault {
    #[error("the token is not known, or was used already")]
    Unknown,
    #[error("the token has expired")]
    Expired,
    #[error("the token was given to another caller")]
    OtherCaller,
    #[error("the token is for another tool")]
    OtherTool,
    #[error("the arguments differ from those that the token was given for")]
    ChangedArguments,
}
