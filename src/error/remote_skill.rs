use http::StatusCode;

use super::{Code, UpstreamFailure};

/// Why there is no answer about a skill of the remote catalogue. No text tells a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoteSkillError {
    #[error(
        "SkillATI is not configured (set ATI_SKILL_REGISTRY=gcs://<bucket> or \
         ATI_SKILL_REGISTRY=proxy)"
    )]
    NotConfigured,
    #[error("Unsupported skill registry URL: {0}")]
    Unsupported(String),
    #[error("GCS credentials not found in keyring: {0}")]
    NoGcsCredentials(&'static str),
    #[error("S3 credentials not found in keyring: {0}")]
    NoS3Credentials(&'static str),
    #[error("ATI_PROXY_URL must be set when ATI_SKILL_REGISTRY=proxy")]
    NoProxyUrl,
    /// There is none of this name, or this caller may not see it.
    #[error("Skill '{0}' not found")]
    NoSuchSkill(String),
    #[error("Path '{path}' not found in skill '{skill}'")]
    NoSuchPath { skill: String, path: String },
    #[error("Invalid skill-relative path '{0}'")]
    InvalidPath(String),
    /// The registry failed, or what it holds can't be used.
    #[error("Skill registry error: {0}")]
    Upstream(String),
}

impl RemoteSkillError {
    pub fn status(&self) -> StatusCode {
        match self {
            RemoteSkillError::NotConfigured
            | RemoteSkillError::Unsupported(_)
            | RemoteSkillError::NoGcsCredentials(_)
            | RemoteSkillError::NoS3Credentials(_)
            | RemoteSkillError::NoProxyUrl => StatusCode::SERVICE_UNAVAILABLE,
            RemoteSkillError::NoSuchSkill(_) | RemoteSkillError::NoSuchPath { .. } => {
                StatusCode::NOT_FOUND
            }
            RemoteSkillError::InvalidPath(_) => StatusCode::BAD_REQUEST,
            RemoteSkillError::Upstream(_) => StatusCode::BAD_GATEWAY,
        }
    }

    /// The `reason` label of `ati_refusals_total`.
    pub fn label(&self) -> &'static str {
        match self {
            RemoteSkillError::NotConfigured
            | RemoteSkillError::Unsupported(_)
            | RemoteSkillError::NoGcsCredentials(_)
            | RemoteSkillError::NoS3Credentials(_)
            | RemoteSkillError::NoProxyUrl => "skill_registry_not_configured",
            RemoteSkillError::NoSuchSkill(_) | RemoteSkillError::NoSuchPath { .. } => {
                "no_such_remote_skill"
            }
            RemoteSkillError::InvalidPath(_) => "bad_skill_path",
            RemoteSkillError::Upstream(_) => "skill_registry_failed",
        }
    }

    pub fn upstream_failure(&self) -> Option<UpstreamFailure> {
        let failed = matches!(self, RemoteSkillError::Upstream(_));
        failed.then(|| UpstreamFailure::new("skill_registry"))
    }

    /// The code of a command that ends with it.
    pub fn code(&self) -> Code {
        match self {
            RemoteSkillError::NoGcsCredentials(_) | RemoteSkillError::NoS3Credentials(_) => {
                Code::MissingKey
            }
            RemoteSkillError::NotConfigured | RemoteSkillError::NoProxyUrl => Code::MissingArg,
            RemoteSkillError::Unsupported(_) | RemoteSkillError::InvalidPath(_) => {
                Code::InvalidValue
            }
            RemoteSkillError::NoSuchSkill(_) | RemoteSkillError::NoSuchPath { .. } => {
                Code::ExecutionFailed
            }
            RemoteSkillError::Upstream(_) => Code::UpstreamError,
        }
    }
}
