use http::StatusCode;

use super::{Code, UpstreamFailure};

/// Why `/help` or `ati assist` has no answer of a language model. No text tells a credential: what
/// an LLM's server said is redacted before it gets here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HelpError {
    #[error("No _llm.toml manifest found. Proxy help requires a configured LLM provider.")]
    NotConfigured,
    #[error("LLM API key not found in keyring")]
    NoKey,
    /// `[assist] require_scope`, and the token lacks `help`.
    #[error("Access denied: 'help' is not in your scopes")]
    NoHelpScope,
    /// A tool or provider that isn't there, or that this caller may not see.
    #[error("Scope '{0}' is not visible in your current scopes.")]
    NotVisible(String),
    /// There is no server, or none that answers.
    #[error("LLM request failed: {0}")]
    Unreachable(String),
    /// A part of an answer, or a request that can't be sent.
    #[error("LLM request failed: {0}")]
    Request(String),
    /// No byte came for so many seconds.
    #[error("LLM request failed: timed out, nothing came for {0} s")]
    Silent(u64),
    #[error("LLM API error ({status}): {body}")]
    Api {
        status: u16,
        body: String,
        /// Seconds, as its server said.
        retry_after: Option<u64>,
    },
    #[error("Failed to parse LLM response: {0}")]
    Unparsable(String),
}

impl HelpError {
    pub fn status(&self) -> StatusCode {
        match self {
            HelpError::NotConfigured | HelpError::NoKey => StatusCode::SERVICE_UNAVAILABLE,
            HelpError::NoHelpScope | HelpError::NotVisible(_) => StatusCode::FORBIDDEN,
            HelpError::Unreachable(_)
            | HelpError::Request(_)
            | HelpError::Silent(_)
            | HelpError::Api { .. } => StatusCode::BAD_GATEWAY,
            HelpError::Unparsable(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The `reason` label of `ati_refusals_total`.
    pub fn label(&self) -> &'static str {
        match self {
            HelpError::NotConfigured | HelpError::NoKey => "help_not_configured",
            HelpError::NoHelpScope | HelpError::NotVisible(_) => "help_out_of_scope",
            HelpError::Unreachable(_)
            | HelpError::Request(_)
            | HelpError::Silent(_)
            | HelpError::Api { .. } => "llm_failed",
            HelpError::Unparsable(_) => "llm_unparsable",
        }
    }

    pub fn upstream_failure(&self) -> Option<UpstreamFailure> {
        match self {
            HelpError::Unreachable(_)
            | HelpError::Request(_)
            | HelpError::Silent(_)
            | HelpError::Api { .. }
            | HelpError::Unparsable(_) => Some(UpstreamFailure::new("llm")),
            HelpError::NotConfigured
            | HelpError::NoKey
            | HelpError::NoHelpScope
            | HelpError::NotVisible(_) => None,
        }
    }

    /// The LLM's server has had enough for now.
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            HelpError::Api { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The code of a command that ends with it.
    pub fn code(&self) -> Code {
        match self {
            HelpError::NotConfigured | HelpError::NoKey => Code::MissingKey,
            HelpError::NoHelpScope | HelpError::NotVisible(_) => Code::ScopeDenied,
            HelpError::Silent(_) => Code::ProviderTimeout,
            HelpError::Api { status: 429, .. } => Code::RateExceeded,
            HelpError::Unreachable(_)
            | HelpError::Request(_)
            | HelpError::Api { .. }
            | HelpError::Unparsable(_) => Code::UpstreamError,
        }
    }
}
