//! The statuses of answers that are no refusal.

use http::StatusCode;

/// How a request succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Success {
    /// The answer is in the body.
    Answered,
    /// What was sent is kept.
    Created,
    /// The request was taken, and there is nothing to say about it.
    Accepted,
}

impl Success {
    pub fn status(self) -> StatusCode {
        match self {
            Success::Answered => StatusCode::OK,
            Success::Created => StatusCode::CREATED,
            Success::Accepted => StatusCode::ACCEPTED,
        }
    }
}
