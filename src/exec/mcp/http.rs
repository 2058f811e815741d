//! A server behind a URL: the HTTP of the streamable transport, through our own way out. The protocol above it is rmcp's.

use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};
use tokio::sync::{Semaphore, watch};
use url::Url;

use super::McpError;
use super::bounded::{READ_ERROR, bounded, read};
use super::lines::{Heard, LONGEST_MESSAGE, MOST_VALUES, understand, values};
use super::news::News;
use super::pace::Pace;
use super::session::{Era, Link};
use crate::credential::Attachment;
use crate::egress::Clients;
use crate::egress::EgressError;
use crate::exec::egress;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// More of a refusal than this says nothing more.
const LONGEST_ERROR: usize = 4096;
/// Answers to a server's questions that are under way at a time, and how long one may take. What it asks beyond that stays unanswered.
const MOST_REPLIES: usize = 4;
const REPLY: Duration = Duration::from_secs(10);
/// The question which era this is may be one that a server never answers. Less than rmcp waits, which can't go on while a request is under way.
const PROBE: Duration = Duration::from_secs(8);
/// How soon a stream is resumed that broke off.
const RESUME: Duration = Duration::from_millis(250);
/// How long a server may take to hear that a session is over.
const GOODBYE: Duration = Duration::from_secs(5);
/// Codes that only a server of the stateless era has.
const MODERN: [i32; 3] = [-32020, -32021, -32022];

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub McpError);

type Fault = StreamableHttpError<Refused>;

#[derive(Clone)]
pub struct Endpoint(Arc<Inner>);

struct Inner {
    provider: Arc<str>,
    clients: Arc<Clients>,
    source: Option<IpAddr>,
    url: Url,
    attachment: Arc<Attachment>,
    news: Arc<News>,
    /// What is known of the server.
    era: Era,
    /// Ends with the session: rmcp leaves what it has begun to itself.
    lease: watch::Receiver<()>,
    /// How often a stream that the server ends is asked for again.
    pace: Pace,
    /// Answers to what a server asks us that are on their way.
    replies: Arc<Semaphore>,
}

impl Endpoint {
    pub fn new(
        provider: &Arc<str>,
        clients: Arc<Clients>,
        source: Option<IpAddr>,
        url: Url,
        attachment: Arc<Attachment>,
        era: Era,
        link: &Link,
    ) -> Self {
        Endpoint(Arc::new(Inner {
            provider: provider.clone(),
            clients,
            source,
            url,
            attachment,
            news: link.news.clone(),
            era,
            lease: link.lease.subscribe(),
            pace: Pace::default(),
            replies: Arc::new(Semaphore::new(MOST_REPLIES)),
        }))
    }

    fn listener(&self, headers: HeaderMap) -> Listener {
        Listener {
            endpoint: self.clone(),
            headers,
        }
    }
}

impl Inner {
    /// Until the session is over.
    async fn while_wanted<T>(
        &self,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let mut lease = self.lease.clone();
        tokio::select! {
            done = work => done,
            _ = lease.changed() => Err(Fault::Client(Refused(McpError::Ended {
                provider: self.provider.to_string(),
                what: "the session is over".to_owned(),
            }))),
        }
    }

