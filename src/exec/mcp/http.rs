//! The HTTP transport: requests to a server behind a URL, through ati's guarded clients. rmcp's
//! streamable HTTP transport speaks the protocol on top of it.

use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use rmcp::model::{
    CallToolRequest, ClientJsonRpcMessage, ClientRequest, ErrorData, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;
use tokio::sync::{Semaphore, watch};
use url::Url;

use super::big::{self, BigMessages};
use super::bounded::{read_beginning, read_whole};
use super::content_type::{ContentType, content_type};
use super::events::{EventStream, messages, replay};
use super::handshake::Era;
use super::http_refusal::{answer_of_refusal, mentions_session, no_discover};
use super::message::{LONGEST_MESSAGE, LONGEST_MESSAGE_MB};
use super::param_headers::ParamHeaders;
use super::progress::ProgressRoutes;
use super::rmcp_call::CallIds;
use super::session::SessionLink;
use super::{LONGEST_ERROR, McpError};
use crate::backoff::{Backoff, RestartPace};
use crate::credential::Attachment;
use crate::egress::{Clients, EgressError};
use crate::exec::egress;
use crate::request_id;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// Only servers of the stateless era are sent it.
const MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const JSON_OR_EVENTS: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// More of a refusal is read than is told, so that a secret that the cut would split is redacted.
const READ_OF_REFUSAL: usize = 64 << 10;
/// Answers to a server's requests that are sent at a time. Further requests stay unanswered.
const CONCURRENT_REPLIES: usize = 4;
const REPLY_LIMIT: Duration = Duration::from_secs(10);
/// Some servers never answer `server/discover`. Less than rmcp's own limit, which doesn't apply
/// while a request is under way.
const PROBE_LIMIT: Duration = Duration::from_secs(8);
/// How soon the stream of a call is resumed that broke off.
const RESUME_DELAY: Duration = Duration::from_millis(250);
/// The stream of a session is asked for again when the server ends it: later and later, unless it
/// lasted for a while.
const STREAM_RESTARTS: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
const STEADY_STREAM: Duration = Duration::from_secs(10);
/// How long a server may take to answer that a session is deleted.
const DELETE_LIMIT: Duration = Duration::from_secs(5);

/// Why a request failed, as rmcp carries it back to ati.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ClientFailure(pub(super) McpError);

pub(super) type TransportError = StreamableHttpError<ClientFailure>;

/// The failure of ati's own client among the causes of an error of rmcp.
pub fn client_failure(error: &(dyn std::error::Error + 'static)) -> Option<McpError> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(StreamableHttpError::Client(ClientFailure(failure))) =
            error.downcast_ref::<TransportError>()
        {
            return Some(failure.clone());
        }
        next = error.source();
    }
    None
}

/// The URL of a server, and what requests to it need. A clone is the same endpoint.
#[derive(Clone)]
pub struct Endpoint(Arc<EndpointState>);

struct EndpointState {
    provider: Arc<str>,
    clients: Arc<Clients>,
    source: Option<IpAddr>,
    url: Url,
    attachment: Arc<Attachment>,
    progress: Arc<ProgressRoutes>,
    big: BigMessages,
    /// What is known of the server.
    era: Era,
    /// Ends with the session.
    lease: watch::Receiver<()>,
    stream_restarts: RestartPace,
    reply_permits: Arc<Semaphore>,
}

impl Endpoint {
    pub fn new(
        provider: &Arc<str>,
        clients: Arc<Clients>,
        source: Option<IpAddr>,
        url: Url,
        attachment: Arc<Attachment>,
        era: Era,
        link: &SessionLink,
    ) -> Self {
        Endpoint(Arc::new(EndpointState {
            provider: provider.clone(),
            clients,
            source,
            url,
            attachment,
            progress: link.progress.clone(),
            big: link.big_messages(provider),
            era,
            lease: link.lease.subscribe(),
            stream_restarts: RestartPace::new(STREAM_RESTARTS, STEADY_STREAM),
            reply_permits: Arc::new(Semaphore::new(CONCURRENT_REPLIES)),
        }))
    }

    pub fn big_messages(&self) -> BigMessages {
        self.0.big.clone()
    }

    /// The messages of a JSON body, of which rmcp takes several as events only.
    async fn messages(&self, body: Vec<Bytes>) -> Option<Vec<ServerJsonRpcMessage>> {
        if body.iter().map(Bytes::len).sum::<usize>() <= big::SMALL {
            return messages(&body.concat());
        }
        let big = self.big_messages();
        let results = big.results.clone();
        let parse = move || {
            let all = messages(&body.concat())?;
            if all.len() == 1 {
                return Some(all);
            }
            let all = all.into_iter().map(|message| results.keep(message));
            Some(all.collect())
        };
        big.run(None, parse).await
    }

    pub fn progress(&self) -> &ProgressRoutes {
        &self.0.progress
    }

    /// Ends with the session.
    pub fn lease(&self) -> watch::Receiver<()> {
        self.0.lease.clone()
    }

    /// Answers a request of the server, in the background.
    pub fn reply(&self, headers: HeaderMap, answer: Vec<u8>) {
        let Ok(permit) = self.0.reply_permits.clone().try_acquire_owned() else {
            return;
        };
        let endpoint = self.clone();
        tokio::spawn(async move {
            let _permit = permit;
            let reply = endpoint.0.send(Method::POST, headers, Some(answer));
            let _ = tokio::time::timeout(REPLY_LIMIT, reply).await;
        });
    }

    async fn post(
        &self,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        custom: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, TransportError> {
        let had_session = session.is_some();
        let mut headers = headers(session.as_deref(), custom);
        headers.insert(CONTENT_TYPE, JSON);
        let mut reply_headers = headers.clone();
        insert_ids(&mut headers, &message);
        // rmcp knows the annotations of tools that it has listed itself, on this session.
        if headers.contains_key(MCP_METHOD)
            && let Some(call) = tool_call(&message)
            && let Some(ParamHeaders(params)) = call.extensions.get()
        {
            headers.extend(params.iter().cloned());
        }
        let request = PostedRequest::of(&message);
        let body = self.0.big.clone().encode(message).await?;
        let response = self.0.send(Method::POST, headers, Some(body)).await?;
        let status = response.status().as_u16();
        if matches!(status, 202 | 204) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == 404 && had_session {
            return Err(TransportError::SessionExpired);
        }
        if !response.status().is_success() {
            let refusal = self.0.refusal(response).await;
            // After a restart, some servers answer 400 to a session that they don't know.
            if status == 400 && had_session && mentions_session(&refusal) {
                return Err(TransportError::SessionExpired);
            }
            return answer_of_refusal(status, refusal, request);
        }
        let session = response.headers().get(SESSION).cloned();
        let session_id = session
            .as_ref()
            .and_then(|id| Some(id.to_str().ok()?.to_owned()));
        match content_type(&response) {
            ContentType::Events => {
                // The answer to `initialize` brings the session's id; replies need it.
                if let Some(id) = session {
                    reply_headers.insert(SESSION, id);
                }
                let events = EventStream::new(self.clone(), reply_headers).read(response);
                Ok(StreamableHttpPostResponse::Sse(events, session_id))
            }
            ContentType::Json => {
                let body = read_whole(response, LONGEST_MESSAGE).await;
                let body = body.map_err(|_| {
                    self.0.garbage(format!(
                        "an answer of more than {LONGEST_MESSAGE_MB} MB, or a broken one"
                    ))
                })?;
                match (self.messages(body).await, request) {
                    (None, None) => Ok(StreamableHttpPostResponse::Accepted),
                    (None, Some(_)) => Err(self.0.garbage("an answer that is no JSON-RPC")),
                    (Some(mut all), _) if all.len() == 1 => {
                        let message = all.remove(0);
                        Ok(StreamableHttpPostResponse::Json(message, session_id))
                    }
                    (Some(all), _) => Ok(StreamableHttpPostResponse::Sse(replay(&all), session_id)),
                }
            }
            ContentType::Other if request.is_none() => Ok(StreamableHttpPostResponse::Accepted),
            ContentType::Other => Err(self
                .0
                .garbage("an answer that is neither JSON nor an event stream")),
        }
    }
}

impl EndpointState {
    /// Runs the work until the session is over.
    async fn while_leased<T>(
        &self,
        work: impl Future<Output = Result<T, TransportError>>,
    ) -> Result<T, TransportError> {
        let mut lease = self.lease.clone();
        tokio::select! {
            done = work => done,
            _ = lease.changed() => Err(TransportError::Client(ClientFailure(McpError::Ended {
                provider: self.provider.to_string(),
                what: "the session is over".to_owned(),
            }))),
        }
    }

    async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Option<Vec<u8>>,
    ) -> Result<reqwest::Response, TransportError> {
        let (source, attachment) = (self.source, &self.attachment);
        let sent = send(
            &self.clients,
            source,
            &self.url,
            attachment,
            method,
            headers,
            body,
        );
        sent.await
            .map_err(|error| TransportError::Client(ClientFailure(error.into())))
    }

    /// The error of an answer whose status is no success, with the beginning of its body, redacted.
    async fn refusal(&self, response: reqwest::Response) -> McpError {
        let status = response.status().as_u16();
        let body = read_beginning(response, READ_OF_REFUSAL).await;
        let body = body.unwrap_or_default();
        let body = self
            .attachment
            .redact_cut_text(body.trim_ascii(), LONGEST_ERROR);
        McpError::Status {
            provider: self.provider.to_string(),
            status,
            body,
        }
    }

    fn garbage(&self, what: impl Into<String>) -> TransportError {
        TransportError::Client(ClientFailure(McpError::Garbage {
            provider: self.provider.to_string(),
            what: what.into(),
        }))
    }
}

impl StreamableHttpClient for Endpoint {
    type Error = ClientFailure;

    async fn post_message(
        &self,
        _: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        custom: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, TransportError> {
        let request = PostedRequest::of(&message);
        let posted = self.0.while_leased(self.post(message, session, custom));
        match request {
            Some(request) if request.is_probe && self.0.era == Era::Unknown => {
                match tokio::time::timeout(PROBE_LIMIT, posted).await {
                    Ok(posted) => posted,
                    Err(_) => Ok(request.answer(no_discover())),
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
    ) -> Result<(), TransportError> {
        let headers = headers(Some(&session), custom);
        let deletion = self.0.send(Method::DELETE, headers, None);
        // A courtesy to the server: nothing depends on its answer.
        match tokio::time::timeout(DELETE_LIMIT, deletion).await {
            Ok(deleted) => deleted.map(drop),
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
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, TransportError> {
        let mut reply_headers = headers(session.as_deref(), custom);
        let mut headers = reply_headers.clone();
        let id = last_event.as_deref().map(HeaderValue::from_str);
        if let Some(Ok(id)) = id {
            headers.insert(LAST_EVENT, id);
        }
        // With a last event, this is the stream of a call that broke off, whose caller waits.
        let delay = match last_event {
            Some(_) => RESUME_DELAY,
            None => self.0.stream_restarts.next_delay(),
        };
        let get = async {
            tokio::time::sleep(delay).await;
            self.0.send(Method::GET, headers, None).await
        };
        let response = self.0.while_leased(get).await?;
        match (response.status().is_success(), content_type(&response)) {
            (true, ContentType::Events) => {
                reply_headers.insert(CONTENT_TYPE, JSON);
                Ok(EventStream::new(self.clone(), reply_headers).read(response))
            }
            _ => Err(TransportError::ServerDoesNotSupportSse),
        }
    }
}

/// Sends one request with ati's credential, which replaces headers of the same name. Redirects
/// aren't followed: a session belongs to one server.
pub(super) async fn send(
    clients: &Clients,
    source: Option<IpAddr>,
    url: &Url,
    attachment: &Attachment,
    method: Method,
    headers: HeaderMap,
    body: Option<Vec<u8>>,
) -> Result<reqwest::Response, EgressError> {
    egress::check(clients, url)?;
    let client = egress::client(clients, source)?;
    let mut full = url.clone();
    if let Some(pair) = attachment.query(true) {
        egress::append_query(&mut full, &String::from_utf8_lossy(pair.expose()));
    }
    let mut request = reqwest::Request::new(method, full);
    *request.headers_mut() = headers;
    let headers = request.headers_mut();
    let _ = attachment.attach(true, |name, value| {
        headers.insert(name, value);
        Ok::<_, std::convert::Infallible>(())
    });
    *request.body_mut() = body.map(Into::into);
    let response = client.execute(request).await;
    let response = response.map_err(|e| egress::failed(&e, &url.origin()))?;
    attachment.observe(response.status().as_u16());
    Ok(response)
}

fn headers(session: Option<&str>, custom: HashMap<HeaderName, HeaderValue>) -> HeaderMap {
    let mut headers: HeaderMap = custom.into_iter().collect();
    headers.insert(ACCEPT, JSON_OR_EVENTS);
    if let Some(session) = session.and_then(|id| HeaderValue::from_str(id).ok()) {
        headers.insert(SESSION, session);
    }
    headers
}

/// The request in a posted message, which waits for an answer. Notifications wait for none.
pub(super) struct PostedRequest {
    id: RequestId,
    /// `server/discover`, which finds out the era.
    pub(super) is_probe: bool,
}

impl PostedRequest {
    fn of(message: &ClientJsonRpcMessage) -> Option<Self> {
        match message {
            ClientJsonRpcMessage::Request(request) => Some(PostedRequest {
                id: request.id.clone(),
                is_probe: matches!(request.request, ClientRequest::DiscoverRequest(_)),
            }),
            _ => None,
        }
    }

    pub(super) fn answer(self, error: ErrorData) -> StreamableHttpPostResponse {
        let answer = ServerJsonRpcMessage::error(error, Some(self.id));
        StreamableHttpPostResponse::Json(answer, None)
    }
}

/// The ids of the request that made this call, as headers.
fn insert_ids(headers: &mut HeaderMap, message: &ClientJsonRpcMessage) {
    let Some(ids) = tool_call(message).and_then(|call| call.extensions.get::<CallIds>()) else {
        return;
    };
    if let Ok(id) = HeaderValue::from_bytes(ids.request.text().as_bytes()) {
        headers.insert(request_id::HEADER, id);
    }
    if let Some(parent) = ids.traceparent {
        parent.insert(headers);
    }
}

fn tool_call(message: &ClientJsonRpcMessage) -> Option<&CallToolRequest> {
    let ClientJsonRpcMessage::Request(request) = message else {
        return None;
    };
    match &request.request {
        ClientRequest::CallToolRequest(call) => Some(call),
        _ => None,
    }
}
