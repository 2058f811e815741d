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
    /// The caller has the answer already: `If-None-Match`.
    NotModified,
}

impl Success {
    pub fn status(self) -> StatusCode {
        match self {
            Success::Answered => StatusCode::OK,
            Success::Created => StatusCode::CREATED,
            Success::Accepted => StatusCode::ACCEPTED,
            Success::NotModified => StatusCode::NOT_MODIFIED,
        }
    }

    /// The status of a JSON-RPC answer that a server gave with this one. In the stateless era some
    /// errors have a status of their own.
    pub fn relayed(status: u16) -> StatusCode {
        match status {
            400 => StatusCode::BAD_REQUEST,
            404 => StatusCode::NOT_FOUND,
            _ => StatusCode::OK,
        }
    }
}