    /// One request, with our credential in place of whatever stands under its name. Redirects aren't followed: a session is with one server.
    async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Option<Vec<u8>>,
    ) -> Result<reqwest::Response, Fault> {
        let refused = |error: EgressError| Fault::Client(Refused(error.into()));
        egress::check(&self.clients, &self.url).map_err(refused)?;
        let client = egress::client(&self.clients, self.source).map_err(refused)?;
        let mut url = self.url.clone();
        if let Some(pair) = self.attachment.query(true) {
            egress::append_query(&mut url, &String::from_utf8_lossy(pair.expose()));
        }
        let mut request = reqwest::Request::new(method, url);
        *request.headers_mut() = headers;
        let headers = request.headers_mut();
        let _ = self.attachment.attach(true, |name, value| {
            headers.insert(name, value);
            Ok::<_, std::convert::Infallible>(())
        });
        *request.body_mut() = body.map(Into::into);
        let response = client.execute(request).await;
        let response = response.map_err(|e| refused(egress::failed(&e, &self.url.origin())))?;
        self.attachment.observe(response.status().as_u16());
        Ok(response)
    }

    /// What a server says when it says no, without what it was told.
    async fn status(&self, response: reqwest::Response) -> McpError {
        let status = response.status().as_u16();
        let body = read(response, READ_ERROR).await.unwrap_or_default();
        let body = self
            .attachment
            .redact_text(body.trim_ascii(), LONGEST_ERROR);
        McpError::Status {
            provider: self.provider.to_string(),
            status,
            body,
        }
    }

    fn garbage(&self, what: &str) -> Fault {
        Fault::Client(Refused(McpError::Garbage {
            provider: self.provider.to_string(),
            what: what.to_owned(),
        }))
    }

    fn headers(
        &self,
        session: Option<&str>,
        custom: HashMap<HeaderName, HeaderValue>,
    ) -> HeaderMap {
        let mut headers: HeaderMap = custom.into_iter().collect();
        headers.insert(ACCEPT, BOTH);
        if let Some(session) = session.and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert(SESSION, session);
        }
        headers
    }
}

impl StreamableHttpClient for Endpoint {
    type Error = Refused;

