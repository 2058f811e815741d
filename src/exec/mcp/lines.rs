//! A server that is a child of ours: one JSON-RPC message per line, on its standard streams.

use std::future::Future;
use std::io;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ErrorData, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::trouble::Trouble;
use crate::credential::Attachment;
use crate::error::McpError;
use crate::process::Streams;

/// What one message may have.
pub const LONGEST_MESSAGE: usize = 50_000_000;
/// Messages that wait for a server to read them.
const OUTGOING: usize = 64;
/// After so many lines of something else, it isn't going to be MCP.
const MOST_GARBAGE: usize = 1000;
const LONGEST_STDERR_LINE: usize = 4096;

pub struct Lines {
    provider: Arc<str>,
    outgoing: Option<mpsc::Sender<Vec<u8>>>,
    stdout: BufReader<ChildStdout>,
    /// The line that is being read. It is kept here because a read may be given up and begun anew.
    line: Vec<u8>,
    trouble: Arc<Trouble>,
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
        trouble: Arc<Trouble>,
    ) -> Self {
        let (outgoing, messages) = mpsc::channel(OUTGOING);
        tokio::spawn(listen(
            provider.clone(),
            streams.stderr,
            secrets,
            trouble.clone(),
        ));
        Lines {
            provider: provider.clone(),
            outgoing: Some(outgoing),
            stdout: BufReader::with_capacity(64 << 10, streams.stdout),
            line: Vec::new(),
            trouble,
            writer: tokio::spawn(write(streams.stdin, messages)),
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
        self.trouble.caused_by(if self.trouble.heard_garbage() {
            McpError::Garbage { provider, what }
        } else {
            McpError::Ended { provider, what }
        });
    }
}

impl Transport<RoleClient> for Lines {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let outgoing = self.outgoing.clone();
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
            let outgoing = outgoing.ok_or_else(gone)?;
            outgoing.send(line).await.map_err(|_| gone())
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
            match understand(line) {
                Some(message) => return Some(message),
                None => {
                    let many = self.trouble.garbage(&String::from_utf8_lossy(line));
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

/// A message, or where it is an answer that we can't make sense of, an error in its place, so that its caller needn't wait.
pub fn understand(text: &[u8]) -> Option<ServerJsonRpcMessage> {
    // An array would pass for a message of whatever stands in it.
    if !text.starts_with(b"{") {
        return None;
    }
    if let Ok(message) = serde_json::from_slice(text) {
        return Some(message);
    }
    #[derive(Deserialize)]
    struct Answer {
        id: rmcp::model::RequestId,
        #[serde(default)]
        method: Option<serde::de::IgnoredAny>,
    }
    let answer: Answer = serde_json::from_slice(text).ok()?;
    if answer.method.is_some() {
        return None;
    }
    let error = ErrorData::internal_error("the server's answer can't be understood", None);
    Some(ServerJsonRpcMessage::error(error, Some(answer.id)))
}

async fn write(mut stdin: ChildStdin, mut messages: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = messages.recv().await {
        if stdin.write_all(&line).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}

/// What a server says on stderr is for whoever looks for a fault.
async fn listen(
    provider: Arc<str>,
    stderr: ChildStderr,
    secrets: Arc<Attachment>,
    trouble: Arc<Trouble>,
) {
    let mut stderr = BufReader::new(stderr);
    while let Ok(Some(mut line)) = short_line(&mut stderr).await {
        secrets.scrub(&mut line);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        tracing::debug!(provider = %provider, "stderr: {line}");
        trouble.heard(line);
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
    fn answers_that_make_no_sense_are_errors_and_garbage_is_garbage() {
        let good = br#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}"#;
        assert!(understand(good).is_some());
        let odd = br#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text"}]},"extra":1}"#;
        assert!(understand(odd).is_some());
        let nothing = br#"{"jsonrpc":"2.0","id":7}"#;
        assert!(matches!(
            understand(nothing),
            Some(ServerJsonRpcMessage::Error(_))
        ));
        for garbage in [&b"hello"[..], b"[1]", b"{}", b"\xff\xfe"] {
            assert!(understand(garbage).is_none(), "{garbage:?}");
        }
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
