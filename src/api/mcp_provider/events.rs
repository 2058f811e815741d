//! Event streams to clients.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::HeaderValue;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Exchange;
use super::passing::Passing;
use super::sessions::InUse;
use crate::api::{Reply, StreamError};
use crate::error::{CallError, ExecError};
use crate::exec::mcp::McpError;
use crate::exec::mcp::relay::{Event, Events, Held, compact};

/// A comment is sent after this time without an event: servers on the way keep the connection open,
/// and a client that has left is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What an event stream ends with, other than its last event.
pub struct Ends {
    /// The session is over.
    pub session: Option<watch::Receiver<bool>>,
    /// The process drains, and the stream has no end of its own.
    pub drain: Option<watch::Receiver<bool>>,
    /// The caller's token expires, and the stream has no end of its own.
    pub expiry: Option<Instant>,
    /// The server has been silent for so long. None where silence is no failure.
    pub silence: Option<Duration>,
}

impl Ends {
    /// Of the stream that answers a request of this method, or of one that answers none.
    pub fn of(method: &str, session: Option<watch::Receiver<bool>>, exchange: &Exchange) -> Self {
        if method == "subscriptions/listen" || method.is_empty() {
            return Ends {
                session,
                drain: Some(exchange.services.provider_sessions.draining()),
                expiry: exchange.expiry(),
                silence: None,
            };
        }
        Ends {
            session,
            drain: None,
            expiry: None,
            silence: Some(exchange.longest_silence()),
        }
    }
}

struct Sending {
    events: Events,
    passing: Passing,
    /// The client can ask for the rest of the stream later.
    is_resumable: bool,
    in_use: Option<InUse>,
    ends: Ends,
    /// When the server said something last.
    last_event: Instant,
}

/// The events as they come, until the answer. The stream owns the request: a client that leaves
/// drops it.
pub fn reply(events: Events, passing: Passing, in_use: Option<InUse>, ends: Ends) -> Reply {
    let sending = Sending {
        events,
        passing,
        is_resumable: false,
        in_use,
        ends,
        last_event: Instant::now(),
    };
    let body = stream::unfold(Some(sending), |sending| async move {
        let mut sending = sending?;
        let (piece, goes_on) = sending.next().await?;
        let next = goes_on.then_some(sending);
        Some((Ok::<_, StreamError>(piece), next))
    });
    let mut reply = Reply::stream(HeaderValue::from_static("text/event-stream"), body.boxed());
    let no_store = HeaderValue::from_static("no-cache");
    reply.headers.push((http::header::CACHE_CONTROL, no_store));
    reply
}

impl Sending {
    /// The next piece, and whether more follow.
    async fn next(&mut self) -> Option<(Bytes, bool)> {
        let event = tokio::select! {
            biased;
            event = self.events.next() => event,
            () = is_true(self.ends.session.as_mut()) => None,
            () = is_true(self.ends.drain.as_mut()) => None,
            () = is_over(self.ends.expiry) => None,
            () = is_over(self.ends.silence.map(|silence| self.last_event + silence)) => {
                let seconds = self.ends.silence.unwrap_or_default().as_secs();
                let provider = self.passing.provider.name.clone();
                Some(Err(McpError::Timeout { provider, seconds }))
            }
            () = tokio::time::sleep(KEEP_ALIVE) => {
                return Some((Bytes::from_static(b":\n\n"), true));
            }
        };
        match event {
            Some(Ok(event)) => {
                self.last_event = Instant::now();
                let (piece, is_answer) = self.pass(event);
                if is_answer {
                    self.complete();
                }
                Some((piece, !is_answer))
            }
            Some(Err(error)) => self.fail(error).map(|piece| (piece, false)),
            None => {
                // The server ended the stream to be asked again: the request goes on.
                if self.is_resumable {
                    self.passing.end(None);
                }
                self.complete();
                None
            }
        }
    }

    fn pass(&mut self, event: Event) -> (Bytes, bool) {
        self.is_resumable |= event.id.is_some();
        let (data, is_answer) = match event.data {
            Some(data) => {
                let (data, is_answer) = self.passing.pass(data);
                (Some(data), is_answer)
            }
            None => (None, false),
        };
        let mut text = Vec::with_capacity(data.as_ref().map_or(0, |data| data.text.len()) + 64);
        if let Some(id) = &event.id {
            let id: String = id.chars().filter(|c| !c.is_control()).collect();
            text.extend_from_slice(format!("id: {id}\n").as_bytes());
        }
        if let Some(retry) = event.retry {
            text.extend_from_slice(format!("retry: {retry}\n").as_bytes());
        }
        let memory = match data {
            Some(data) => {
                text.extend_from_slice(b"event: message\ndata: ");
                text.extend_from_slice(&compact(&data.text));
                Some(data.memory)
            }
            None => {
                text.extend_from_slice(b"data:");
                None
            }
        };
        text.extend_from_slice(b"\n\n");
        let piece = match memory {
            Some(memory) => Held { text, memory }.into_bytes(),
            None => text.into(),
        };
        (piece, is_answer)
    }

    /// The server broke off: the client is told in an answer of ati's own.
    fn fail(&mut self, error: McpError) -> Option<Bytes> {
        let passing = &mut self.passing;
        if passing.id.is_empty() {
            return None;
        }
        let error = CallError::Exec(ExecError::from(error));
        passing.end(Some(&error));
        let text = super::failure_text(&passing.id, &passing.method, passing.era, &error);
        self.complete();
        let mut event = b"event: message\ndata: ".to_vec();
        event.extend_from_slice(&text);
        event.extend_from_slice(b"\n\n");
        Some(event.into())
    }

    fn complete(&mut self) {
        if let Some(in_use) = &mut self.in_use {
            in_use.complete();
        }
    }
}

async fn is_over(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn is_true(flag: Option<&mut watch::Receiver<bool>>) {
    match flag {
        Some(flag) => {
            // Its sender is gone: nothing will change.
            if flag.wait_for(|set| *set).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        None => std::future::pending().await,
    }
}
