//! What is wrong with the id of a file.

use http::StatusCode;

use super::Code;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// Also for a file of another caller, so that ids can't be tried out.
    #[error("No such file: it was used already, its time is over, or it never was there")]
    NotFound,
    #[error("Invalid argument 'file': the call has a file already, in content_base64")]
    Twice,
    #[error("Invalid argument 'file': expected the id of a file, as PUT /files answers it")]
    NoId,
    #[error("Invalid argument 'delivery': expected \"inline\" or \"file\"")]
    Delivery,
}

impl FileFault {
    pub(super) fn status(self) -> StatusCode {
        match self {
            FileFault::NotFound => StatusCode::NOT_FOUND,
            FileFault::Twice | FileFault::NoId | FileFault::Delivery => StatusCode::BAD_REQUEST,
        }
    }

    pub(super) fn outcome(self) -> &'static str {
        match self {
            FileFault::NotFound => "no_such_file",
            FileFault::Twice | FileFault::NoId | FileFault::Delivery => "invalid_arguments",
        }
    }

    pub(super) fn code(self) -> Code {
        Code::InvalidValue
    }
}