    async fn post_message(
        &self,
        _: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        custom: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Fault> {
        let asks = asks(&message);
        let posted = self.0.while_wanted(self.post(message, session, custom));
        match asks {
            Some((id, true)) if self.0.era == Era::Unknown => {
                match tokio::time::timeout(PROBE, posted).await {
                    Ok(posted) => posted,
                    Err(_) => Ok(answered(no_discover(), id)),
                }
            }
            _ => posted.await,
        }
    }

    async fn delete_session(
        &self,
        _: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        custom: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Fault> {
        let headers = self.0.headers(Some(&session), custom);
        let goodbye = self.0.send(Method::DELETE, headers, None);
        // Nobody waits for it, and nobody needs it.
        match tokio::time::timeout(GOODBYE, goodbye).await {
            Ok(said) => said.map(drop),
            Err(_) => Ok(()),
        }
    }

    async fn get_stream(
        &self,
        _: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _: Option<String>,
        custom: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Fault> {
        let mut headers = self.0.headers(session.as_deref(), custom);
        let mut asking = headers.clone();
        let id = last_event.as_deref().map(HeaderValue::from_str);
        if let Some(Ok(id)) = id {
            asking.insert(LAST_EVENT, id);
        }
        // The stream of a call goes on where it broke off, and its caller waits.
        let pause = match last_event {
            Some(_) => RESUME,
            None => self.0.pace.pause(),
        };
        let asked = async {
            tokio::time::sleep(pause).await;
            self.0.send(Method::GET, asking, None).await
        };
        let response = self.0.while_wanted(asked).await?;
        match (response.status().is_success(), kind(&response)) {
            (true, Kind::Events) => {
                headers.insert(CONTENT_TYPE, JSON);
                Ok(self.listener(headers).events(response))
            }
            _ => Err(Fault::ServerDoesNotSupportSse),
        }
    }
}

impl Endpoint {
    async fn post(
        &self,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        custom: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Fault> {
        let had_session = session.is_some();
        let mut headers = self.0.headers(session.as_deref(), custom);
        headers.insert(CONTENT_TYPE, JSON);
        let mut listener = self.listener(headers.clone());
        let asks = asks(&message);
        let body = serde_json::to_vec(&message)?;
        let response = self.0.send(Method::POST, headers, Some(body)).await?;
        let status = response.status().as_u16();
        if matches!(status, 202 | 204) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == 404 && had_session {
            return Err(Fault::SessionExpired);
        }
        if !response.status().is_success() {
            let refusal = self.0.status(response).await;
            // Some say with 400 that they don't know the session, after a restart for example.
            if status == 400 && had_session && mentions_session(&refusal) {
                return Err(Fault::SessionExpired);
            }
            return declined(status, refusal, asks);
        }
        let session = response.headers().get(SESSION);
        let session = session.and_then(|id| Some(id.to_str().ok()?.to_owned()));
        match kind(&response) {
            Kind::Events => {
                // The answer that begins a session is the first of it.
                if let Some(id) = response.headers().get(SESSION) {
                    listener.headers.insert(SESSION, id.clone());
                }
                let events = listener.events(response);
                Ok(StreamableHttpPostResponse::Sse(events, session))
            }
            Kind::Json => {
                let body = read(response, LONGEST_MESSAGE).await;
                let body = body.map_err(|_| {
                    self.0
                        .garbage("an answer of more than 50 MB, or a broken one")
                })?;
                match (messages(&body), asks) {
                    (None, None) => Ok(StreamableHttpPostResponse::Accepted),
                    (None, Some(_)) => Err(self.0.garbage("an answer that is no JSON-RPC")),
                    (Some(mut all), _) if all.len() == 1 => {
                        Ok(StreamableHttpPostResponse::Json(all.remove(0), session))
                    }
                    (Some(all), _) => Ok(StreamableHttpPostResponse::Sse(batch(&all), session)),
                }
            }
            Kind::Other if asks.is_none() => Ok(StreamableHttpPostResponse::Accepted),
            Kind::Other => Err(self
                .0
                .garbage("an answer that is neither JSON nor an event stream")),
        }
    }
}

/// In the words of the SDKs. Any other 400 is about the call, which must not be made twice for it.
fn mentions_session(refusal: &McpError) -> bool {
    let McpError::Status { body, .. } = refusal else {
        return false;
    };
    let body = body.to_lowercase();
    let words = [
        "session id",
        "session-id",
        "session not found",
        "server not initialized",
    ];
    words.iter().any(|words| body.contains(words))
}

/// The request that waits for an answer, and whether it only asks which era this is.
fn asks(message: &ClientJsonRpcMessage) -> Option<(RequestId, bool)> {
    match message {
        ClientJsonRpcMessage::Request(request) => {
            let probing = matches!(request.request, ClientRequest::DiscoverRequest(_));
            Some((request.id.clone(), probing))
        }
        _ => None,
    }
}

/// A refusal may be an answer: a JSON-RPC error, or the sign of a server of the older era.
fn declined(
    status: u16,
    refusal: McpError,
    asks: Option<(RequestId, bool)>,
) -> Result<StreamableHttpPostResponse, Fault> {
    let body = match &refusal {
        McpError::Status { body, .. } => body.as_bytes(),
        _ => b"",
    };
    let error = match understand(body) {
        Heard::Message(message) => match *message {
            ServerJsonRpcMessage::Error(error) => Some(error.error),
            _ => None,
        },
        _ => None,
    };
    let Some((id, probing)) = asks else {
        return Err(Fault::Client(Refused(refusal)));
    };
    let modern = |error: &ErrorData| MODERN.contains(&error.code.0);
    let answer = match error {
        _ if matches!(status, 401 | 403 | 429) => None,
        Some(error) if !probing || modern(&error) => Some(error),
        _ if probing && (400..500).contains(&status) => Some(no_discover()),
        other => other,
    };
    match answer {
        Some(error) => Ok(answered(error, id)),
        None => Err(Fault::Client(Refused(refusal))),
    }
}

/// What a server of the older era says to the question which era it is of.
fn no_discover() -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "no server/discover", None)
}

fn answered(error: ErrorData, id: RequestId) -> StreamableHttpPostResponse {
    StreamableHttpPostResponse::Json(ServerJsonRpcMessage::error(error, Some(id)), None)
}

enum Kind {
    Json,
    Events,
    Other,
}

fn kind(response: &reqwest::Response) -> Kind {
    let kind = response.headers().get(CONTENT_TYPE);
    match kind.and_then(|kind| kind.to_str().ok()) {
        Some(kind) if kind.starts_with("application/json") => Kind::Json,
        Some(kind) if kind.starts_with("text/event-stream") => Kind::Events,
        _ => Kind::Other,
    }
}

/// One message, or what earlier revisions call a batch.
fn messages(body: &[u8]) -> Option<Vec<ServerJsonRpcMessage>> {
    let body = body.trim_ascii();
    if let Heard::Message(one) = understand(body) {
        return Some(vec![*one]);
    }
    if values(body) > MOST_VALUES {
        return None;
    }
    let batch: Vec<&serde_json::value::RawValue> = serde_json::from_slice(body).ok()?;
    let heard = batch.iter().map(|one| understand(one.get().as_bytes()));
    let all: Vec<_> = heard
        .filter_map(|heard| match heard {
            Heard::Message(message) => Some(*message),
            _ => None,
        })
        .collect();
    (!all.is_empty()).then_some(all)
}

fn batch(all: &[ServerJsonRpcMessage]) -> BoxStream<'static, Result<Sse, SseError>> {
    let events: Vec<_> = all
        .iter()
        .filter_map(|one| serde_json::to_string(one).ok())
        .map(|text| Ok(Sse::default().data(text)))
        .collect();
    stream::iter(events).boxed()
}

/// Hears what a server sends on one stream.
struct Listener {
    endpoint: Endpoint,
    /// What our answers to its questions are sent with.
    headers: HeaderMap,
}

impl Listener {
    /// As they come, each of a bounded size, and only those that are for rmcp. How soon to come again is ours to decide.
    fn events(self, response: reqwest::Response) -> BoxStream<'static, Result<Sse, SseError>> {
        let mut lease = self.endpoint.0.lease.clone();
        let over = async move {
            let _ = lease.changed().await;
        };
        SseStream::from_bytes_stream(bounded(response.bytes_stream()))
            .filter_map(move |event| std::future::ready(self.sort(event)))
            .take_until(Box::pin(over))
            .boxed()
    }

