//! `ati mcp serve` in front of a proxy: each message becomes a request to `/mcp`, with the caller's
//! token and signature, and each answer becomes a line.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use http::header::{ACCEPT, CONTENT_TYPE};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sse_stream::SseStream;
use tracing::{debug, warn};

use super::stdio::{Client, Server};
use crate::api::mcp::CATALOGUE;
use crate::backoff::Backoff;
use crate::cli::remote::{Remote, Unanswered};
use crate::config;
use crate::error::{Failure, RpcError};
use crate::exec::mcp::bounded::bounded_events;
use crate::mcp::{ClientRequest, Era, STATELESS, header_value};

/// Bytes of an answer, or of one event.
const LONGEST_ANSWER: usize = 128 << 20;
/// How long an answer may take. The proxy bounds each call, and clients have limits of their own.
const TIMEOUT: Duration = Duration::from_secs(3600);
/// Attempts of a request that the proxy has not received, or that does no harm twice.
const ATTEMPTS: u32 = 5;
const RETRY: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2));

const SESSION: &str = "mcp-session-id";

pub struct Bridge {
    client: reqwest::Client,
    search: bool,
    refresh: Option<Duration>,
    /// What the proxy's tools are like, as far as the client knows.
    known: Mutex<Option<String>>,
    /// The id that the proxy gave in the handshake, where it gave one.
    session: Mutex<Option<String>>,
}

impl Bridge {
    pub fn new(remote: &Remote, search: bool, refresh: Option<Duration>) -> Result<Self, Failure> {
        Ok(Bridge {
            client: remote.client()?,
            search,
            refresh: refresh.filter(|_| !search),
            known: Mutex::new(None),
            session: Mutex::new(None),
        })
    }

    /// Sends one message, again where that can do no harm.
    async fn post(
        &self,
        request: &ClientRequest,
        line: &[u8],
    ) -> Result<reqwest::Response, Failure> {
        let is_repeatable = request.method != "tools/call";
        let mut attempt = 0;
        loop {
            attempt += 1;
            let failed = match self.post_once(request, line).await? {
                // A proxy that is overloaded, or about to end. A call may have begun: a proxy that
                // ends gives up its calls like this.
                Ok(response) if response.status() == 503 && is_repeatable && attempt < ATTEMPTS => {
                    None
                }
                Ok(response) => return Ok(response),
                Err(unanswered) => Some(unanswered),
            };
            if let Some(unanswered) = failed {
                let again = is_repeatable || unanswered.is_unsent;
                if !again || attempt >= ATTEMPTS {
                    return Err(unanswered.failure);
                }
            }
            debug!(attempt, "the proxy didn't take a message, trying again");
            tokio::time::sleep(RETRY.delay(attempt)).await;
        }
    }

    /// Token and secret are read for each message: they may be renewed meanwhile.
    async fn post_once(
        &self,
        request: &ClientRequest,
        line: &[u8],
    ) -> Result<Result<reqwest::Response, Unanswered>, Failure> {
        let remote = Remote::from_environment()?;
        let mut remote =
            remote.ok_or_else(|| Failure::invalid("ATI_PROXY_URL is no longer set"))?;
        if let (Some(name), "tools/call") = (&request.name, request.method.as_str()) {
            remote = remote.for_tool(&config::ati_dir(), name);
        }
        let query: &[(&str, &str)] = match self.search {
            true => &[("tools", "search")],
            false => &[],
        };
        let mut post = remote
            .post(&self.client, "mcp", query)
            .timeout(TIMEOUT)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .body(line.trim_ascii().to_vec());
        if request.era == Era::Stateless {
            post = post
                .header("MCP-Protocol-Version", STATELESS)
                .header("Mcp-Method", header_value(&request.method));
            let name = match request.method.as_str() {
                "resources/read" => &request.uri,
                _ => &request.name,
            };
            if let Some(name) = name {
                post = post.header("Mcp-Name", header_value(name));
            }
        }
        if let Some(session) = self.session.lock().as_deref() {
            post = post.header(SESSION, session);
        }
        Ok(remote.send(post).await)
    }

    /// The answer as one line. What comes before it in an event stream is passed on.
    async fn relay(
        &self,
        request: &ClientRequest,
        response: reqwest::Response,
        client: &Client,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let is = |kind: &str| {
            let content = response.headers().get(CONTENT_TYPE);
            content.is_some_and(|content| content.as_bytes().starts_with(kind.as_bytes()))
        };
        if is("text/event-stream") {
            return relay_events(request, response, client).await.map(Some);
        }
        if response.status() == 202 {
            return Ok(None);
        }
        if !is("application/json") || response.status() == 503 {
            return Err(Remote::refused(response).await);
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = Vec::new();
        let mut pieces = response.bytes_stream();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| broke_off())?;
            if body.len() + piece.len() > LONGEST_ANSWER {
                return Err(Failure::invalid("the proxy's answer is too long"));
            }
            body.extend_from_slice(&piece);
        }
        body.retain(|byte| !matches!(byte, b'\n' | b'\r'));
        let mut answer = match Message::read(request, body) {
            Message::Answer(answer) => answer,
            Message::Other(_) if status.is_success() => return Err(no_answer()),
            // A refusal of ati's, or of a server in between, that is no JSON-RPC.
            Message::Other(body) => {
                let mut refused = http::Response::new(body);
                (*refused.status_mut(), *refused.headers_mut()) = (status, headers);
                return Err(Remote::refused(refused.into()).await);
            }
        };
        if request.method == "initialize" {
            let session = headers.get(SESSION).and_then(|id| id.to_str().ok());
            *self.session.lock() = session.map(str::to_owned);
        }
        if matches!(request.method.as_str(), "initialize" | "server/discover") {
            answer = self.announce(answer);
        }
        Ok(Some(answer))
    }

    /// The proxy tells no changes, and this bridge does.
    fn announce(&self, body: Vec<u8>) -> Vec<u8> {
        if self.refresh.is_none() {
            return body;
        }
        let Ok(mut answer) = serde_json::from_slice::<Value>(&body) else {
            return body;
        };
        match answer.pointer_mut("/result/capabilities/tools/listChanged") {
            Some(told) => {
                *told = true.into();
                answer.to_string().into_bytes()
            }
            None => body,
        }
    }

    /// Compares what the proxy says about its tools with what it said before.
    async fn notice(&self, response: &reqwest::Response, client: &Client) {
        let told = response.headers().get(CATALOGUE);
        let Some(told) = told.and_then(|told| told.to_str().ok()) else {
            return;
        };
        let before = self.known.lock().replace(told.to_owned());
        if self.refresh.is_some() && before.is_some_and(|before| before != told) {
            client.tools_changed().await;
        }
    }
}

