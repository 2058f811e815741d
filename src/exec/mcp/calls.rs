//! Calls of tools over stdio. They go around rmcp: ati writes the line itself, and finds the call
//! that waits for an answer by the answer's id. rmcp would copy the arguments, pass the call
//! through two queues, and parse the answer through buffers of its own.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::{ErrorData, ProgressToken, RequestId, ServerJsonRpcMessage, ServerResult};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::outbox::Outbox;
use crate::telemetry::otel::Traceparent;

/// rmcp numbers its own requests (handshake, lists, probes) from 0, and shares the connection. A
/// session doesn't last for a million of them.
const FIRST_ID: i64 = 1_000_000;

/// An answer to a call.
pub enum CallAnswer {
    /// The text of its `result`, unread.
    Result(Box<str>),
    /// What rmcp's types make of an answer that is big, an error, or odd.
    Parsed(Result<Box<ServerResult>, ErrorData>),
}

/// The calls of one session that wait for their answers.
#[derive(Default)]
pub struct WaitingCalls(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    begun: i64,
    /// Ids are ati's own, so no server can choose them to collide.
    calls: HashMap<i64, oneshot::Sender<CallAnswer>, foldhash::fast::RandomState>,
    /// The transport has ended: no answer will come.
    has_ended: bool,
}

impl WaitingCalls {
    fn begin(&self) -> Option<(i64, oneshot::Receiver<CallAnswer>)> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.0.lock();
        if waiting.has_ended {
            return None;
        }
        let id = FIRST_ID + waiting.begun;
        waiting.begun += 1;
        waiting.calls.insert(id, sender);
        Some((id, receiver))
    }

    /// Gives an answer to its call. False: it answers a request of rmcp's. The answer of a call
    /// that doesn't wait any more is dropped.
    pub fn deliver(&self, id: i64, answer: impl FnOnce() -> CallAnswer) -> bool {
        if id < FIRST_ID {
            return false;
        }
        let call = self.0.lock().calls.remove(&id);
        if let Some(call) = call {
            let _ = call.send(answer());
        }
        true
    }

    /// As [`WaitingCalls::deliver`], of a parsed message. Returns it where it isn't the answer to a
    /// call.
    pub fn deliver_parsed(
        &self,
        message: Box<ServerJsonRpcMessage>,
    ) -> Option<Box<ServerJsonRpcMessage>> {
        let id = match &*message {
            ServerJsonRpcMessage::Response(answer) => Some(&answer.id),
            ServerJsonRpcMessage::Error(answer) => answer.id.as_ref(),
            _ => None,
        };
        // Some servers give a number back as a string.
        let id = match id {
            Some(RequestId::Number(id)) => *id,
            Some(RequestId::String(id)) => id.parse().unwrap_or_default(),
            None => return Some(message),
        };
        let mut message = Some(message);
        let mut parsed = || match message.take().map(|message| *message) {
            Some(ServerJsonRpcMessage::Response(answer)) => {
                CallAnswer::Parsed(Ok(Box::new(answer.result)))
            }
            Some(ServerJsonRpcMessage::Error(answer)) => CallAnswer::Parsed(Err(answer.error)),
            _ => CallAnswer::Parsed(Err(ErrorData::default())),
        };
        if self.deliver(id, &mut parsed) {
            return None;
        }
        message
    }

    /// Ends the waits: the transport has ended.
    pub fn end(&self) {
        let calls = {
            let mut waiting = self.0.lock();
            waiting.has_ended = true;
            std::mem::take(&mut waiting.calls)
        };
        drop(calls);
    }

    pub fn have_ended(&self) -> bool {
        self.0.lock().has_ended
    }
}

/// The way of calls to a server over stdio.
#[derive(Clone)]
pub struct StdioCalls {
    outbox: Outbox,
    waiting: Arc<WaitingCalls>,
    /// Members of `_meta` that the server wants in each request, each with a comma behind it.
    meta: Arc<str>,
}

