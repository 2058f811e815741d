//! A server that is a child of ours: one JSON-RPC message per line, on its standard streams.

use std::borrow::Cow;
use std::future::Future;
use std::io;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, ProgressNotificationParam, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::task::JoinHandle;

use super::McpError;
use super::news::News;
use super::outbox::{Outbox, outbox};
use super::session::Link;
use super::trouble::Trouble;
use crate::credential::Attachment;
use crate::process::{Lifeline, Streams};

/// What one message may have.
pub const LONGEST_MESSAGE: usize = 50_000_000;
/// After so many lines in a row of something else, it isn't going to be MCP.
const MOST_GARBAGE: usize = 1000;
/// Read whole, so that secrets are found in it, and kept in part.
const LONGEST_STDERR_LINE: usize = 64 << 10;
const SHOWN_STDERR_LINE: usize = 4096;
/// Values in one message. Text is cheap, values aren't: each takes hundreds of bytes while it is read.
pub const MOST_VALUES: usize = 500_000;
/// Ids are ours, or a number; a server that asks us has no reason for longer ones either.
const LONGEST_ID: usize = 256;

pub struct Lines {
    provider: Arc<str>,
    outgoing: Option<Outbox>,
    stdout: BufReader<ChildStdout>,
    /// The line that is being read. It is kept here because a read may be given up and begun anew.
    line: Vec<u8>,
    trouble: Arc<Trouble>,
    news: Arc<News>,
    secrets: Arc<Attachment>,
    /// The question which era this is. Once we have gone on without its answer, that is nobody's any more.
    probe: Option<RequestId>,
    unanswered: Option<RequestId>,
    _lifeline: Lifeline,
    /// Ends when this does, even in the middle of a write: the child's input closes, and that is its end.
    writer: JoinHandle<()>,
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

impl Lines {
    pub fn new(
        provider: &Arc<str>,
        streams: Streams,
        secrets: Arc<Attachment>,
        link: &Link,
    ) -> Self {
        let (trouble, news) = (link.trouble.clone(), link.news.clone());
        let (outgoing, unread) = outbox();
        tokio::spawn(listen(
            provider.clone(),
            streams.stderr,
            secrets.clone(),
            trouble.clone(),
        ));
        Lines {
            provider: provider.clone(),
            outgoing: Some(outgoing),
            writer: tokio::spawn(unread.write_to(streams.stdin)),
            stdout: BufReader::with_capacity(64 << 10, streams.stdout),
            line: Vec::new(),
            trouble,
            news,
            secrets,
            probe: None,
            unanswered: None,
            _lifeline: streams.lifeline,
        }
    }

    /// The next line, without its end. None where there will be no more.
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let read = self.stdout.fill_buf().await?;
            if read.is_empty() {
                return Ok(None);
            }
            let end = memchr::memchr(b'\n', read);
            let taken = end.map_or(read.len(), |at| at + 1);
            if self.line.len() + taken > LONGEST_MESSAGE {
                return Err(io::Error::other("a line of more than 50 MB"));
            }
            self.line.extend_from_slice(&read[..taken]);
            self.stdout.consume(taken);
            if end.is_some() {
                return Ok(Some(std::mem::take(&mut self.line)));
            }
        }
    }

    fn ended(&self, what: &str) {
        let what = format!("{what}{}", self.trouble.circumstances());
        let provider = self.provider.to_string();
        self.trouble
            .caused_by(if self.trouble.heard_garbage_only() {
                McpError::Garbage { provider, what }
            } else {
                McpError::Ended { provider, what }
            });
    }

    /// A server that takes long to start answers questions that nobody asks any more.
    fn is_late(&mut self, message: &ServerJsonRpcMessage) -> bool {
        let id = match message {
            ServerJsonRpcMessage::Response(answer) => Some(&answer.id),
            ServerJsonRpcMessage::Error(answer) => answer.id.as_ref(),
            _ => None,
        };
        let late = id.is_some() && id == self.unanswered.as_ref();
        if late {
            self.unanswered = None;
        }
        late
    }
}