    fn sort(&self, event: Result<Sse, SseError>) -> Option<Result<Sse, SseError>> {
        let mut event = match event {
            Ok(event) => event,
            Err(e) => return Some(Err(e)),
        };
        event.retry = None;
        let data = event.data.as_deref().unwrap_or_default().trim();
        // An empty one carries an id, and nothing else.
        if data.is_empty() {
            return Some(Ok(event));
        }
        match understand(data.as_bytes()) {
            Heard::Message(message) => {
                event.data = serde_json::to_string(&message).ok();
                return Some(Ok(event));
            }
            Heard::Progress(told) => self.endpoint.0.news.tell(told),
            Heard::Asked(answer) => self.reply(answer),
            Heard::Nothing | Heard::Garbage => {}
        }
        None
    }

    /// On a request of its own, which nobody waits for.
    fn reply(&self, answer: Vec<u8>) {
        let Ok(place) = self.endpoint.0.replies.clone().try_acquire_owned() else {
            return;
        };
        let (endpoint, headers) = (self.endpoint.clone(), self.headers.clone());
        tokio::spawn(async move {
            let _place = place;
            let reply = endpoint.0.send(Method::POST, headers, Some(answer));
            let _ = tokio::time::timeout(REPLY, reply).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_and_single_messages_are_read() {
        let one = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert_eq!(messages(one.as_bytes()).unwrap().len(), 1);
        let two = format!("[{one},{one}]");
        assert_eq!(messages(two.as_bytes()).unwrap().len(), 2);
        for bad in ["", "[]", "{}", "[1]", "nonsense"] {
            assert!(messages(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}
