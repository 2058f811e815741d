//! A server that is a program: ati starts one for each client session, or one that requests of the
//! same caller share.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::Instrument;

use super::super::diagnostics::{STDERR_WAIT, TransportDiagnostics};
use super::super::lines::BoundedLines;
use super::super::message::LONGEST_MESSAGE;
use super::super::open::start_program;
use super::super::outbox::{Outbox, relayed_outbox};
use super::super::session::SessionTrace;
use super::super::stdio::{MOST_GARBAGE, read_stderr};
use super::super::{McpError, Target};
use super::routes::{Delivery, Responses, Route, Routed, Routes, cancelled};
use super::{UpstreamMessage, compact, redact, with_member};
use crate::credential::Attachment;
use crate::exec::SharedState;
use crate::process::Lifeline;
use crate::runtime::ComputePool;

/// A client that takes no message for so long loses its session: the program waits for it.
const SLOWEST_CLIENT: Duration = Duration::from_secs(30);

/// Whether one client has the program for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Everything that the program says reaches its client, requests included.
    OneClient,
    /// Requests of several clients: each gets the answers to its own.
    Shared,
}

pub struct StdioUpstream {
    provider: Arc<str>,
    outbox: Outbox,
    routes: Arc<Routes>,
    attachment: Arc<Attachment>,
    diagnostics: Arc<TransportDiagnostics>,
    ended: watch::Receiver<bool>,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
    _lifeline: Lifeline,
}

impl Drop for StdioUpstream {
    fn drop(&mut self) {
        self.reader.abort();
        self.writer.abort();
        self.routes.end_all();
    }
}

impl StdioUpstream {
    pub async fn start(
        target: &Target,
        attachment: Arc<Attachment>,
        sharing: Sharing,
        runtime: &SharedState,
    ) -> Result<Self, McpError> {
        let memory = &runtime.memory;
        let trace = SessionTrace::new(&target.provider, "stdio");
        let streams = start_program(target, &attachment)
            .instrument(trace.span.clone())
            .await
            .map_err(|error| target.redact(error, &attachment))?;
        let provider = target.provider.clone();
        let diagnostics = Arc::<TransportDiagnostics>::default();
        let stderr_log = diagnostics.open_stderr();
        let stderr = read_stderr(
            provider.clone(),
            streams.stderr,
            attachment.clone(),
            stderr_log,
        );
        tokio::spawn(stderr.instrument(trace.span.clone()));
        let (outbox, writer) = relayed_outbox(memory.clone());
        let routes = Arc::new(Routes::new(memory.clone(), sharing == Sharing::Shared));
        let (end, ended) = watch::channel(false);
        let reader = Reader {
            provider: provider.clone(),
            lines: BoundedLines::new(streams.stdout, LONGEST_MESSAGE),
            routes: routes.clone(),
            outbox: outbox.clone(),
            attachment: attachment.clone(),
            diagnostics: diagnostics.clone(),
            sharing,
            compute: runtime.compute.clone(),
        };
        let reader = async move {
            let routes = reader.routes.clone();
            reader.run().await;
            routes.end_all();
            end.send_replace(true);
        };
        Ok(StdioUpstream {
            provider,
            outbox,
            routes,
            attachment,
            diagnostics,
            ended,
            reader: tokio::spawn(reader.instrument(trace.span)),
            writer: tokio::spawn(writer.write_to(streams.stdin)),
            _lifeline: streams.lifeline,
        })
    }

    /// Sends a request under an id of ati's own. `text` is the client's message.
    pub fn request(
        &self,
        id: &RawValue,
        token: Option<&RawValue>,
        text: &[u8],
    ) -> Result<Responses, McpError> {
        let token = token.map(RawValue::get);
        let (own, queue) = self
            .routes
            .begin(id.get(), token)
            .ok_or_else(|| self.not_taken())?;
        let responses = Responses::new(queue, self.routes.clone(), self.outbox.clone(), own);
        let line = own_request(text, own, token.filter(|_| self.routes.is_shared()));
        let line = line.ok_or_else(|| self.garbage("a request that can't be rewritten"))?;
        self.send(&line)?;
        Ok(responses)
    }

    /// Sends what has no answer: a notification, or the client's answer to a request. An answer to
    /// what the program didn't ask is dropped: it could be taken for another one.
    pub fn notify(&self, text: &[u8]) -> Result<(), McpError> {
        let is_wanted = UpstreamMessage::read(text).is_some_and(|message| {
            let id = message.id.filter(|_| message.method.is_none());
            id.is_none_or(|id| self.routes.take_question(id))
        });
        if !is_wanted {
            return Ok(());
        }
        self.send(text)
    }

    /// The client takes one of its requests back. Its answer is still passed on, if one comes.
    pub fn cancel(&self, id: &RawValue) {
        if let Some(own) = self.routes.own_id(id.get()) {
            self.outbox.note(cancelled(own));
        }
    }

    /// The messages that belong to no request, from now on. None: the program has ended.
    pub fn listen(&self) -> Option<tokio::sync::mpsc::Receiver<Routed>> {
        self.routes.stand()
    }

    pub fn attachment(&self) -> &Arc<Attachment> {
        &self.attachment
    }

    pub fn is_open(&self) -> bool {
        !*self.ended.borrow()
    }

    pub fn is_idle(&self) -> bool {
        self.routes.is_idle()
    }

