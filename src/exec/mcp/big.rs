//! Messages that are too big for a worker: parsing or writing one would keep every other request of
//! that worker waiting, so it is done on the threads for long work. rmcp itself parses the events
//! of a stream and copies requests, on a worker: big results and big arguments go around it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::{
    CallToolResult, ClientJsonRpcMessage, ClientRequest, JsonObject, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use serde_json::Value;

use crate::runtime::ComputePool;

/// A text up to this size is worked on where it is: that takes about a millisecond.
pub const SMALL: usize = 64 << 10;
/// Of big arguments, rmcp sees as many short values as servers may want in headers.
const MOST_SHOWN: usize = 64;
const LONGEST_SHOWN: usize = 1024;

/// Where the big messages of a session are worked on.
#[derive(Clone)]
pub struct BigMessages {
    pub compute: Arc<ComputePool>,
    pub provider: Arc<str>,
    pub results: Arc<BigResults>,
}

impl BigMessages {
    /// The result of the work, or `failed` where it panicked. It waits for its turn as long as it
    /// has to: a message must not be lost.
    pub async fn run<T: Send + 'static>(
        self,
        failed: T,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let done = self.compute.run_patiently(&self.provider, work).await;
        done.unwrap_or(failed)
    }

    /// The message as text, with the arguments that rmcp didn't get to see.
    pub async fn encode(self, message: ClientJsonRpcMessage) -> serde_json::Result<Vec<u8>> {
        let Some(BigArguments(arguments)) = arguments_of(&message) else {
            return serde_json::to_vec(&message);
        };
        let encode = move || {
            let mut message = message;
            if let Some(call) = call_of(&mut message) {
                call.params.arguments = Some((*arguments).clone());
            }
            serde_json::to_vec(&message)
        };
        let failed = Err(serde::ser::Error::custom("the message can't be written"));
        self.run(failed, encode).await
    }
}

/// The arguments of a call, as an extension of its request: rmcp copies requests, and this costs no
/// copy of the arguments.
#[derive(Clone)]
pub struct BigArguments(pub Arc<JsonObject>);

impl BigArguments {
    /// What rmcp sees in their place: the values that a server may want in headers.
    pub fn shown(&self) -> JsonObject {
        let is_short = |value: &Value| match value {
            Value::String(text) => text.len() <= LONGEST_SHOWN,
            Value::Null | Value::Bool(_) | Value::Number(_) => true,
            Value::Array(_) | Value::Object(_) => false,
        };
        let short = self.0.iter().filter(|(_, value)| is_short(value));
        let shown = short.take(MOST_SHOWN);
        shown
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}

type ToolCall = rmcp::model::CallToolRequest;

fn call_of(message: &mut ClientJsonRpcMessage) -> Option<&mut ToolCall> {
    match message {
        ClientJsonRpcMessage::Request(request) => match &mut request.request {
            ClientRequest::CallToolRequest(call) => Some(call),
            _ => None,
        },
        _ => None,
    }
}

fn arguments_of(message: &ClientJsonRpcMessage) -> Option<BigArguments> {
    let ClientJsonRpcMessage::Request(request) = message else {
        return None;
    };
    let ClientRequest::CallToolRequest(call) = &request.request else {
        return None;
    };
    call.extensions.get::<BigArguments>().cloned()
}

/// Results of calls that go around rmcp, which gets an empty one in their place. Only where the
/// call still waits: what isn't taken out would stay here.
#[derive(Default)]
pub struct BigResults {
    awaited: Mutex<HashMap<RequestId, Option<CallToolResult>>>,
}

impl BigResults {
    /// A place for the result of this call, until the place is dropped.
    pub fn expect(self: &Arc<Self>, id: RequestId) -> AwaitedResult {
        self.awaited.lock().insert(id.clone(), None);
        AwaitedResult {
            results: self.clone(),
            id,
        }
    }

    /// The message for rmcp. What is big in it stays here, as far as it has a place.
    pub fn keep(&self, mut message: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
        match &mut message {
            ServerJsonRpcMessage::Response(answer) => {
                let mut awaited = self.awaited.lock();
                if let ServerResult::CallToolResult(result) = &mut answer.result
                    && let Some(place) = awaited.get_mut(&answer.id)
                {
                    let empty = CallToolResult::success(Vec::new());
                    *place = Some(std::mem::replace(result, empty));
                }
            }
            // Callers are told its code and its text.
            ServerJsonRpcMessage::Error(answer) => answer.error.data = None,
            _ => {}
        }
        message
    }
}

/// The place for the result of one call.
pub struct AwaitedResult {
    results: Arc<BigResults>,
    id: RequestId,
}

impl AwaitedResult {
    /// The result, where it went around rmcp.
    pub fn take(&self) -> Option<CallToolResult> {
        self.results.awaited.lock().get_mut(&self.id)?.take()
    }
}

impl Drop for AwaitedResult {
    fn drop(&mut self) {
        let left = self.results.awaited.lock().remove(&self.id);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(id: i64) -> ServerJsonRpcMessage {
        let result = json!({"content": [{"type": "text", "text": "big"}]});
        serde_json::from_value(json!({"jsonrpc": "2.0", "id": id, "result": result})).unwrap()
    }

    #[test]
    fn result_goes_around_rmcp_only_while_its_call_waits() {
        let results = Arc::new(BigResults::default());
        let place = results.expect(RequestId::Number(1));
        let kept = serde_json::to_value(results.keep(answer(1))).unwrap();
        assert_eq!(
            (&kept["id"], &kept["result"]["content"]),
            (&json!(1), &json!([]))
        );
        let other = serde_json::to_value(results.keep(answer(2))).unwrap();
        assert_eq!(other["result"]["content"][0]["text"], "big");
        assert_eq!(place.take().unwrap().content.len(), 1);
        assert!(place.take().is_none());
        results.keep(answer(1));
        drop(place);
        assert!(results.awaited.lock().is_empty());
    }

    #[tokio::test]
    async fn big_arguments_are_sent_whole_though_rmcp_sees_short_ones_only() {
        let arguments = json!({"id": 5, "list": [1, 2], "text": "x".repeat(SMALL), "name": "n"});
        let Value::Object(arguments) = arguments else {
            panic!()
        };
        let big = BigArguments(Arc::new(arguments.clone()));
        assert_eq!(Value::Object(big.shown()), json!({"id": 5, "name": "n"}));
        let params = rmcp::model::CallToolRequestParams::new("t").with_arguments(big.shown());
        let mut request = ToolCall::new(params);
        request.extensions.insert(big);
        let request = ClientRequest::CallToolRequest(request);
        let message = ClientJsonRpcMessage::request(request, RequestId::Number(1));
        let link = super::super::session::SessionLink::default();
        let sent = link.big_messages(&"p".into()).encode(message);
        let sent: Value = serde_json::from_slice(&sent.await.unwrap()).unwrap();
        assert_eq!(sent["params"]["arguments"], Value::Object(arguments));
        assert_eq!(sent["params"]["name"], "t");
    }
}
