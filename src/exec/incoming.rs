//! An answer of a tool's upstream, from whichever client read it.

use std::sync::Arc;

use super::egress::failed_at;
use crate::egress::http1::{self, SendError};
use crate::egress::{EgressError, Origin};

pub struct Incoming {
    answer: From,
    /// Errors tell no more of a URL than that.
    origin: Arc<Origin>,
}

enum From {
    Http1(Box<http1::Answer>),
    Reqwest(Box<reqwest::Response>),
}

impl Incoming {
    pub fn http1(answer: Box<http1::Answer>, origin: Arc<Origin>) -> Self {
        Incoming {
            answer: From::Http1(answer),
            origin,
        }
    }

    pub fn reqwest(response: reqwest::Response, origin: Arc<Origin>) -> Self {
        Incoming {
            answer: From::Reqwest(Box::new(response)),
            origin,
        }
    }

    pub fn status(&self) -> u16 {
        match &self.answer {
            From::Http1(answer) => answer.status(),
            From::Reqwest(response) => response.status().as_u16(),
        }
    }

    pub fn location(&self) -> Option<&[u8]> {
        match &self.answer {
            From::Http1(answer) => answer.location(),
            From::Reqwest(response) => {
                let location = response.headers().get(::http::header::LOCATION);
                location.map(::http::HeaderValue::as_bytes)
            }
        }
    }

    /// Bytes of the body, where its head says so.
    pub fn announced(&self) -> u64 {
        match &self.answer {
            From::Http1(answer) => answer.announced(),
            From::Reqwest(response) => response.content_length().unwrap_or(0),
        }
    }

    /// Appends the next piece of the body. False: the body has ended.
    pub async fn read_into(&mut self, out: &mut Vec<u8>) -> Result<bool, EgressError> {
        match &mut self.answer {
            From::Http1(answer) => {
                let read = answer.read_into(out).await;
                read.map_err(|error| Incoming::failed(error, &self.origin))
            }
            From::Reqwest(response) => {
                let chunk = response.chunk().await;
                let chunk = chunk.map_err(|e| failed_at(&e, self.origin.as_str()))?;
                out.extend_from_slice(chunk.as_deref().unwrap_or_default());
                Ok(chunk.is_some())
            }
        }
    }

    pub fn failed(error: SendError, origin: &Origin) -> EgressError {
        match error {
            SendError::Blocked => EgressError::Blocked(origin.as_str().to_owned()),
            SendError::Fault(fault) => EgressError::Request(fault),
            SendError::Doubt(doubt) => EgressError::Answer(doubt),
            SendError::Setup(problem) => EgressError::Setup(problem.to_string()),
            // The caller goes on with the other client.
            SendError::Http2 => EgressError::Request(crate::error::UpstreamFault::Protocol),
        }
    }
}
