use crate::error::{Code, Shortage, UpstreamFailure, UpstreamFault};
use crate::http1::Doubt;

/// Why a request of a tool did not reach its server, or its answer did not come back. No text tells
/// a path or a query, which could hold a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EgressError {
    #[error("HTTP request failed: {}", .0.words())]
    Request(UpstreamFault),
    /// The answer can't be understood, or could be understood in two ways.
    #[error("HTTP request failed: the answer can't be used, because {0}")]
    Answer(Doubt),
    #[error("HTTP request failed: the answer exceeds {0} bytes")]
    TooLarge(u64),
    #[error("the URL of this tool can't be used: {0}")]
    BadUrl(&'static str),
    #[error("SSRF protection: URL '{0}' targets a private/internal network address")]
    Blocked(String),
    /// The answer is too big for memory, and there is no place for it on disk.
    #[error("the answer can't be kept: {0}")]
    Spool(String),
    /// Of these, where there may be a place for it later.
    #[error("the answer can't be kept: {0}")]
    Busy(Shortage),
    /// The HTTP client can't be made: the CA file, mostly.
    #[error("{0}")]
    Setup(String),
}

impl EgressError {
    pub const NO_BASE_URL: Self =
        EgressError::BadUrl("base_url of its manifest is missing, or is no absolute URL");

    /// The `outcome` label of `ati_tool_calls_total`.
    pub fn outcome(&self) -> &'static str {
        match self {
            EgressError::Blocked(_) => "blocked",
            EgressError::Request(fault) if fault.is_timeout() => "timeout",
            EgressError::Request(_)
            | EgressError::Answer(_)
            | EgressError::TooLarge(_)
            | EgressError::BadUrl(_)
            | EgressError::Spool(_)
            | EgressError::Setup(_) => "failed",
            EgressError::Busy(shortage) => shortage.label(),
        }
    }

    /// None where ati sent nothing, or can't keep the answer.
    pub fn upstream_failure(&self) -> Option<UpstreamFailure> {
        match self {
            EgressError::Request(fault) => Some(UpstreamFailure::new(fault.kind())),
            EgressError::Answer(_) => Some(UpstreamFailure::new(UpstreamFault::Protocol.kind())),
            EgressError::TooLarge(_) => Some(UpstreamFailure::new(UpstreamFault::TooLarge.kind())),
            EgressError::BadUrl(_)
            | EgressError::Blocked(_)
            | EgressError::Spool(_)
            | EgressError::Busy(_)
            | EgressError::Setup(_) => None,
        }
    }

    pub fn shortage(&self) -> Option<Shortage> {
        if let EgressError::Busy(shortage) = self {
            Some(*shortage)
        } else {
            None
        }
    }

    pub fn code(&self) -> Code {
        match self {
            EgressError::Request(fault) if fault.is_timeout() => Code::ProviderTimeout,
            EgressError::Spool(_) | EgressError::Busy(_) | EgressError::Setup(_) => {
                Code::ExecutionFailed
            }
            EgressError::Request(_)
            | EgressError::Answer(_)
            | EgressError::TooLarge(_)
            | EgressError::BadUrl(_)
            | EgressError::Blocked(_) => Code::UpstreamError,
        }
    }
}
