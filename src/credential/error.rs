use super::template::Unfilled;
use crate::egress::EgressError;
use crate::error::{Code, UpstreamFailure};
use crate::keyring::stored::Unreadable;

/// Why a call has no credential to send. No text tells a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    #[error("API key '{0}' not found in keyring")]
    MissingKey(String),
    #[error("the value of API key '{0}' can't be sent (a line break?)")]
    UnusableKey(String),
    /// A row of the database. No other credential takes its place.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("OAuth2 token exchange failed: {0}")]
    TokenExchange(String),
    #[error("OAuth2 token URL must use HTTPS: '{0}'")]
    InsecureTokenUrl(String),
    #[error("auth_generator: {0}")]
    Generator(String),
    #[error("auth_generator: Generator timed out after {0}s")]
    GeneratorTimeout(u64),
    #[error(transparent)]
    Egress(#[from] EgressError),
}

impl From<Unfilled> for CredentialError {
    /// Of several missing names, the first.
    fn from(unfilled: Unfilled) -> Self {
        match unfilled {
            Unfilled::Missing(names) => {
                CredentialError::MissingKey(names.into_iter().next().unwrap_or_default())
            }
            Unfilled::Unreadable(unreadable) => unreadable.into(),
        }
    }
}

impl CredentialError {
    /// The `outcome` label of `ati_tool_calls_total`.
    pub fn outcome(&self) -> &'static str {
        match self {
            CredentialError::MissingKey(_) | CredentialError::UnusableKey(_) => "missing_key",
            CredentialError::Unreadable(_) => "unreadable_key",
            CredentialError::GeneratorTimeout(_) => "timeout",
            CredentialError::Egress(error) => error.outcome(),
            CredentialError::TokenExchange(_)
            | CredentialError::InsecureTokenUrl(_)
            | CredentialError::Generator(_) => "failed",
        }
    }

    /// Whether what mints the credential failed. A credential that isn't there is ati's own fault.
    pub fn upstream_failure(&self) -> Option<UpstreamFailure> {
        match self {
            CredentialError::TokenExchange(_) => Some(UpstreamFailure::new("token_exchange")),
            CredentialError::Generator(_) => Some(UpstreamFailure::new("generator")),
            CredentialError::GeneratorTimeout(_) => Some(UpstreamFailure::new("generator_timeout")),
            CredentialError::Egress(error) => error.upstream_failure(),
            CredentialError::MissingKey(_)
            | CredentialError::UnusableKey(_)
            | CredentialError::Unreadable(_)
            | CredentialError::InsecureTokenUrl(_) => None,
        }
    }

    pub fn code(&self) -> Code {
        match self {
            CredentialError::MissingKey(_)
            | CredentialError::UnusableKey(_)
            | CredentialError::Unreadable(_) => Code::MissingKey,
            CredentialError::GeneratorTimeout(_) => Code::ProviderTimeout,
            CredentialError::Generator(_) => Code::ExecutionFailed,
            CredentialError::Egress(error) => error.code(),
            CredentialError::TokenExchange(_) | CredentialError::InsecureTokenUrl(_) => {
                Code::UpstreamError
            }
        }
    }
}