/// A message of the proxy, while this request is under way.
enum Message {
    /// The one answer to the request, with its id.
    Answer(Vec<u8>),
    Other(Vec<u8>),
}

#[derive(serde::Deserialize)]
struct Members<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

impl Message {
    /// A proxy that refuses a message unread doesn't know its id. The client waits for it.
    fn read(request: &ClientRequest, text: Vec<u8>) -> Self {
        let Ok(members) = serde_json::from_slice::<Members<'_>>(&text) else {
            return Message::Other(text);
        };
        let value = |id: &RawValue| serde_json::from_str::<Value>(id.get()).ok();
        let is_mine = |id: &RawValue| value(id) == value(&request.id);
        match (members.id, members.error) {
            (None, Some(error)) if error.get().starts_with('{') => {
                let (id, error) = (request.id.get(), error.get());
                let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}");
                Message::Answer(answer.into_bytes())
            }
            (Some(id), error) if is_mine(id) && (error.is_some() || members.result.is_some()) => {
                Message::Answer(text)
            }
            _ => Message::Other(text),
        }
    }
}

async fn relay_events(
    request: &ClientRequest,
    response: reqwest::Response,
    client: &Client,
) -> Result<Vec<u8>, Failure> {
    let events = bounded_events(response.bytes_stream(), LONGEST_ANSWER);
    let mut events = std::pin::pin!(SseStream::from_bytes_stream(events));
    while let Some(event) = events.next().await {
        let data = event.map_err(|_| broke_off())?.data.unwrap_or_default();
        let mut line = data.into_bytes();
        line.retain(|byte| !matches!(byte, b'\n' | b'\r'));
        match Message::read(request, line) {
            Message::Answer(answer) => return Ok(answer),
            Message::Other(line) if line.is_empty() => {}
            Message::Other(line) => client.send(line).await,
        }
    }
    Err(broke_off())
}

fn no_answer() -> Failure {
    let message = "the proxy's answer is no answer to this request";
    Failure::new(crate::error::Code::UpstreamError, message)
}

fn broke_off() -> Failure {
    Failure::new(
        crate::error::Code::UpstreamError,
        "the proxy's answer broke off",
    )
}

impl Server for Bridge {
    async fn answer(
        &self,
        request: &ClientRequest,
        line: &[u8],
        client: &Client,
    ) -> Option<Vec<u8>> {
        let answered = async {
            let response = self.post(request, line).await?;
            self.notice(&response, client).await;
            self.relay(request, response, client).await
        };
        answered.await.unwrap_or_else(|failure| {
            let hint = failure.hint.as_deref();
            let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
            let error = RpcError::Busy(failure.one_line() + &hint);
            Some(request.refuse(error).body())
        })
    }

    async fn watch(self: Arc<Self>, client: Client) {
        let Some(refresh) = self.refresh else {
            return std::future::pending().await;
        };
        let line = json!({"jsonrpc": "2.0", "id": "ati-bridge", "method": "ping"}).to_string();
        let Ok(crate::mcp::Received::Request(ping)) =
            crate::mcp::Received::read(line.as_bytes(), None)
        else {
            return;
        };
        let mut is_down = false;
        loop {
            tokio::time::sleep(refresh).await;
            match self.post_once(&ping, line.as_bytes()).await {
                Ok(Ok(response)) => {
                    is_down = false;
                    self.notice(&response, &client).await;
                }
                Ok(Err(_)) if !std::mem::replace(&mut is_down, true) => {
                    warn!("the proxy doesn't answer");
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }

    fn tells_changes(&self) -> bool {
        self.refresh.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::Received;

    fn read(text: &str) -> Option<String> {
        let line = br#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
        let Ok(Received::Request(request)) = Received::read(line, None) else {
            panic!("no request");
        };
        match Message::read(&request, text.into()) {
            Message::Answer(answer) => Some(String::from_utf8(answer).unwrap()),
            Message::Other(_) => None,
        }
    }

    #[test]
    fn answer_has_the_id_of_its_request() {
        let own = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
        assert_eq!(read(own).as_deref(), Some(own));
        let expected = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32600}}"#;
        for unread in [
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600}}"#,
            r#"{"jsonrpc":"2.0","error":{"code":-32600}}"#,
        ] {
            assert_eq!(read(unread).as_deref(), Some(expected));
        }
        for other in [
            "",
            "garbage",
            r#"{"error":"Forbidden"}"#,
            r#"{"jsonrpc":"2.0","id":8,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{}}{"jsonrpc":"2.0","id":7,"result":{}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#,
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
