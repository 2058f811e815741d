//! The stdio transport: the server is a child process of ati, and its standard streams carry one
//! JSON-RPC message per line. rmcp reads and writes through it, and calls of tools share it
//! (calls.rs): their answers are taken out here, before rmcp sees them.

use std::future::Future;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, RequestId, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;
use tokio::task::coop::consume_budget;
use tokio::time::Instant;
use tracing::Instrument;

use super::McpError;
use super::big::{self, BigMessages};
use super::calls::{CallAnswer, StdioCalls, WaitingCalls};
use super::diagnostics::{STDERR_WAIT, StderrLog, TransportDiagnostics};
use super::lines::BoundedLines;
use super::message::{LONGEST_MESSAGE, ServerMessage, classify, plain_answer};
use super::outbox::{Outbox, outbox};
use super::progress::ProgressRoutes;
use super::session::SessionLink;
use crate::credential::Attachment;
use crate::process::{Lifeline, Streams};

/// After so many lines in a row that aren't JSON-RPC, the program is no MCP server.
pub(super) const MOST_GARBAGE: usize = 1000;
/// More of a line is read than is kept, so that a secret that the cut would split is redacted.
const LONGEST_STDERR_LINE: usize = 64 << 10;
const SHOWN_STDERR_LINE: usize = 4096;

pub struct StdioTransport {
    provider: Arc<str>,
    /// None once the transport is closed.
    outbox: Option<Outbox>,
    stdout: BoundedLines<pipe::Receiver>,
    big: BigMessages,
    /// A big line that is being parsed on another thread. Kept here because rmcp may drop a
    /// `receive` and start another, which goes on with it.
    parsing: Option<BoxFuture<'static, ParsedLine>>,
    /// Set when stdout has ended: until then the end of stderr is waited for.
    stderr_deadline: Option<Instant>,
    diagnostics: Arc<TransportDiagnostics>,
    progress: Arc<ProgressRoutes>,
    waiting: Arc<WaitingCalls>,
    attachment: Arc<Attachment>,
    /// The `server/discover` request that is under way.
    probe: Option<RequestId>,
    /// A probe that rmcp gave up for `initialize`. Its late answer is dropped.
    abandoned_probe: Option<RequestId>,
    _lifeline: Lifeline,
    /// Aborted with the transport, even in the middle of a write: the child's input closes, which
    /// tells the child to end.
    writer: JoinHandle<()>,
}

impl Drop for StdioTransport {
    fn drop(&mut self) {
        self.writer.abort();
        self.waiting.end();
    }
}

impl StdioTransport {
    pub fn new(
        provider: &Arc<str>,
        streams: Streams,
        attachment: Arc<Attachment>,
        link: &SessionLink,
    ) -> Self {
        let (outbox, writer) = outbox();
        // Opened here and not in the task: stdout may end before the task runs.
        let stderr_log = link.diagnostics.open_stderr();
        let (of, redaction) = (provider.clone(), attachment.clone());
        tokio::spawn(read_stderr(of, streams.stderr, redaction, stderr_log).in_current_span());
        StdioTransport {
            provider: provider.clone(),
            outbox: Some(outbox),
            writer: tokio::spawn(writer.write_to(streams.stdin)),
            stdout: BoundedLines::new(streams.stdout, LONGEST_MESSAGE),
            big: link.big_messages(provider),
            parsing: None,
            stderr_deadline: None,
            diagnostics: link.diagnostics.clone(),
            progress: link.progress.clone(),
            waiting: Arc::default(),
            attachment,
            probe: None,
            abandoned_probe: None,
            _lifeline: streams.lifeline,
        }
    }

    /// The way for calls of tools, for as long as the transport lasts.
    pub fn calls(&self) -> Option<StdioCalls> {
        let outbox = self.outbox.clone()?;
        Some(StdioCalls::new(outbox, self.waiting.clone()))
    }

    /// The last lines on stderr say why a server ended, and may be read after the end of stdout.
    async fn wait_for_stderr(&mut self) {
        let latest = || Instant::now() + STDERR_WAIT;
        let deadline = *self.stderr_deadline.get_or_insert_with(latest);
        self.diagnostics.wait_for_stderr(deadline).await;
    }

    fn set_cause(&self, what: &str) {
        let what = format!("{what}{}", self.diagnostics.detail());
        let provider = self.provider.to_string();
        let cause = if self.diagnostics.sent_only_garbage() {
            McpError::Garbage { provider, what }
        } else {
            McpError::Ended { provider, what }
        };
        self.diagnostics.set_cause(cause);
        // Their callers are told the cause.
        self.waiting.end();
    }