    /// Why no more messages come.
    pub async fn end_reason(&self) -> McpError {
        self.diagnostics
            .wait_for_stderr(Instant::now() + STDERR_WAIT)
            .await;
        self.diagnostics.cause().unwrap_or_else(|| McpError::Ended {
            provider: self.provider.to_string(),
            what: format!("the server ended{}", self.diagnostics.detail()),
        })
    }

    fn send(&self, text: &[u8]) -> Result<(), McpError> {
        let mut line = compact(text);
        line.push(b'\n');
        self.outbox.send(line).map_err(|_| self.not_taken())
    }

    fn not_taken(&self) -> McpError {
        if self.is_open() {
            McpError::Busy {
                provider: self.provider.to_string(),
            }
        } else {
            self.diagnostics.cause().unwrap_or_else(|| McpError::Ended {
                provider: self.provider.to_string(),
                what: "the server ended".to_owned(),
            })
        }
    }

    fn garbage(&self, what: &str) -> McpError {
        McpError::Garbage {
            provider: self.provider.to_string(),
            what: what.to_owned(),
        }
    }
}

/// The request under ati's id. Where clients share the program, the id is its token, too: two
/// clients may have chosen the same one.
fn own_request(text: &[u8], own: u64, token: Option<&str>) -> Option<Vec<u8>> {
    let own = own.to_string();
    let text = with_member(text, "id", &own)?;
    if token.is_none() {
        return Some(text);
    }
    let message = UpstreamMessage::read(&text)?;
    let params = message.params?.get();
    let members: crate::json::Members<'_> = serde_json::from_str(params).ok()?;
    let meta = members.0.iter().find(|(name, _)| name == "_meta")?.1;
    let meta = with_member(meta.get().as_bytes(), "progressToken", &own)?;
    let params = with_member(params.as_bytes(), "_meta", std::str::from_utf8(&meta).ok()?)?;
    with_member(&text, "params", std::str::from_utf8(&params).ok()?)
}

struct Reader {
    provider: Arc<str>,
    lines: BoundedLines<pipe::Receiver>,
    routes: Arc<Routes>,
    outbox: Outbox,
    attachment: Arc<Attachment>,
    diagnostics: Arc<TransportDiagnostics>,
    sharing: Sharing,
    compute: Arc<ComputePool>,
}

impl Reader {
    async fn run(mut self) {
        loop {
            // The program shares the worker with requests.
            tokio::task::coop::consume_budget().await;
            let line = match self.lines.next().await {
                Ok(Some(line)) => line.into_bytes(),
                Ok(None) => {
                    let deadline = Instant::now() + STDERR_WAIT;
                    self.diagnostics.wait_for_stderr(deadline).await;
                    return self.set_cause("the server ended");
                }
                Err(e) => {
                    return self.set_cause(&format!("the server wrote what can't be read: {e}"));
                }
            };
            if line.trim_ascii().is_empty() {
                continue;
            }
            if UpstreamMessage::read(&line).is_none() {
                let shown = self.attachment.redact_text(line, usize::MAX);
                if self.diagnostics.add_garbage(shown.trim()) >= MOST_GARBAGE {
                    return self.set_cause("the server speaks something else");
                }
                continue;
            }
            self.diagnostics.add_json_rpc();
            let Some(text) = self.clean(line).await else {
                return self.set_cause("the server wrote a message with too many values");
            };
            let text = text.trim_ascii().to_vec();
            match self.routes.route(text) {
                Route::Nowhere => {}
                // A server that asks without reading the answers would fill the queue.
                Route::Reply(line) => {
                    if self.outbox.send(line).is_err() {
                        return self.set_cause("the server asks more than it listens");
                    }
                }
                Route::Deliver(delivery) => {
                    if !self.deliver(delivery).await {
                        return self.set_cause("the client reads too slowly");
                    }
                }
            }
        }
    }

    /// False: the client doesn't read, and the session ends with that.
    async fn deliver(&self, delivery: Delivery) -> bool {
        let Delivery {
            to,
            message,
            request,
        } = delivery;
        match self.sharing {
            Sharing::OneClient => {
                let sent = to.send_timeout(message, SLOWEST_CLIENT).await;
                !matches!(
                    sent,
                    Err(tokio::sync::mpsc::error::SendTimeoutError::Timeout(_))
                )
            }
            // The others don't wait for a slow one: its stream ends.
            Sharing::Shared => {
                if to.try_send(message).is_err()
                    && let Some(request) = request
                {
                    self.routes.end(request);
                }
                true
            }
        }
    }

    async fn clean(&self, line: Vec<u8>) -> Option<Vec<u8>> {
        let line = vec![line.into()];
        redact::clean(&self.attachment, line, &self.compute, &self.provider).await
    }

    fn set_cause(&self, what: &str) {
        let what = format!("{what}{}", self.diagnostics.detail());
        let provider = self.provider.to_string();
        self.diagnostics
            .set_cause(if self.diagnostics.sent_only_garbage() {
                McpError::Garbage { provider, what }
            } else {
                McpError::Ended { provider, what }
            });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_gets_an_id_of_atis_own_and_a_token_where_clients_share() {
        let text = br#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"x","_meta":{"progressToken":"t","k":1.0}}}"#;
        let own = |token| String::from_utf8(own_request(text, 5, token).unwrap()).unwrap();
        assert!(own(None).contains(r#""id":5,"#) && own(None).contains(r#""progressToken":"t""#));
        let shared = own(Some("\"t\""));
        assert!(
            shared.contains(r#""_meta":{"progressToken":5,"k":1.0}"#),
            "{shared}"
        );
    }
}
