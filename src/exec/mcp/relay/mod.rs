//! A server as it is, for clients that speak MCP themselves (`/mcp/{provider}`): messages pass as
//! text in both directions, requests of the server included. rmcp isn't used here: its service
//! parses messages into types of its own and answers for its user, and what it doesn't know would
//! be lost on the way.
//!
//! [`HttpUpstream`] is a server behind a URL: each request has its own answer, and nothing is kept.
//! [`StdioUpstream`] is a program with one stream for all messages, which are told apart by ids.

mod http;
mod message;
mod redact;
mod routes;
mod stdio;

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;

pub use http::{HttpBody, HttpReply, HttpUpstream};
pub use message::{UpstreamMessage, compact, with_id, with_member};
pub use routes::Responses;
pub use stdio::{Sharing, StdioUpstream};

use super::{McpError, ServerSpec, Target};
use crate::budget::Share;
use crate::credential::Attachment;
use crate::exec::ExecContext;
use crate::exec::credentials::{obtain, renew_after_refusal};

/// One event of a stream: a message, or only an id to resume at.
#[derive(Debug, Default)]
pub struct Event {
    pub id: Option<String>,
    pub retry: Option<u64>,
    /// JSON text, redacted.
    pub data: Option<Held>,
}

/// A text, and its part of the memory that calls share.
#[derive(Debug)]
pub struct Held {
    pub text: Vec<u8>,
    pub memory: Share,
}

impl Held {
    /// The text as a body, which holds the memory until it is sent.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

impl Event {
    pub fn message(data: Held) -> Self {
        Event {
            data: Some(data),
            ..Event::default()
        }
    }
}

/// Nothing follows an error.
pub type Events = BoxStream<'static, Result<Event, McpError>>;

/// The credential for the next request, minted where it has to be.
pub async fn attachment(
    target: &Target,
    context: ExecContext<'_>,
) -> Result<Arc<Attachment>, McpError> {
    Ok(obtain(&target.credential, target.source, context).await?)
}

/// After a 401: whether a new credential is worth another request.
pub fn renew(target: &Target, refused: &Arc<Attachment>, context: ExecContext<'_>) -> bool {
    renew_after_refusal(&target.credential, refused, context)
}

impl Target {
    /// Whether ati starts the server as a program.
    pub fn is_program(&self) -> bool {
        matches!(self.server, ServerSpec::Program { .. })
    }
}