    /// Gives plain answers to their calls, until there is something else to read.
    async fn deliver_answers(&mut self) {
        while self.stdout.wait().await {
            let waiting = &self.waiting;
            let done = |line: &[u8]| is_delivered(line, waiting);
            while self.stdout.skip_if(big::SMALL, done) {
                self.diagnostics.add_json_rpc();
                consume_budget().await;
            }
            if self.stdout.has_unread() {
                return;
            }
        }
    }

    /// What rmcp receives for a line, if anything. None ends the session.
    fn take(&mut self, line: ParsedLine) -> ControlFlow<Option<ServerJsonRpcMessage>> {
        let message = match line {
            ParsedLine::Empty => return ControlFlow::Continue(()),
            ParsedLine::Garbage(line) => {
                if self.diagnostics.add_garbage(&line) >= MOST_GARBAGE {
                    self.set_cause("the server speaks something else");
                    return ControlFlow::Break(None);
                }
                return ControlFlow::Continue(());
            }
            ParsedLine::Message(message) => message,
        };
        self.diagnostics.add_json_rpc();
        match message {
            ServerMessage::Message(message) if self.answers_abandoned_probe(&message) => {}
            ServerMessage::Message(message) => {
                if let Some(message) = self.waiting.deliver_parsed(message) {
                    return ControlFlow::Break(Some(*message));
                }
            }
            ServerMessage::Progress(progress) => self.progress.route(progress),
            ServerMessage::Ignored | ServerMessage::Garbage => {}
            // A server that asks without reading the answers would fill the queue.
            ServerMessage::Request(answer) => {
                let sent = self.outbox.as_ref().map(|outbox| outbox.send(answer));
                if !matches!(sent, Some(Ok(()))) {
                    self.set_cause("the server asks more than it listens");
                    return ControlFlow::Break(None);
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether this answers the probe that rmcp gave up: a server that starts slowly answers late.
    fn answers_abandoned_probe(&mut self, message: &ServerJsonRpcMessage) -> bool {
        let id = match message {
            ServerJsonRpcMessage::Response(answer) => Some(&answer.id),
            ServerJsonRpcMessage::Error(answer) => answer.id.as_ref(),
            _ => None,
        };
        let late = id.is_some() && id == self.abandoned_probe.as_ref();
        if late {
            self.abandoned_probe = None;
        }
        late
    }
}

/// Whether the line is a plain answer to a call, which has it now.
fn is_delivered(line: &[u8], waiting: &WaitingCalls) -> bool {
    let Some((id, result)) = plain_answer(line.trim_ascii()) else {
        return false;
    };
    waiting.deliver(id, || CallAnswer::Result(result.into()))
}

/// One line of a server.
enum ParsedLine {
    /// White space, or what can't be parsed at all.
    Empty,
    /// Not JSON-RPC. Redacted.
    Garbage(String),
    Message(ServerMessage),
}

impl ParsedLine {
    fn new(line: &[u8], attachment: &Attachment) -> Self {
        let line = line.trim_ascii();
        if line.is_empty() {
            return ParsedLine::Empty;
        }
        match classify(line) {
            ServerMessage::Garbage => {
                ParsedLine::Garbage(attachment.redact_text(line, LONGEST_STDERR_LINE))
            }
            message => ParsedLine::Message(message),
        }
    }
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        if let ClientJsonRpcMessage::Request(request) = &message {
            match &request.request {
                ClientRequest::DiscoverRequest(_) => self.probe = Some(request.id.clone()),
                ClientRequest::InitializeRequest(_) => self.abandoned_probe = self.probe.take(),
                _ => {}
            }
        }
        let (outbox, big) = (self.outbox.clone(), self.big.clone());
        async move {
            let mut line = big.encode(message).await?;
            line.push(b'\n');
            let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
            outbox.ok_or_else(closed)?.send(line)
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(parsing) = &mut self.parsing {
                let parsed = parsing.await;
                self.parsing = None;
                match self.take(parsed) {
                    ControlFlow::Continue(()) => continue,
                    ControlFlow::Break(received) => return received,
                }
            }
            // The server shares the worker with requests: it may not keep it for all that it says.
            consume_budget().await;
            self.deliver_answers().await;
            let line = match self.stdout.next().await {
                Ok(Some(line)) => line,
                Ok(None) => {
                    self.wait_for_stderr().await;
                    self.set_cause("the server ended");
                    return None;
                }
                Err(e) => {
                    self.set_cause(&format!("the server wrote what can't be read: {e}"));
                    return None;
                }
            };
            if line.len() > big::SMALL {
                let attachment = self.attachment.clone();
                let parse = move || ParsedLine::new(&line.into_bytes(), &attachment);
                self.parsing = Some(self.big.clone().run(ParsedLine::Empty, parse).boxed());
                continue;
            }
            let line = line.into_bytes();
            // It came in pieces.
            if is_delivered(&line, &self.waiting) {
                self.diagnostics.add_json_rpc();
                continue;
            }
            let parsed = ParsedLine::new(&line, &self.attachment);
            if let ControlFlow::Break(received) = self.take(parsed) {
                return received;
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.outbox = None;
        self.writer.abort();
        self.waiting.end();
        Ok(())
    }
}

/// Keeps the last lines of stderr for errors, and logs all of them for debugging.
pub(super) async fn read_stderr(
    provider: Arc<str>,
    stderr: pipe::Receiver,
    attachment: Arc<Attachment>,
    log: StderrLog,
) {
    let mut stderr = BufReader::new(stderr);
    while let Ok(Some(line)) = short_line(&mut stderr).await {
        consume_budget().await;
        let line = attachment.redact_cut_text(line.trim_ascii_end(), SHOWN_STDERR_LINE);
        tracing::debug!(%provider, line, "MCP server wrote to stderr");
        log.add(&line);
    }
}

/// The beginning of the next line; the rest of a long line is skipped.
async fn short_line(from: &mut BufReader<impl AsyncRead + Unpin>) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let mut limited = from.take(LONGEST_STDERR_LINE as u64);
    if limited.read_until(b'\n', &mut line).await? == 0 {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') && line.len() >= LONGEST_STDERR_LINE {
        loop {
            let read = from.fill_buf().await?;
            if read.is_empty() {
                break;
            }
            let end = memchr::memchr(b'\n', read);
            let taken = end.map_or(read.len(), |at| at + 1);
            from.consume(taken);
            if end.is_some() {
                break;
            }
        }
    }
    Ok(Some(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Why the transport to this script ended.
    async fn cause_of_end(script: &str) -> String {
        let link = SessionLink::default();
        let streams = Streams::of_script(script);
        let mut transport = StdioTransport::new(&"p".into(), streams, Arc::default(), &link);
        assert!(transport.receive().await.is_none());
        link.diagnostics.cause().unwrap().to_string()
    }

    #[tokio::test]
    async fn end_is_reported_with_what_the_server_writes_to_stderr_after_stdout_closed() {
        let cause = cause_of_end("exec 1>&-; sleep 0.1; echo 'no more disk' >&2").await;
        assert!(
            cause.ends_with("the server ended; its last words: no more disk"),
            "{cause}"
        );
    }

    #[tokio::test]
    async fn end_is_reported_in_time_where_stderr_stays_open() {
        let begun = Instant::now();
        let cause = cause_of_end("echo 'so long' >&2; exec 1>&-; sleep 60").await;
        assert!(cause.ends_with("its last words: so long"), "{cause}");
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[tokio::test]
    async fn wait_for_stderr_is_not_restarted_by_a_dropped_receive() {
        let link = SessionLink::default();
        let streams = Streams::of_script("exec 1>&-; sleep 60");
        let mut transport = StdioTransport::new(&"p".into(), streams, Arc::default(), &link);
        let ended = async {
            loop {
                let slice = Duration::from_millis(50);
                if let Ok(received) = tokio::time::timeout(slice, transport.receive()).await {
                    break received;
                }
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(30), ended).await;
        assert!(matches!(ended, Ok(None)));
    }

    /// A script that answers with one big line, then with a small one.
    const BIG_THEN_SMALL: &str = r#"
        printf '{"jsonrpc":"2.0","id":1,"result":{"content":[],"structuredContent":["'
        head -c 3000000 /dev/zero | tr '\0' x
        printf '"]}}\n{"jsonrpc":"2.0","id":2,"result":{}}\n'; sleep 60
    "#;

    #[tokio::test]
    async fn big_message_survives_that_its_receive_is_dropped() {
        let link = SessionLink::default();
        let streams = Streams::of_script(BIG_THEN_SMALL);
        let mut transport = StdioTransport::new(&"p".into(), streams, Arc::default(), &link);
        let mut ids = Vec::new();
        while ids.len() < 2 {
            // Polled once, and dropped, over and over.
            let received = futures::poll!(std::pin::pin!(transport.receive()));
            match received {
                std::task::Poll::Ready(Some(ServerJsonRpcMessage::Response(answer))) => {
                    ids.push(answer.id);
                }
                std::task::Poll::Ready(_) => panic!("the server ended"),
                std::task::Poll::Pending => tokio::task::yield_now().await,
            }
        }
        assert_eq!(ids, [RequestId::Number(1), RequestId::Number(2)]);
    }

    #[tokio::test]
    async fn long_line_of_stderr_is_cut() {
        let text = [vec![b'x'; 100_000], b"\nshort\n".to_vec()].concat();
        let mut reader = BufReader::new(&text[..]);
        let first = short_line(&mut reader).await.unwrap().unwrap();
        assert_eq!(first.len(), LONGEST_STDERR_LINE);
        assert_eq!(short_line(&mut reader).await.unwrap().unwrap(), b"short\n");
        assert!(short_line(&mut reader).await.unwrap().is_none());
    }
}
