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
    /// A limit of the token.
    #[error("{why}")]
    Limited {
        why: String,
        /// Seconds.
        retry_after: u64,
    },
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
            HelpError::Limited { .. } => StatusCode::TOO_MANY_REQUESTS,
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
            HelpError::Limited { .. } => "rate_limited",
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
            | HelpError::NotVisible(_)
            | HelpError::Limited { .. } => None,
        }
    }

    /// The LLM's server has had enough for now, or the caller has asked enough.
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            HelpError::Api { retry_after, .. } => *retry_after,
            HelpError::Limited { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }

    /// From a proxy's text, where that is about its language model.
    pub fn read(text: &str, retry_after: Option<u64>) -> Option<Self> {
        if let Some(said) = text.strip_prefix("LLM API error (") {
            let (status, body) = said.split_once("): ")?;
            return Some(HelpError::Api {
                status: status.parse().ok()?,
                body: body.to_owned(),
                retry_after,
            });
        }
        if let Some(why) = text.strip_prefix("Failed to parse LLM response: ") {
            return Some(HelpError::Unparsable(why.to_owned()));
        }
        let why = text.strip_prefix("LLM request failed: ")?;
        let silence = why.strip_prefix("timed out, nothing came for ");
        let silence = silence.and_then(|rest| rest.strip_suffix(" s")?.parse().ok());
        Some(match silence {
            Some(seconds) => HelpError::Silent(seconds),
            None => HelpError::Request(why.to_owned()),
        })
    }

    /// The code of a command that ends with it.
    pub fn code(&self) -> Code {
        match self {
            HelpError::NotConfigured | HelpError::NoKey => Code::MissingKey,
            HelpError::NoHelpScope | HelpError::NotVisible(_) => Code::ScopeDenied,
            HelpError::Silent(_) => Code::ProviderTimeout,
            HelpError::Api { status: 429, .. } | HelpError::Limited { .. } => Code::RateExceeded,
            HelpError::Unreachable(_)
            | HelpError::Request(_)
            | HelpError::Api { .. }
            | HelpError::Unparsable(_) => Code::UpstreamError,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_of_a_language_model_is_read_from_its_own_text() {
        for error in [
            HelpError::Api {
                status: 429,
                body: "slow (down): now".to_owned(),
                retry_after: Some(17),
            },
            HelpError::Silent(5),
            HelpError::Request("it closed the connection".to_owned()),
            HelpError::Unparsable("it is not JSON".to_owned()),
        ] {
            let read = HelpError::read(&error.to_string(), error.retry_after());
            assert_eq!(read, Some(error));
        }
        for other in ["bad gateway", "LLM API key not found in keyring"] {
            assert_eq!(HelpError::read(other, None), None);
        }
    }
}
