//! What an endpoint answers: a status, headers, and a body that is whole or a stream.

use std::error::Error;
use std::pin::Pin;

use bytes::Bytes;
use futures::Stream;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;

use crate::error::{Refusal, Success};
use crate::request_id::RequestId;

/// An error in the middle ends the connection without a clean end, so that the caller can tell an
/// incomplete body from a complete one. The error itself goes to the log.
pub type ReplyStream = Pin<Box<dyn Stream<Item = Result<Bytes, StreamError>> + Send>>;
pub type StreamError = Box<dyn Error + Send + Sync>;

pub struct Reply {
    pub status: StatusCode,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: ReplyBody,
}

pub enum ReplyBody {
    Whole(Bytes),
    /// Written piece by piece, each as soon as it is there.
    Stream(ReplyStream),
}

impl Reply {
    pub fn json(id: RequestId, value: &impl Serialize) -> Result<Self, Refusal> {
        let body = serde_json::to_vec(value).map_err(|e| not_json(id, &e))?;
        Ok(Reply::from_json(body.into()))
    }

    pub fn from_json(body: Bytes) -> Self {
        let json = HeaderValue::from_static("application/json");
        Reply {
            status: Success::Answered.status(),
            headers: vec![(CONTENT_TYPE, json)],
            body: ReplyBody::Whole(body),
        }
    }

    pub fn stream(content_type: HeaderValue, stream: ReplyStream) -> Self {
        Reply {
            status: Success::Answered.status(),
            headers: vec![(CONTENT_TYPE, content_type)],
            body: ReplyBody::Stream(stream),
        }
    }
}

/// A defect of ati: the caller learns no more than that, the log has the cause.
fn not_json(id: RequestId, cause: &serde_json::Error) -> Refusal {
    tracing::error!(request_id = %id, error = %cause, "an answer can't be written as JSON");
    Refusal::Internal
}
