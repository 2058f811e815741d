//! A server behind a URL: one request of a client is one request to it.

use std::sync::Arc;

use futures::StreamExt;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use sse_stream::SseStream;

use super::super::bounded::{bounded_events, read_beginning, read_whole};
use super::super::content_type::{ContentType, content_type};
use super::super::message::{LONGEST_MESSAGE, LONGEST_MESSAGE_MB};
use super::super::{LONGEST_ERROR, McpError, ServerSpec, Target, send};
use super::{Event, Events, redact};
use crate::credential::Attachment;
use crate::egress::{Clients, EgressError};
use crate::exec::ExecContext;
use crate::request_id::{self, RequestId};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const JSON_OR_EVENTS: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
/// More of a refusal is read than is told, so that a secret that the cut would split is redacted.
const READ_OF_REFUSAL: usize = 64 << 10;
/// A refusal up to this size may be a JSON-RPC error.
const LONGEST_REFUSAL: usize = 1 << 20;

/// The server as one request reaches it.
pub struct HttpUpstream {
    target: Arc<Target>,
    clients: Arc<Clients>,
    attachment: Arc<Attachment>,
    request_id: RequestId,
}

pub struct HttpReply {
    pub status: u16,
    /// The server's own session.
    pub session: Option<HeaderValue>,
    pub body: HttpBody,
}

pub enum HttpBody {
    /// 202 and 204, and what is neither JSON nor an event stream in the answer to a notification.
    Nothing,
    /// One message, redacted.
    Message(Vec<u8>),
    Events(Events),
    /// The beginning of a text that is no message, redacted.
    Text(String),
}

impl HttpUpstream {
    pub fn new(target: Arc<Target>, attachment: Arc<Attachment>, context: ExecContext<'_>) -> Self {
        HttpUpstream {
            target,
            clients: context.clients.clone(),
            attachment,
            request_id: context.request_id,
        }
    }

    pub fn attachment(&self) -> &Arc<Attachment> {
        &self.attachment
    }

    /// Sends one request. `headers` are those of the client that concern the protocol.
    pub async fn send(
        &self,
        method: Method,
        mut headers: HeaderMap,
        body: Option<Vec<u8>>,
    ) -> Result<HttpReply, McpError> {
        let ServerSpec::Endpoint(url) = &self.target.server else {
            return Err(EgressError::Setup("this provider has no URL".to_owned()).into());
        };
        headers.insert(ACCEPT, JSON_OR_EVENTS);
        if body.is_some() {
            headers.insert(CONTENT_TYPE, JSON);
        }
        let id = self.request_id.text();
        if let Ok(id) = HeaderValue::from_bytes(id.as_bytes()) {
            headers.insert(request_id::HEADER, id);
        }
        let response = send(
            &self.clients,
            self.target.source,
            url,
            &self.attachment,
            method,
            headers,
            body,
        );
        let response = response
            .await
            .map_err(|error| self.target.redact(error.into(), &self.attachment))?;
        Ok(HttpReply {
            status: response.status().as_u16(),
            session: response.headers().get(SESSION).cloned(),
            body: self.read(response).await?,
        })
    }

    async fn read(&self, response: reqwest::Response) -> Result<HttpBody, McpError> {
        let status = response.status();
        if matches!(status.as_u16(), 202 | 204) {
            return Ok(HttpBody::Nothing);
        }
        match content_type(&response) {
            ContentType::Events if status.is_success() => {
                Ok(HttpBody::Events(self.events(response)))
            }
            ContentType::Json => {
                let most = if status.is_success() {
                    LONGEST_MESSAGE
                } else {
                    LONGEST_REFUSAL
                };
                let body = read_whole(response, most).await;
                let body = body.map_err(|_| {
                    self.garbage(format!(
                        "an answer of more than {LONGEST_MESSAGE_MB} MB, or a broken one"
                    ))
                })?;
                Ok(HttpBody::Message(self.clean(body.concat()).await?))
            }
            ContentType::Events | ContentType::Other => {
                let text = read_beginning(response, READ_OF_REFUSAL).await;
                let text = text.unwrap_or_default();
                let text = text.trim_ascii();
                Ok(HttpBody::Text(
                    self.attachment.redact_cut_text(text, LONGEST_ERROR),
                ))
            }
        }
    }

    /// The events as they come. None is read before the last one was taken.
    fn events(&self, response: reqwest::Response) -> Events {
        let (attachment, provider) = (self.attachment.clone(), self.target.provider.clone());
        let broken = move |what: &str| McpError::Garbage {
            provider: provider.to_string(),
            what: what.to_owned(),
        };
        let bytes = bounded_events(response.bytes_stream(), LONGEST_MESSAGE);
        let events = SseStream::from_bytes_stream(bytes).then(move |event| {
            let (attachment, broken) = (attachment.clone(), broken.clone());
            async move {
                let event = event.map_err(|_| broken("the event stream broke off"))?;
                let data = event.data.filter(|data| !data.trim().is_empty());
                let data = match data {
                    None => None,
                    Some(data) => {
                        let clean = redact::clean(&attachment, data.into_bytes()).await;
                        Some(clean.ok_or_else(|| broken("a message with too many values"))?)
                    }
                };
                Ok(Event {
                    id: event.id,
                    retry: event.retry,
                    data,
                })
            }
        });
        events.boxed()
    }

    async fn clean(&self, text: Vec<u8>) -> Result<Vec<u8>, McpError> {
        let clean = redact::clean(&self.attachment, text).await;
        clean.ok_or_else(|| self.garbage("an answer with too many values".to_owned()))
    }

    /// The error of an answer that carries no message.
    pub fn refusal(&self, status: u16, body: &str) -> McpError {
        McpError::Status {
            provider: self.target.provider.to_string(),
            status,
            body: body.to_owned(),
        }
    }

    pub fn garbage(&self, what: String) -> McpError {
        McpError::Garbage {
            provider: self.target.provider.to_string(),
            what,
        }
    }
}
