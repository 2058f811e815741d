use crate::credential::CredentialError;
use crate::egress::EgressError;
use crate::error::{Code, ExecFailure, ExecStatus, Shortage, UpstreamFailure};
use crate::spool::SpoolError;

/// Why a file wasn't transferred. The texts are those of existing deployments. None tells a
/// credential, or the query of a URL, which may be a signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilesError {
    #[error("Missing required argument: {0}")]
    MissingArgument(&'static str),
    #[error("Invalid argument '{name}': {what}")]
    Argument { name: &'static str, what: String },
    #[error("Invalid extra header '{name}': {what}")]
    Header { name: String, what: &'static str },
    #[error("Invalid base64 in upload payload: {0}")]
    Base64(String),
    #[error("Invalid URL: {0}")]
    InvalidUrl(&'static str),
    #[error("URL is not allowed (private/internal address): {0}")]
    PrivateAddress(String),
    #[error("Host '{0}' is not in the download allowlist")]
    HostNotAllowed(String),
    #[error("Response exceeds max-bytes ({0} bytes)")]
    TooLarge(u64),
    #[error("Upstream returned status {status} for '{url}': {body}")]
    Status {
        status: u16,
        url: String,
        body: String,
    },
    #[error("Download failed: {0}")]
    Download(DownloadFault),
    #[error("Upload destinations not configured on the proxy — {0}")]
    NotConfigured(&'static str),
    #[error("Unknown upload destination '{0}' — not in the operator's allowlist")]
    UnknownDestination(String),
    #[error("Upload failed: {0}")]
    Upload(#[from] UploadFault),
    /// There may be a place for the file later.
    #[error("Too busy: {0}")]
    Busy(Shortage),
    #[error("No space left on the disk of ati's machine")]
    NoSpace,
    #[error("The file can't be kept: {0}")]
    Disk(String),
}

/// Why there is no answer to a download, or no end of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DownloadFault {
    #[error(transparent)]
    Egress(EgressError),
    #[error("it took longer than {0} s")]
    Timeout(u64),
    #[error("more than {0} redirects")]
    TooManyRedirects(usize),
    #[error("it redirected to something that is no http or https URL")]
    BadRedirect,
    /// The rest of a file that broke off is not the rest of the same file.
    #[error("the connection broke after {0} bytes, and the rest can't be had: {1}")]
    BrokenOff(u64, &'static str),
}

/// Why a destination didn't take a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UploadFault {
    #[error("keyring key '{0}' missing")]
    MissingKey(String),
    #[error("keyring key '{0}' can't be used")]
    UnusableKey(String),
    #[error(transparent)]
    Credential(CredentialError),
    #[error(transparent)]
    Egress(EgressError),
    #[error("it took longer than {0} s")]
    Timeout(u64),
    #[error("the destination answered with status {status}: {body}")]
    Status { status: u16, body: String },
    #[error("the destination's answer {0}")]
    Answer(&'static str),
    #[error("the URL that the destination named is not a public https URL: {0}")]
    NotPublic(String),
    #[error("{0}")]
    Disk(String),
}

impl FilesError {
    pub fn argument(name: &'static str, what: impl Into<String>) -> Self {
        let what = what.into();
        FilesError::Argument { name, what }
    }
}

impl From<DownloadFault> for FilesError {
    fn from(fault: DownloadFault) -> Self {
        match fault {
            DownloadFault::Egress(EgressError::Blocked(url)) => FilesError::PrivateAddress(url),
            DownloadFault::Egress(EgressError::Busy(shortage)) => FilesError::Busy(shortage),
            fault => FilesError::Download(fault),
        }
    }
}

impl From<SpoolError> for FilesError {
    fn from(error: SpoolError) -> Self {
        match error {
            SpoolError::QuotaExceeded { .. } => FilesError::Busy(Shortage::FileSpool),
            SpoolError::MemoryExceeded { .. } => FilesError::Busy(Shortage::Memory),
            SpoolError::Disk(cause) => disk(&cause),
        }
    }
}

/// The error of a disk that is full, or that doesn't work.
pub fn disk(cause: &std::io::Error) -> FilesError {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    if matches!(cause.kind(), StorageFull | QuotaExceeded) {
        return FilesError::NoSpace;
    }
    FilesError::Disk(cause.to_string())
}

impl ExecFailure for FilesError {
    fn intro(&self) -> &'static str {
        ""
    }

    fn status(&self) -> ExecStatus {
        match self {
            FilesError::MissingArgument(_)
            | FilesError::Argument { .. }
            | FilesError::Header { .. }
            | FilesError::Base64(_) => ExecStatus::BadRequest,
            FilesError::PrivateAddress(_)
            | FilesError::HostNotAllowed(_)
            | FilesError::UnknownDestination(_) => ExecStatus::Forbidden,
            FilesError::TooLarge(_) => ExecStatus::TooLarge,
            FilesError::Status { status, .. } => ExecStatus::Upstream(*status),
            FilesError::InvalidUrl(_) | FilesError::Download(_) | FilesError::Upload(_) => {
                ExecStatus::BadGateway
            }
            FilesError::NotConfigured(_) | FilesError::Busy(_) => ExecStatus::Unavailable,
            FilesError::NoSpace => ExecStatus::NoSpace,
            FilesError::Disk(_) => ExecStatus::Internal,
        }
    }

    fn outcome(&self) -> &'static str {
        match self {
            FilesError::MissingArgument(_)
            | FilesError::Argument { .. }
            | FilesError::Header { .. }
            | FilesError::Base64(_)
            | FilesError::InvalidUrl(_) => "invalid_arguments",
            FilesError::PrivateAddress(_) | FilesError::HostNotAllowed(_) => "blocked",
            FilesError::UnknownDestination(_) => "denied",
            FilesError::Status { .. } => "upstream_status",
            FilesError::Busy(shortage) => shortage.label(),
            FilesError::Download(DownloadFault::Timeout(_))
            | FilesError::Upload(UploadFault::Timeout(_)) => "timeout",
            FilesError::Download(DownloadFault::Egress(error))
            | FilesError::Upload(UploadFault::Egress(error)) => error.outcome(),
            FilesError::Upload(UploadFault::MissingKey(_) | UploadFault::UnusableKey(_)) => {
                "missing_key"
            }
            FilesError::Upload(UploadFault::Credential(error)) => error.outcome(),
            FilesError::Upload(UploadFault::Status { .. }) => "upstream_status",
            FilesError::TooLarge(_)
            | FilesError::Download(_)
            | FilesError::NotConfigured(_)
            | FilesError::Upload(_)
            | FilesError::NoSpace
            | FilesError::Disk(_) => "failed",
        }
    }

    fn code(&self) -> Code {
        match self {
            FilesError::MissingArgument(_) => Code::MissingArg,
            FilesError::Argument { .. }
            | FilesError::Header { .. }
            | FilesError::Base64(_)
            | FilesError::InvalidUrl(_)
            | FilesError::PrivateAddress(_)
            | FilesError::HostNotAllowed(_)
            | FilesError::TooLarge(_)
            | FilesError::UnknownDestination(_) => Code::InvalidValue,
            FilesError::Upload(UploadFault::MissingKey(_) | UploadFault::UnusableKey(_)) => {
                Code::MissingKey
            }
            FilesError::Upload(UploadFault::Credential(error)) => error.code(),
            FilesError::Download(DownloadFault::Timeout(_))
            | FilesError::Upload(UploadFault::Timeout(_)) => Code::ProviderTimeout,
            FilesError::Download(DownloadFault::Egress(error))
            | FilesError::Upload(UploadFault::Egress(error)) => error.code(),
            FilesError::NotConfigured(_)
            | FilesError::Busy(_)
            | FilesError::NoSpace
            | FilesError::Disk(_) => Code::ExecutionFailed,
            FilesError::Status { .. } | FilesError::Download(_) | FilesError::Upload(_) => {
                Code::UpstreamError
            }
        }
    }

    fn upstream_failure(&self) -> Option<UpstreamFailure> {
        match self {
            FilesError::Status { status, .. }
            | FilesError::Upload(UploadFault::Status { status, .. }) => {
                Some(UpstreamFailure::status(*status))
            }
            FilesError::Download(fault) => match fault {
                DownloadFault::Egress(error) => error.upstream_failure(),
                DownloadFault::Timeout(_) => Some(UpstreamFailure::new("timeout")),
                DownloadFault::TooManyRedirects(_) | DownloadFault::BadRedirect => {
                    Some(UpstreamFailure::new("redirect"))
                }
                DownloadFault::BrokenOff(..) => Some(UpstreamFailure::new("closed")),
            },
            FilesError::Upload(fault) => match fault {
                UploadFault::Egress(error) => error.upstream_failure(),
                UploadFault::Credential(error) => error.upstream_failure(),
                UploadFault::Timeout(_) => Some(UpstreamFailure::new("timeout")),
                UploadFault::Answer(_) | UploadFault::NotPublic(_) => {
                    Some(UpstreamFailure::new("protocol"))
                }
                UploadFault::Status { .. }
                | UploadFault::MissingKey(_)
                | UploadFault::UnusableKey(_)
                | UploadFault::Disk(_) => None,
            },
            _ => None,
        }
    }

    fn shortage(&self) -> Option<Shortage> {
        match self {
            FilesError::Busy(shortage) => Some(*shortage),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{CallError, ExecError};

    /// The statuses and texts that clients of existing deployments know.
    #[test]
    fn error_of_each_kind_has_its_documented_status_and_text() {
        let upload = |fault| FilesError::Upload(fault);
        let status = |status| FilesError::Status {
            status,
            url: "http://h/x".into(),
            body: "no".into(),
        };
        for (error, code, text) in [
            (
                FilesError::MissingArgument("url"),
                400,
                "Missing required argument: url",
            ),
            (
                FilesError::argument("timeout", "bad"),
                400,
                "Invalid argument 'timeout': bad",
            ),
            (
                FilesError::Header {
                    name: "host".into(),
                    what: "is not allowed",
                },
                400,
                "Invalid extra header 'host': is not allowed",
            ),
            (
                FilesError::Base64("x".into()),
                400,
                "Invalid base64 in upload payload: x",
            ),
            (
                FilesError::PrivateAddress("http://10.0.0.1/".into()),
                403,
                "URL is not allowed (private/internal address): http://10.0.0.1/",
            ),
            (
                FilesError::HostNotAllowed("h".into()),
                403,
                "Host 'h' is not in the download allowlist",
            ),
            (
                FilesError::UnknownDestination("d".into()),
                403,
                "Unknown upload destination 'd' — not in the operator's allowlist",
            ),
            (
                FilesError::TooLarge(5),
                413,
                "Response exceeds max-bytes (5 bytes)",
            ),
            (
                FilesError::NotConfigured("x"),
                503,
                "Upload destinations not configured on the proxy — x",
            ),
            (
                status(404),
                404,
                "Upstream returned status 404 for 'http://h/x': no",
            ),
            (
                status(302),
                400,
                "Upstream returned status 302 for 'http://h/x': no",
            ),
            (
                status(999),
                599,
                "Upstream returned status 999 for 'http://h/x': no",
            ),
            (
                upload(UploadFault::MissingKey("k".into())),
                502,
                "Upload failed: keyring key 'k' missing",
            ),
            (FilesError::InvalidUrl("x"), 502, "Invalid URL: x"),
            (
                FilesError::NoSpace,
                507,
                "No space left on the disk of ati's machine",
            ),
        ] {
            let error = CallError::from(ExecError::from(error));
            assert_eq!(
                (error.status().as_u16(), error.to_string().as_str()),
                (code, text)
            );
        }
        let full = SpoolError::QuotaExceeded { limit: 1 };
        let busy = CallError::from(ExecError::from(FilesError::from(full)));
        assert_eq!((busy.status().as_u16(), busy.retry_after()), (503, Some(1)));
    }
}