impl StdioCalls {
    pub fn new(outbox: Outbox, waiting: Arc<WaitingCalls>) -> Self {
        StdioCalls {
            outbox,
            waiting,
            meta: "".into(),
        }
    }

    /// These members are part of each request's `_meta`.
    #[must_use]
    pub fn with_meta(mut self, meta: &impl Serialize) -> Self {
        let text = serde_json::to_string(meta).unwrap_or_default();
        let members = text
            .strip_prefix('{')
            .and_then(|text| text.strip_suffix('}'));
        if let Some(members) = members.filter(|members| !members.is_empty()) {
            self.meta = format!("{members},").into();
        }
        self
    }

    pub fn have_ended(&self) -> bool {
        self.waiting.have_ended()
    }

    /// Takes an id for a call. None: the transport has ended.
    pub fn begin(&self) -> Option<StdioCall<'_>> {
        let (id, answer) = self.waiting.begin()?;
        Some(StdioCall {
            calls: self,
            id,
            answer,
            was_sent: false,
        })
    }

    /// The line of a call. `state` is what the server wants to have back.
    pub fn line(
        &self,
        id: i64,
        tool: &str,
        arguments: &Map<String, Value>,
        state: Option<&str>,
        parent: Option<Traceparent>,
    ) -> serde_json::Result<Vec<u8>> {
        let mut line = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"_meta":{{{}"progressToken":{id}"#,
            self.meta
        )
        .into_bytes();
        if let Some(parent) = parent {
            line.extend_from_slice(br#","traceparent":""#);
            line.extend_from_slice(parent.text().as_bytes());
            line.push(b'"');
        }
        line.extend_from_slice(br#"},"name":"#);
        serde_json::to_writer(&mut line, tool)?;
        line.extend_from_slice(br#","arguments":"#);
        serde_json::to_writer(&mut line, arguments)?;
        if let Some(state) = state {
            line.extend_from_slice(br#","requestState":"#);
            serde_json::to_writer(&mut line, state)?;
        }
        line.extend_from_slice(b"}}\n");
        Ok(line)
    }
}

/// One call. Where it is dropped before its answer has come, the server is told that the call is
/// cancelled.
pub struct StdioCall<'a> {
    calls: &'a StdioCalls,
    id: i64,
    answer: oneshot::Receiver<CallAnswer>,
    was_sent: bool,
}

impl StdioCall<'_> {
    pub fn id(&self) -> i64 {
        self.id
    }

    /// The token of its progress reports.
    pub fn progress_token(&self) -> ProgressToken {
        ProgressToken(RequestId::Number(self.id))
    }

    /// Queues the line. See [`Outbox::send`].
    pub async fn send(&mut self, line: Vec<u8>) -> io::Result<()> {
        self.calls.outbox.let_write().await;
        self.calls.outbox.send(line)?;
        self.was_sent = true;
        Ok(())
    }

    /// None: the transport has ended. May be dropped and called again.
    pub async fn answer(&mut self) -> Option<CallAnswer> {
        (&mut self.answer).await.ok()
    }
}

impl Drop for StdioCall<'_> {
    fn drop(&mut self) {
        let waited = self.calls.waiting.0.lock().calls.remove(&self.id);
        if waited.is_some() && self.was_sent {
            let reason = "the caller has left, or its time is over";
            let params = json!({"requestId": self.id, "reason": reason});
            let method = "notifications/cancelled";
            let note = json!({"jsonrpc": "2.0", "method": method, "params": params});
            self.calls.outbox.note(format!("{note}\n").into_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::mcp::outbox::outbox;

    /// What was written to the server.
    async fn written(calls: impl AsyncFnOnce(StdioCalls)) -> Vec<Value> {
        let (outbox, writer) = outbox();
        calls(StdioCalls::new(outbox, Arc::default())).await;
        let mut text = Vec::new();
        writer.write_to(&mut text).await;
        let lines = text.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    #[tokio::test]
    async fn line_of_a_call_is_what_rmcp_would_send() {
        use rmcp::model::{
            CallToolRequest, CallToolRequestParams, ClientJsonRpcMessage, ClientRequest,
            RequestMetaObject,
        };
        let arguments = json!({"text": "a\nb\u{2028}", "n": [1, {"x": 1.5}], "": null});
        let arguments = arguments.as_object().unwrap();
        let mut meta = RequestMetaObject::new();
        meta.set_protocol_version(rmcp::model::ProtocolVersion::V_2026_07_28);
        for (name, state, meta) in [
            ("echo", None, None),
            ("\"q\"\\", Some("st\"ate"), None),
            ("e", None, Some(meta)),
        ] {
            let (outbox, _writer) = outbox();
            let mut calls = StdioCalls::new(outbox, Arc::default());
            if let Some(meta) = &meta {
                calls = calls.with_meta(meta);
            }
            let line = calls.line(FIRST_ID, name, arguments, state, None).unwrap();
            assert_eq!(memchr::memchr(b'\n', &line), Some(line.len() - 1));
            let mut params = CallToolRequestParams::new(name.to_owned());
            params.arguments = Some(arguments.clone());
            params.request_state = state.map(str::to_owned);
            let mut meta = meta.unwrap_or_default();
            meta.set_progress_token(ProgressToken(RequestId::Number(FIRST_ID)));
            params.meta = Some(meta);
            let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
            let id = RequestId::Number(FIRST_ID);
            let expected = ClientJsonRpcMessage::request(request, id);
            let sent: Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(sent, serde_json::to_value(&expected).unwrap());
        }
    }

    #[tokio::test]
    async fn call_that_is_dropped_is_cancelled_unless_it_was_answered_or_never_sent() {
        let sent = written(async |calls: StdioCalls| {
            drop(calls.begin());
            let mut answered = calls.begin().unwrap();
            answered.send(b"{\"call\":1}\n".to_vec()).await.unwrap();
            let answer = || CallAnswer::Result("{}".into());
            assert!(calls.waiting.deliver(answered.id(), answer));
            drop(answered);
            let mut left = calls.begin().unwrap();
            left.send(b"{\"call\":2}\n".to_vec()).await.unwrap();
            drop(left);
            // Late, and for a call that never was: dropped.
            assert!(calls.waiting.deliver(FIRST_ID + 2, answer));
            assert!(calls.waiting.deliver(FIRST_ID + 99, answer));
            assert!(!calls.waiting.deliver(5, answer));
            assert!(calls.waiting.0.lock().calls.is_empty());
        });
        let sent = sent.await;
        assert_eq!(sent.len(), 3, "{sent:?}");
        assert_eq!(sent[2]["method"], "notifications/cancelled");
        assert_eq!(sent[2]["params"]["requestId"], FIRST_ID + 2);
    }

    #[tokio::test]
    async fn answer_goes_to_its_call_however_the_server_writes_the_id() {
        let (outbox, _writer) = outbox();
        let calls = StdioCalls::new(outbox, Arc::default());
        let message = |id: Value| {
            let text = json!({"jsonrpc": "2.0", "id": id, "error": {"code": 7, "message": "no"}});
            Box::new(serde_json::from_value::<ServerJsonRpcMessage>(text).unwrap())
        };
        for id in [json!(FIRST_ID), json!("1000001"), json!(1_000_002.0)] {
            let mut call = calls.begin().unwrap();
            assert!(calls.waiting.deliver_parsed(message(id)).is_none());
            let answer = call.answer().await;
            assert!(matches!(answer, Some(CallAnswer::Parsed(Err(error))) if error.code.0 == 7));
        }
        for others in [json!(3), json!("3"), json!("mine")] {
            assert!(calls.waiting.deliver_parsed(message(others)).is_some());
        }
    }

    #[tokio::test]
    async fn calls_end_with_the_transport_and_none_begins_after_it() {
        let (outbox, _writer) = outbox();
        let calls = StdioCalls::new(outbox, Arc::default());
        let mut call = calls.begin().unwrap();
        calls.waiting.end();
        assert!(call.answer().await.is_none());
        assert!(calls.begin().is_none() && calls.have_ended());
    }
}
