use crate::credential::CredentialError;
use crate::egress::EgressError;
use crate::error::{Code, ExecFailure, Shortage, UpstreamFailure};

/// The longest URL that the HTTP client can send.
pub const LONGEST_URL: usize = u16::MAX as usize - 1;

/// Why an HTTP tool gave no result. No text tells a credential, or a URL that could hold one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    #[error("API error ({status}): {body}")]
    Status { status: u16, body: String },
    #[error("HTTP request failed: more than {0} redirects")]
    TooManyRedirects(usize),
    #[error("HTTP request failed: it redirected to something that is no http or https URL")]
    BadRedirect,
    #[error("HTTP request failed: it redirected to another origin with a credential in the URL")]
    SecretInRedirect,
    #[error("Invalid path parameter '{name}': value '{value}' contains forbidden characters")]
    PathParameter { name: String, value: String },
    #[error("Missing path parameter '{0}'")]
    MissingPathParameter(String),
    #[error("Header '{0}' is not allowed as a user-supplied parameter")]
    HeaderParameter(String),
    #[error("Invalid header parameter '{0}': its value can't be sent in a header")]
    HeaderValue(String),
    #[error("Invalid parameter '{0}': content_base64 is not base64")]
    Base64(String),
    /// The arguments make a URL of this length.
    #[error("Invalid arguments: the URL would have {0} bytes, more than {LONGEST_URL}")]
    LongUrl(usize),
    #[error(transparent)]
    Credential(#[from] CredentialError),
    #[error(transparent)]
    Egress(#[from] EgressError),
}

impl ExecFailure for HttpError {
    fn intro(&self) -> &'static str {
        "Upstream API error"
    }

    fn outcome(&self) -> &'static str {
        match self {
            HttpError::Status { .. } => "upstream_status",
            HttpError::Credential(error) => error.outcome(),
            HttpError::Egress(error) => error.outcome(),
            HttpError::TooManyRedirects(_)
            | HttpError::BadRedirect
            | HttpError::SecretInRedirect
            | HttpError::PathParameter { .. }
            | HttpError::MissingPathParameter(_)
            | HttpError::HeaderParameter(_)
            | HttpError::HeaderValue(_)
            | HttpError::Base64(_)
            | HttpError::LongUrl(_) => "failed",
        }
    }

    fn code(&self) -> Code {
        match self {
            HttpError::MissingPathParameter(_) => Code::MissingArg,
            HttpError::PathParameter { .. }
            | HttpError::HeaderParameter(_)
            | HttpError::HeaderValue(_)
            | HttpError::Base64(_)
            | HttpError::LongUrl(_) => Code::InvalidValue,
            HttpError::Credential(error) => error.code(),
            HttpError::Egress(error) => error.code(),
            HttpError::Status { .. }
            | HttpError::TooManyRedirects(_)
            | HttpError::BadRedirect
            | HttpError::SecretInRedirect => Code::UpstreamError,
        }
    }

    fn upstream_failure(&self) -> Option<UpstreamFailure> {
        match self {
            HttpError::Status { status, .. } => Some(UpstreamFailure::status(*status)),
            HttpError::TooManyRedirects(_)
            | HttpError::BadRedirect
            | HttpError::SecretInRedirect => Some(UpstreamFailure::new("redirect")),
            HttpError::Credential(error) => error.upstream_failure(),
            HttpError::Egress(error) => error.upstream_failure(),
            HttpError::PathParameter { .. }
            | HttpError::MissingPathParameter(_)
            | HttpError::HeaderParameter(_)
            | HttpError::HeaderValue(_)
            | HttpError::LongUrl(_)
            | HttpError::Base64(_) => None,
        }
    }

    fn shortage(&self) -> Option<Shortage> {
        if let HttpError::Egress(error) = self {
            error.shortage()
        } else {
            None
        }
    }

    /// Without the value that the caller sent: the audit line redacts arguments, and this is one.
    fn audit_text(&self) -> String {
        match self {
            HttpError::PathParameter { name, .. } => format!("Invalid path parameter '{name}'"),
            other => other.to_string(),
        }
    }
}
