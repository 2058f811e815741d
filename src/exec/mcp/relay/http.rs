//! A server behind a URL: one request of a client is one request to it.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use sse_stream::SseStream;

use super::super::bounded::{BodyError, budgeted_events, read_beginning, read_within};
use super::super::content_type::{ContentType, content_type};
use super::super::message::{LONGEST_MESSAGE, LONGEST_MESSAGE_MB};
use super::super::{LONGEST_ERROR, McpError, ServerSpec, Target, send};
use super::{Event, Events, Held, redact};
use crate::budget::Budget;
use crate::credential::Attachment;
use crate::egress::{Clients, EgressError};
use crate::error::Shortage;
use crate::exec::ExecContext;
use crate::request_id::{self, RequestId};
use crate::runtime::ComputePool;
use crate::telemetry::otel::Traceparent;

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
    traceparent: Option<Traceparent>,
    reading: Reading,
}

/// What messages are read with.
#[derive(Clone)]
struct Reading {
    provider: Arc<str>,
    attachment: Arc<Attachment>,
    memory: Arc<Budget>,
    compute: Arc<ComputePool>,
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
    Message(Held),
    Events(Events),
    /// The beginning of a text that is no message, redacted.
    Text(String),
}

impl HttpUpstream {
    pub fn new(target: Arc<Target>, attachment: Arc<Attachment>, context: ExecContext<'_>) -> Self {
        let reading = Reading {
            provider: target.provider.clone(),
            attachment: attachment.clone(),
            memory: context.runtime.memory.clone(),
            compute: context.runtime.compute.clone(),
        };
        HttpUpstream {
            target,
            clients: context.clients.clone(),
            attachment,
            request_id: context.request_id,
            traceparent: context.trail.traceparent(),
            reading,
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
        if let Some(parent) = self.traceparent {
            parent.insert(&mut headers);
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
                let mut memory = self.reading.memory.share();
                let body = read_within(response, most, &mut memory).await;
                let body = body.map_err(|error| match error {
                    BodyError::NoMemory => no_memory(),
                    _ => self.garbage(format!(
                        "an answer of more than {LONGEST_MESSAGE_MB} MB, or a broken one"
                    )),
                })?;
                let held = self.reading.clean(body).await?;
                drop(memory);
                Ok(HttpBody::Message(held))
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
        let reading = self.reading.clone();
        let memory = reading.memory.share();
        let bytes = budgeted_events(response.bytes_stream(), LONGEST_MESSAGE, memory);
        let events = SseStream::from_bytes_stream(bytes).then(move |event| {
            let reading = reading.clone();
            async move {
                let event = event.map_err(|error| reading.broken(&error))?;
                let data = event.data.filter(|data| !data.trim().is_empty());
                let data = match data {
                    None => None,
                    Some(data) => Some(reading.clean(vec![data.into()]).await?),
                };
                Ok(Event {
                    id: event.id.filter(|id| reading.is_clean(id)),
                    retry: event.retry,
                    data,
                })
            }
        });
        events.boxed()
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

fn no_memory() -> McpError {
    EgressError::Busy(Shortage::Memory).into()
}

impl Reading {
    /// The message without secrets. Its own memory is taken before it is put together.
    async fn clean(&self, pieces: Vec<Bytes>) -> Result<Held, McpError> {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let mut memory = self.memory.share();
        memory.grow(length as u64).map_err(|_| no_memory())?;
        let text = redact::clean(&self.attachment, pieces, &self.compute, &self.provider).await;
        let text = text.ok_or_else(|| self.garbage("a message with too many values"))?;
        Ok(Held { text, memory })
    }

    /// An id that would tell a secret isn't passed on: the stream can't be resumed there.
    fn is_clean(&self, id: &str) -> bool {
        let mut text = id.as_bytes().to_vec();
        self.attachment.redact(&mut text);
        text == id.as_bytes()
    }

    fn broken(&self, error: &sse_stream::Error) -> McpError {
        if let sse_stream::Error::Body(error) = error
            && let Some(BodyError::NoMemory) = error.downcast_ref()
        {
            return no_memory();
        }
        self.garbage("the event stream broke off")
    }

    fn garbage(&self, what: &str) -> McpError {
        McpError::Garbage {
            provider: self.provider.to_string(),
            what: what.to_owned(),
        }
    }
}