impl Transport<RoleClient> for Lines {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        if let ClientJsonRpcMessage::Request(request) = &message {
            match &request.request {
                ClientRequest::DiscoverRequest(_) => self.probe = Some(request.id.clone()),
                ClientRequest::InitializeRequest(_) => self.unanswered = self.probe.take(),
                _ => {}
            }
        }
        let outgoing = self.outgoing.clone();
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
            outgoing.ok_or_else(gone)?.put(line)
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let line = match self.next().await {
                Ok(Some(line)) => line,
                Ok(None) => {
                    self.ended("the server ended");
                    return None;
                }
                Err(e) => {
                    self.ended(&format!("the server wrote what can't be read: {e}"));
                    return None;
                }
            };
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let heard = understand(line);
            if !matches!(heard, Heard::Garbage) {
                self.trouble.understood();
            }
            match heard {
                Heard::Message(message) if self.is_late(&message) => {}
                Heard::Message(message) => return Some(*message),
                Heard::Progress(told) => self.news.tell(told),
                Heard::Nothing => {}
                // We offer servers nothing, so there is nothing to think about; and one that asks without listening must not fill us up.
                Heard::Asked(answer) => {
                    let sent = self.outgoing.as_ref().map(|to| to.put(answer));
                    if !matches!(sent, Some(Ok(()))) {
                        self.ended("the server asks more than it listens");
                        return None;
                    }
                }
                Heard::Garbage => {
                    let line = self.secrets.redact_text(line, LONGEST_STDERR_LINE);
                    let many = self.trouble.garbage(&line);
                    if many >= MOST_GARBAGE {
                        self.ended("the server speaks something else");
                        return None;
                    }
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.outgoing = None;
        self.writer.abort();
        Ok(())
    }
}

/// What a server said.
pub enum Heard {
    Message(Box<ServerJsonRpcMessage>),
    /// A question to us, and our answer as a line.
    Asked(Vec<u8>),
    /// How far a call of ours is.
    Progress(ProgressNotificationParam),
    /// News that we have no use for.
    Nothing,
    Garbage,
}

/// The few things that are looked at before anything is taken apart.
#[derive(Deserialize)]
struct Outline<'a> {
    #[serde(default)]
    id: Option<RequestId>,
    #[serde(default, borrow)]
    method: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Told {
    params: ProgressNotificationParam,
}

/// A message for rmcp, or what else it is. An answer that we can't make sense of, or that has too much in it, becomes an error in its place, so that
/// its caller needn't wait.
pub fn understand(text: &[u8]) -> Heard {
    // An array would pass for a message of whatever stands in it.
    let Some(outline) = text
        .starts_with(b"{")
        .then(|| serde_json::from_slice::<Outline<'_>>(text).ok())
        .flatten()
    else {
        return Heard::Garbage;
    };
    let error = |id, what: &'static str| {
        let error = ErrorData::internal_error(what, None);
        Heard::Message(Box::new(ServerJsonRpcMessage::error(error, Some(id))))
    };
    if matches!(&outline.id, Some(RequestId::String(id)) if id.len() > LONGEST_ID) {
        return Heard::Garbage;
    }
    if values(text) > MOST_VALUES {
        return match (outline.id, outline.method) {
            (Some(id), None) => error(id, "the server's answer has too many values"),
            _ => Heard::Nothing,
        };
    }
    match (outline.id, outline.method.as_deref()) {
        (Some(id), Some(method)) => Heard::Asked(reply(&id, method)),
        (None, Some("notifications/tools/list_changed" | "notifications/cancelled")) => {
            match serde_json::from_slice(text) {
                Ok(message) => Heard::Message(Box::new(message)),
                Err(_) => Heard::Nothing,
            }
        }
        (None, Some("notifications/progress")) => match serde_json::from_slice(text) {
            Ok(Told { params }) => Heard::Progress(params),
            Err(_) => Heard::Nothing,
        },
        (None, Some(_)) => Heard::Nothing,
        (Some(id), None) => match serde_json::from_slice(text) {
            Ok(message) => Heard::Message(Box::new(message)),
            Err(_) => error(id, "the server's answer can't be understood"),
        },
        // An error that the server could not say to what.
        (None, None) => match serde_json::from_slice(text) {
            Ok(message @ ServerJsonRpcMessage::Error(_)) => Heard::Message(Box::new(message)),
            _ => Heard::Garbage,
        },
    }
}

fn reply(id: &RequestId, method: &str) -> Vec<u8> {
    let answer = if method == "ping" {
        json!({"jsonrpc": "2.0", "id": id, "result": {}})
    } else {
        let error = json!({"code": -32601, "message": "not offered"});
        json!({"jsonrpc": "2.0", "id": id, "error": error})
    };
    let mut line = answer.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// At least as many values as there are, without taking them apart.
pub fn values(text: &[u8]) -> usize {
    if text.len() <= MOST_VALUES {
        return text.len();
    }
    let (mut count, mut quoted, mut escaped) = (1, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' | b'[' | b'{' if !quoted => count += 1,
            _ => {}
        }
    }
    count
}

/// What a server says on stderr is for whoever looks for a fault.
async fn listen(
    provider: Arc<str>,
    stderr: ChildStderr,
    secrets: Arc<Attachment>,
    trouble: Arc<Trouble>,
) {
    let mut stderr = BufReader::new(stderr);
    while let Ok(Some(line)) = short_line(&mut stderr).await {
        let line = secrets.redact_text(line.trim_ascii_end(), SHOWN_STDERR_LINE);
        tracing::debug!(provider = %provider, "stderr: {line}");
        trouble.heard(&line);
    }
}

/// The beginning of the next line; the rest of a long one is passed over.
async fn short_line(from: &mut BufReader<impl AsyncRead + Unpin>) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let limited = from.take(LONGEST_STDERR_LINE as u64);
    let mut limited = limited;
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

    #[test]
    fn what_a_server_says_is_sorted_before_it_is_read() {
        let heard = |text: &str| match understand(text.as_bytes()) {
            Heard::Message(message) => match *message {
                ServerJsonRpcMessage::Response(_) => "response",
                ServerJsonRpcMessage::Error(_) => "error",
                _ => "other",
            },
            Heard::Asked(_) => "asked",
            Heard::Progress(_) => "progress",
            Heard::Nothing => "nothing",
            Heard::Garbage => "garbage",
        };
        for (text, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}"#,
                "response",
            ),
            (r#"{"jsonrpc":"2.0","id":7}"#, "error"),
            (
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"x"}}"#,
                "error",
            ),
            (r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#, "asked"),
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}"#,
                "asked",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#,
                "nothing",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
                "other",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":2}}"#,
                "progress",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":2}}"#,
                "nothing",
            ),
            ("hello", "garbage"),
            ("[1]", "garbage"),
            ("{}", "garbage"),
        ] {
            assert_eq!(heard(text), expected, "{text}");
        }
        let many = format!(
            r#"{{"jsonrpc":"2.0","id":7,"result":[{}0]}}"#,
            "0,".repeat(MOST_VALUES)
        );
        assert_eq!(heard(&many), "error");
        let news = many.replace(
            "\"id\":7,\"result\"",
            "\"method\":\"notifications/tools/list_changed\",\"params\"",
        );
        assert_eq!(heard(&news), "nothing");
        let id = "x".repeat(LONGEST_ID + 1);
        let ping = format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"ping"}}"#);
        assert_eq!(heard(&ping), "garbage");
        let quoted = format!(r#"{{"a":["{}\",", 1]}}"#, ",[{".repeat(MOST_VALUES));
        assert_eq!(values(quoted.as_bytes()), 4);
    }

    #[tokio::test]
    async fn long_lines_of_stderr_cost_no_memory() {
        let text = [vec![b'x'; 100_000], b"\nshort\n".to_vec()].concat();
        let mut reader = BufReader::new(&text[..]);
        let first = short_line(&mut reader).await.unwrap().unwrap();
        assert_eq!(first.len(), LONGEST_STDERR_LINE);
        assert_eq!(short_line(&mut reader).await.unwrap().unwrap(), b"short\n");
        assert!(short_line(&mut reader).await.unwrap().is_none());
    }
}
