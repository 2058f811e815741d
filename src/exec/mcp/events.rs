//! Messages in HTTP answers: event streams as they come, single messages and batches.

use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt};
use http::HeaderMap;
use rmcp::model::{ProgressNotificationParam, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::{Sse, SseStream};

use super::big;
use super::bounded::bounded_events;
use super::http::Endpoint;
use super::message::{LONGEST_MESSAGE, MOST_VALUES, ServerMessage, classify};
use crate::json;

/// One event stream of a server. Messages for rmcp pass; the rest is handled here.
pub struct EventStream {
    endpoint: Endpoint,
    /// Sent with answers to the server's requests.
    reply_headers: HeaderMap,
}

impl EventStream {
    pub fn new(endpoint: Endpoint, reply_headers: HeaderMap) -> Self {
        EventStream {
            endpoint,
            reply_headers,
        }
    }

    /// The events for rmcp, each of a bounded size, until the session is over.
    pub fn read(self, response: reqwest::Response) -> BoxStream<'static, Result<Sse, SseError>> {
        let mut lease = self.endpoint.lease();
        let session_over = async move {
            let _ = lease.changed().await;
        };
        let stream = Arc::new(self);
        SseStream::from_bytes_stream(bounded_events(response.bytes_stream(), LONGEST_MESSAGE))
            .filter_map(move |event| stream.clone().filter(event))
            .take_until(Box::pin(session_over))
            .boxed()
    }

    async fn filter(
        self: Arc<Self>,
        event: Result<Sse, SseError>,
    ) -> Option<Result<Sse, SseError>> {
        let event = match event {
            Ok(event) => event,
            Err(e) => return Some(Err(e)),
        };
        let length = event.data.as_deref().map_or(0, str::len);
        let sorted = if length <= big::SMALL {
            sort(event)
        } else {
            let big = self.endpoint.big_messages();
            let results = big.results.clone();
            let sort = move || sort_by(event, |message| results.keep(message));
            big.run(SortedEvent::Ignored, sort).await
        };
        match sorted {
            SortedEvent::ForRmcp(event) => return Some(Ok(event)),
            SortedEvent::Progress(progress) => self.endpoint.progress().route(progress),
            SortedEvent::Request(answer) => {
                self.endpoint.reply(self.reply_headers.clone(), answer);
            }
            SortedEvent::Ignored => {}
        }
        None
    }
}

/// What becomes of an event.
pub enum SortedEvent {
    ForRmcp(Sse),
    /// How far a call is.
    Progress(ProgressNotificationParam),
    /// A request to ati, with the line that answers it.
    Request(Vec<u8>),
    Ignored,
}

pub fn sort(event: Sse) -> SortedEvent {
    sort_by(event, |message| message)
}

/// `for_rmcp` gives what rmcp gets to see of a message.
fn sort_by(
    mut event: Sse,
    for_rmcp: impl FnOnce(ServerJsonRpcMessage) -> ServerJsonRpcMessage,
) -> SortedEvent {
    // ati decides itself how soon it reconnects.
    event.retry = None;
    let data = event.data.as_deref().unwrap_or_default().trim();
    // An event without data carries an id to resume at.
    if data.is_empty() {
        return SortedEvent::ForRmcp(event);
    }
    match classify(data.as_bytes()) {
        ServerMessage::Message(message) => {
            event.data = serde_json::to_string(&for_rmcp(*message)).ok();
            SortedEvent::ForRmcp(event)
        }
        ServerMessage::Progress(progress) => SortedEvent::Progress(progress),
        ServerMessage::Request(answer) => SortedEvent::Request(answer),
        ServerMessage::Ignored | ServerMessage::Garbage => SortedEvent::Ignored,
    }
}

/// The messages of a JSON body: one, or a batch of earlier revisions. None if there is no message.
pub fn messages(body: &[u8]) -> Option<Vec<ServerJsonRpcMessage>> {
    let body = body.trim_ascii();
    if let ServerMessage::Message(one) = classify(body) {
        return Some(vec![*one]);
    }
    if json::has_more_values_than(body, MOST_VALUES) {
        return None;
    }
    let batch: Vec<&serde_json::value::RawValue> = serde_json::from_slice(body).ok()?;
    let all: Vec<_> = batch
        .iter()
        .filter_map(|text| match classify(text.get().as_bytes()) {
            ServerMessage::Message(message) => Some(*message),
            _ => None,
        })
        .collect();
    (!all.is_empty()).then_some(all)
}

/// The messages as an event stream: the only form in which rmcp takes several.
pub fn replay(all: &[ServerJsonRpcMessage]) -> BoxStream<'static, Result<Sse, SseError>> {
    let events: Vec<_> = all
        .iter()
        .filter_map(|one| serde_json::to_string(one).ok())
        .map(|text| Ok(Sse::default().data(text)))
        .collect();
    stream::iter(events).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_is_read_as_one_message_or_a_batch() {
        let one = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert_eq!(messages(one.as_bytes()).unwrap().len(), 1);
        let two = format!("[{one},{one}]");
        assert_eq!(messages(two.as_bytes()).unwrap().len(), 2);
        for bad in ["", "[]", "{}", "[1]", "nonsense"] {
            assert!(messages(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}
