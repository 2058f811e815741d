//! `POST /mcp`: one message, and its answer as JSON or as an event stream.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use url::form_urlencoded;

use super::render::TextStream;
use super::{Exchange, ResultText, origin, progress, respond};
use crate::api::body::Beginning;
use crate::api::call::UPSTREAM_URL;
use crate::api::{Body, BodyError, Reply, ReplyBody, Request, Services, StreamError};
use crate::auth::Identity;
use crate::call;
use crate::config::SkillsOffer;
use crate::error::{Refusal, RpcError, RpcRefusal, Shortage, Success};
use crate::mcp::{self, ClientRequest, Era, PARAM_PREFIX, Received};
use crate::request_id::RequestId;
use crate::snapshot::Snapshot;
use crate::spool::{Spool, SpoolError, Spooled};
use crate::telemetry::metrics::METRICS;

/// A caller that reads an answer from disk slower than this on average gets no more of it.
const SLOWEST_BYTES_PER_SECOND: u64 = 256 << 10;
/// Tells a bridge, without another request, whether the tools are still the same.
pub const CATALOGUE: HeaderName = HeaderName::from_static("x-ati-catalogue");

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// How the ids of sessions begin in which the client knows the skills extension.
const SKILLS_SESSION: &str = "skills-";

pub async fn answer(
    request: Request,
    identity: &Arc<Identity>,
    snapshot: &Arc<Snapshot>,
    services: &Arc<Services>,
) -> Result<Reply, Refusal> {
    let Request {
        id,
        parts,
        body,
        trail,
    } = request;
    let headers = &parts.headers;
    origin::check(headers, &snapshot.settings.mcp)?;
    if !is_json(headers) {
        return Err(Refusal::NotJson);
    }
    let text = read(body, headers, snapshot, services, id).await?;
    let mut exchange = Exchange {
        snapshot: snapshot.clone(),
        services: services.clone(),
        identity: identity.clone(),
        request_id: id,
        trail,
        upstream_url: headers
            .get(UPSTREAM_URL)
            .map(|url| String::from_utf8_lossy(url.as_bytes()).into_owned()),
        search: wants_search(&parts),
        tells_changes: false,
        knows_skills: false,
    };
    let received = receive(text, headers, &exchange).await.map_err(refusal)?;
    let request = match received {
        Received::Request(request) => *request,
        Received::Cancelled { id } => {
            services.mcp_calls.cancel(identity, &id);
            return Ok(accepted());
        }
        Received::Nothing | Received::Answer { .. } => return Ok(accepted()),
    };
    let offer = snapshot.settings.mcp.skills;
    exchange.knows_skills = match offer {
        SkillsOffer::Always => true,
        SkillsOffer::Never => false,
        SkillsOffer::Negotiated => request.knows_skills || knows_skills(headers, &request),
    };
    let begins_session =
        offer == SkillsOffer::Negotiated && request.knows_skills && request.method == "initialize";
    check_params(headers, &request, snapshot).map_err(|error| refusal(request.refuse(error)))?;
    let mut reply = if request.progress_token.is_some() && accepts_events(headers) {
        let content_type = HeaderValue::from_static("text/event-stream");
        Reply::stream(content_type, progress::events(request, exchange))
    } else {
        let mut abandoned = services.abandon.subscribe();
        let answered = tokio::select! {
            answered = answer_whole(&request, &exchange) => answered,
            // The process ends. The call is dropped, and its audit line says so.
            _ = abandoned.wait_for(|end| *end) => return Err(Refusal::Overloaded),
        };
        match answered {
            Ok(result) => reply(
                Response::new(&request, result),
                snapshot.settings.tools.timeout,
            ),
            Err(error) => return Err(refusal(request.refuse(error))),
        }
    };
    if begins_session && let Ok(session) = HeaderValue::from_str(&format!("{SKILLS_SESSION}{id}")) {
        reply.headers.push((SESSION, session));
    }
    let fingerprint = HeaderValue::from_str(snapshot.catalog.fingerprint());
    if let Ok(fingerprint) = fingerprint {
        reply.headers.push((CATALOGUE, fingerprint));
    }
    Ok(reply)
}

/// Whether the session began with a client that knows the skills extension. Nothing is kept: the id
/// of the session says it.
fn knows_skills(headers: &HeaderMap, request: &ClientRequest) -> bool {
    let session = headers.get(SESSION).and_then(|id| id.to_str().ok());
    request.era == Era::Handshake && session.is_some_and(|id| id.starts_with(SKILLS_SESSION))
}

async fn answer_whole(
    request: &ClientRequest,
    exchange: &Exchange,
) -> Result<ResultText, RpcError> {
    if request.method != "tools/call" {
        return respond(request, exchange, None).await;
    }
    let calls = &exchange.services.mcp_calls;
    let running = calls.begin(&exchange.identity, &request.id);
    tokio::select! {
        answered = respond(request, exchange, None) => answered,
        () = running.cancelled() => Err(RpcError::Cancelled),
    }
}

fn refusal(refused: RpcRefusal) -> Refusal {
    Refusal::Rpc(Box::new(refused))
}

pub(in crate::api) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

fn accepts_events(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).iter().any(|value| {
        let value = value.as_bytes().to_ascii_lowercase();
        value
            .split(|byte| *byte == b',')
            .any(|kind| kind.trim_ascii().starts_with(b"text/event-stream"))
    })
}

