//! A call's answer as an event stream: reports of its progress, then the response.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::http::{self, Response};
use super::render::TextStream;
use super::{Exchange, respond};
use crate::api::{ReplyStream, StreamError};
use crate::exec::Progress;
use crate::mcp::ClientRequest;

/// Reports that wait to be sent. More at once are dropped.
const QUEUED_REPORTS: usize = 16;
/// A comment is sent after this time without a report, so that servers on the way keep the
/// connection open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

type Answering = Pin<Box<dyn Future<Output = Option<Response>> + Send>>;

enum State {
    Running {
        answer: Answering,
        reports: mpsc::Receiver<Bytes>,
    },
    /// The response as one event, its end included.
    Sending(TextStream),
    Done,
}

/// The stream owns the call: a client that leaves drops it.
pub fn events(request: ClientRequest, exchange: Exchange) -> ReplyStream {
    let (sender, reports) = mpsc::channel(QUEUED_REPORTS);
    let answer = Box::pin(async move {
        let show = |progress: &Progress| {
            if let Some(token) = &request.progress_token {
                let _ = sender.try_send(report(token, progress));
            }
        };
        let running = exchange
            .services
            .mcp_calls
            .begin(&exchange.identity, &request.id);
        let answered = tokio::select! {
            answered = respond(&request, &exchange, Some(&show)) => answered,
            // A client that has taken its call back wants no response.
            () = running.cancelled() => return None,
        };
        if let Err(error) = &answered {
            http::count(error, &exchange);
        }
        Some(http::response(&request, answered))
    });
    let state = State::Running { answer, reports };
    stream::unfold(state, |state| async move { next(state).await }).boxed()
}

async fn next(mut state: State) -> Option<(Result<Bytes, StreamError>, State)> {
    loop {
        state = match state {
            State::Running {
                mut answer,
                mut reports,
            } => {
                tokio::select! {
                    biased;
                    Some(report) = reports.recv() => {
                        return Some((Ok(report), State::Running { answer, reports }));
                    }
                    response = &mut answer => match response {
                        None => return None,
                        Some(response) => {
                            // Reports that came with the response, and go before it.
                            let mut last = Vec::new();
                            while let Ok(report) = reports.try_recv() {
                                last.push(Ok(report));
                            }
                            State::Sending(stream::iter(last).chain(event(response)).boxed())
                        }
                    },
                    () = tokio::time::sleep(KEEP_ALIVE) => {
                        let comment = Bytes::from_static(b": still running\n\n");
                        return Some((Ok(comment), State::Running { answer, reports }));
                    }
                }
            }
            State::Sending(mut text) => match text.next().await {
                Some(Ok(piece)) => return Some((Ok(piece), State::Sending(text))),
                Some(Err(e)) => return Some((Err(e.into()), State::Done)),
                None => return None,
            },
            State::Done => return None,
        };
    }
}

/// The response is one line, so that it is one `data` field.
fn event(response: Response) -> TextStream {
    let piece = |text: &'static [u8]| stream::once(async move { Ok(Bytes::from_static(text)) });
    piece(b"event: message\ndata: ")
        .chain(response.into_stream())
        .chain(piece(b"\n\n"))
        .boxed()
}

fn report(token: &RawValue, progress: &Progress) -> Bytes {
    let line = notification(token, progress);
    Bytes::from(format!("event: message\ndata: {line}\n\n"))
}

/// `notifications/progress`.
pub fn notification(token: &RawValue, progress: &Progress) -> String {
    let mut params = json!({"progressToken": token, "progress": progress.done});
    if let Some(total) = progress.total {
        params["total"] = total.into();
    }
    if let Some(message) = &progress.message {
        params["message"] = message.as_str().into();
    }
    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).to_string()
}