/// `?tools=search`
fn wants_search(parts: &Parts) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes())
        .any(|(name, value)| name == "tools" && value == "search")
}

/// The body, in memory: a message is looked at as a whole.
pub(in crate::api) async fn read(
    mut body: Body,
    headers: &HeaderMap,
    snapshot: &Snapshot,
    services: &Services,
    id: RequestId,
) -> Result<Spooled, Refusal> {
    let limits = &snapshot.settings.tools;
    let most = limits.max_call_bytes;
    let spool = Spool::new(most, services.runtime.spools.clone());
    let spool = spool.within(&services.runtime.memory);
    let read = match body.announces_more_than(most as u64) {
        true => Err(BodyError::TooLarge(most)),
        false => body.begin(most, spool, limits.timeout).await,
    };
    let whole = read.and_then(|read| match read {
        Beginning::Whole(whole) => Ok(whole),
        Beginning::More(_) => Err(BodyError::TooLarge(most)),
    });
    whole.map_err(|e| {
        let cause = std::error::Error::source(&e).map(tracing::field::display);
        tracing::debug!(request_id = %id, error = %e, cause, "the body of a message can't be read");
        let error = match e {
            BodyError::TooLarge(limit) => RpcError::TooLarge(limit),
            BodyError::NotSpooled(SpoolError::MemoryExceeded { .. }) => {
                RpcError::Busy(Shortage::Memory.to_string())
            }
            e => RpcError::Invalid(format!("the body can't be read: {e}")),
        };
        refusal(RpcRefusal {
            error,
            era: mcp::era_of_headers(headers),
            id: None,
        })
    })
}

async fn receive(
    body: Spooled,
    headers: &HeaderMap,
    exchange: &Exchange,
) -> Result<Received, RpcRefusal> {
    if body.len() <= call::SMALL_TEXT as u64 {
        return Received::read(body.in_memory().unwrap_or_default(), Some(headers));
    }
    let era = mcp::era_of_headers(headers);
    let headers = headers.clone();
    let read = move || Received::read(body.in_memory().unwrap_or_default(), Some(&headers));
    let busy = |error| RpcRefusal {
        error,
        era,
        id: None,
    };
    exchange.work(read).await.map_err(busy)?
}

/// Headers that repeat arguments say the same as these.
fn check_params(
    headers: &HeaderMap,
    request: &ClientRequest,
    snapshot: &Snapshot,
) -> Result<(), RpcError> {
    let mut names = headers.keys();
    if request.method != "tools/call" || !names.any(|name| name.as_str().starts_with(PARAM_PREFIX))
    {
        return Ok(());
    }
    let tool = request.name.as_deref();
    let Some(tool) = tool.and_then(|name| snapshot.catalog.find(name)) else {
        return Ok(());
    };
    let text = request.arguments.as_ref().map_or("{}", |args| args.get());
    let arguments: Value = crate::json::parse(text, call::MOST_VALUES)
        .map_err(|e| RpcError::Params(format!("arguments: {e}")))?;
    mcp::check_params(headers, tool.input_schema(), &arguments)
}

/// 202, and an empty body.
pub(in crate::api) fn accepted() -> Reply {
    Reply {
        status: Success::Accepted.status(),
        headers: Vec::new(),
        body: ReplyBody::Whole(Bytes::new()),
    }
}

/// A whole JSON-RPC response.
pub enum Response {
    Whole(Vec<u8>),
    Stream { text: TextStream, size: u64 },
}

impl Response {
    pub fn new(request: &ClientRequest, result: ResultText) -> Self {
        match result {
            ResultText::Whole(text) => Response::Whole(mcp::success(&request.id, &text)),
            ResultText::Stream { text, size } => {
                let open = format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":",
                    request.id.get()
                );
                let piece = |text: Bytes| stream::once(async move { Ok::<_, io::Error>(text) });
                let text = piece(open.into())
                    .chain(text)
                    .chain(piece(Bytes::from_static(b"}")));
                Response::Stream {
                    text: text.boxed(),
                    size,
                }
            }
        }
    }

    pub fn into_stream(self) -> TextStream {
        match self {
            Response::Whole(text) => stream::once(async move { Ok(Bytes::from(text)) }).boxed(),
            Response::Stream { text, .. } => text,
        }
    }
}

/// The response to a request, whatever came of it.
pub fn response(request: &ClientRequest, answered: Result<ResultText, RpcError>) -> Response {
    match answered {
        Ok(result) => Response::new(request, result),
        Err(error) => Response::Whole(request.refuse(error).body()),
    }
}

/// Counts an error that is told in an event stream, where there is no refusal.
pub fn count(error: &RpcError, exchange: &Exchange) {
    METRICS.refused(error.label());
    exchange.trail.failed(crate::telemetry::trail::CallFailure {
        label: error.label(),
        upstream: None,
    });
}

fn reply(response: Response, timeout: Duration) -> Reply {
    match response {
        Response::Whole(text) => Reply::from_json(text.into()),
        Response::Stream { text, size } => {
            let seconds = size / SLOWEST_BYTES_PER_SECOND;
            let deadline = Instant::now() + timeout + Duration::from_secs(seconds);
            let text = text.map(move |piece| {
                if Instant::now() > deadline {
                    return Err("the caller reads too slowly".into());
                }
                piece.map_err(StreamError::from)
            });
            let content_type = HeaderValue::from_static("application/json");
            Reply::stream(content_type, text.boxed())
        }
    }
}
