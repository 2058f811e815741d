//! Clients of the handshake era: `initialize` opens a session here and one at the server, and the
//! requests of the session go there.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, Method};
use serde_json::value::RawValue;

use super::events::{self, Ends};
use super::passing::Passing;
use super::sessions::{ClientSession, InUse};
use super::upstream::{HttpSession, SESSION, Upstream, VERSION};
use super::{Exchange, exec_error, framing, refusal};
use crate::api::{Reply, ReplyBody};
use crate::error::{CallError, Refusal, RpcError, RpcRefusal, Success};
use crate::exec::mcp::McpError;
use crate::exec::mcp::Target;
use crate::exec::mcp::relay::{
    self, Event, Events, Held, HttpBody, HttpReply, HttpUpstream, Responses, Sharing,
    StdioUpstream, UpstreamMessage,
};
use crate::mcp::{ClientRequest, Era};

/// How long a server may take for `initialize`.
const START_LIMIT: Duration = Duration::from_secs(30);

pub async fn initialize(
    request: &ClientRequest,
    text: &[u8],
    exchange: &Exchange,
) -> Result<Reply, RpcError> {
    let passing = match exchange.begin(request, false).await {
        Ok(passing) => passing,
        Err(answered) => return answered,
    };
    let relayed = exchange.relayed();
    let sessions = &exchange.services.provider_sessions;
    let full = || RpcError::Busy("too many MCP sessions are open".to_owned());
    let place = sessions.reserve(&exchange.identity).map_err(|_| full())?;
    let target = relayed.target().map_err(|error| exchange.error(error))?;
    let opened = tokio::time::timeout(START_LIMIT, open(request, text, exchange, &target)).await;
    let opened = opened.unwrap_or_else(|_| {
        Err(McpError::StartTimeout {
            provider: exchange.provider.name.clone(),
            detail: String::new(),
            seconds: START_LIMIT.as_secs(),
        })
    });
    let (upstream, answer, status) = match opened {
        Ok(opened) => opened,
        Err(error) => return exchange.no_answer(request, passing, exec_error(error)),
    };
    let mut passing = passing;
    let (answer, _) = passing.pass(answer);
    let message = UpstreamMessage::read(&answer.text);
    let is_open = message.is_some_and(|message| message.result.is_some());
    let mut reply = Reply::from_json(answer.into_bytes());
    reply.status = Success::relayed(status);
    if is_open {
        let session = sessions.add(&relayed, target.key, upstream, place);
        let session = session.map_err(|_| full())?;
        if let Ok(id) = HeaderValue::from_str(&session.id) {
            reply.headers.push((SESSION, id));
        }
    }
    Ok(reply)
}

/// The server's end of the session, and its answer to `initialize` with the status of that.
async fn open(
    request: &ClientRequest,
    text: &[u8],
    exchange: &Exchange,
    target: &Arc<Target>,
) -> Result<(Upstream, Held, u16), McpError> {
    let context = exchange.relayed().exec_context();
    let attachment = relay::attachment(target, context).await?;
    exchange.trail.attempt();
    let _wait = exchange.trail.wait();
    if target.is_program() {
        let runtime = &exchange.services.runtime;
        let program = StdioUpstream::start(target, attachment, Sharing::OneClient, runtime).await?;
        let mut responses = program.request(&request.id, None, text)?;
        loop {
            match responses.next().await {
                None => return Err(program.end_reason().await),
                Some(routed) if routed.is_last => {
                    return Ok((Upstream::Program(program), routed.message, 200));
                }
                Some(_) => {}
            }
        }
    }
    let server = HttpUpstream::new(target.clone(), attachment, context);
    let reply = server.send(Method::POST, exchange.forwarded(), Some(text.to_vec()));
    let reply = reply.await?;
    let (session, status) = (reply.session.clone(), reply.status);
    let answer = whole_answer(&server, reply, request.id.get()).await?;
    let session = HttpSession {
        session,
        version: agreed_version(&answer.text),
        opened_by: Arc::new(server),
    };
    Ok((Upstream::Http(session), answer, status))
}

/// The version that a server answers `initialize` with.
pub fn agreed_version(answer: &[u8]) -> Option<HeaderValue> {
    #[derive(serde::Deserialize)]
    struct Initialized {
        #[serde(rename = "protocolVersion")]
        version: String,
    }
    let message = UpstreamMessage::read(answer)?;
    let result: Initialized = serde_json::from_str(message.result?.get()).ok()?;
    HeaderValue::from_str(&result.version).ok()
}

/// The answer to a request with this id, whatever else is told before it.
pub async fn whole_answer(
    server: &HttpUpstream,
    reply: HttpReply,
    id: &str,
) -> Result<Held, McpError> {
    let answers =
        |held: &Held| UpstreamMessage::read(&held.text).is_some_and(|one| one.answers(id));
    match reply.body {
        HttpBody::Message(text) if answers(&text) => Ok(text),
        HttpBody::Message(text) if reply.status < 400 => {
            drop(text);
            Err(server.garbage("an answer that is no JSON-RPC response".to_owned()))
        }
        HttpBody::Message(text) => {
            let text = String::from_utf8_lossy(&text.text);
            Err(server.refusal(reply.status, crate::text::clip(&text, 4096)))
        }
        HttpBody::Events(mut events) => {
            while let Some(event) = events.next().await {
                match event?.data {
                    Some(text) if answers(&text) => return Ok(text),
                    _ => {}
                }
            }
            Err(server.garbage("an event stream that ended without an answer".to_owned()))
        }
        HttpBody::Text(text) => Err(server.refusal(reply.status, &text)),
        HttpBody::Nothing => Err(server.garbage("no answer to a request".to_owned())),
    }
}

/// The session that a request names. Its target is looked up anew: keys and manifest may have
/// changed since.
fn find(exchange: &Exchange) -> Result<(Arc<ClientSession>, Arc<Target>), RpcError> {
    let id = exchange.headers.get(SESSION).ok_or(RpcError::NoSession)?;
    let id = id.to_str().map_err(|_| RpcError::UnknownSession)?;
    let sessions = &exchange.services.provider_sessions;
    let relayed = exchange.relayed();
    let session = sessions.find(id, &relayed);
    let session = session.ok_or(RpcError::UnknownSession)?;
    let target = relayed.target().map_err(|error| exchange.error(error))?;
    if target.key != session.key {
        sessions.remove(&session);
        return Err(RpcError::UnknownSession);
    }
    Ok((session, target))
}

pub async fn request(
    request: &ClientRequest,
    text: &[u8],
    exchange: &Exchange,
) -> Result<Reply, RpcError> {
    let (session, target) = find(exchange)?;
    let passing = match exchange.begin(request, false).await {
        Ok(passing) => passing,
        Err(answered) => return answered,
    };
    let in_use = session.enter();
    exchange.trail.attempt();
    match &session.upstream {
        Upstream::Program(program) => {
            let token = request.progress_token.as_deref();
            let responses = match program.request(&request.id, token, text) {
                Ok(responses) => responses,
                Err(error) => return exchange.no_answer(request, passing, exec_error(error)),
            };
            let ends = Ends::of(&request.method, None, exchange);
            answer_of_program(
                request,
                responses,
                program,
                passing,
                Some(in_use),
                ends,
                exchange,
            )
            .await
        }
        Upstream::Http(http) => {
            let sent = send(exchange, &target, Method::POST, http, Some(text)).await;
            let (server, reply) = match sent {
                Ok(sent) => sent,
                Err(error) => return exchange.no_answer(request, passing, exec_error(error)),
            };
            // The server has ended the session.
            if reply.status == 404 && http.session.is_some() {
                exchange.services.provider_sessions.remove(&session);
                let mut passing = passing;
                passing.end(Some(&exec_error(
                    server.refusal(404, "the session is over"),
                )));
                return Err(RpcError::UnknownSession);
            }
            let ended = Some(session.ended());
            answer_of_http(
                request,
                &server,
                reply,
                passing,
                Some(in_use),
                ended,
                exchange,
            )
            .await
        }
    }
}

/// Sends one request of a session, with a new credential after a 401.
async fn send(
    exchange: &Exchange,
    target: &Arc<Target>,
    method: Method,
    session: &HttpSession,
    text: Option<&[u8]>,
) -> Result<(HttpUpstream, HttpReply), McpError> {
    let headers = session.headers(exchange.forwarded());
    send_to(exchange, target, method, headers, text).await
}

pub async fn send_to(
    exchange: &Exchange,
    target: &Arc<Target>,
    method: Method,
    headers: HeaderMap,
    text: Option<&[u8]>,
) -> Result<(HttpUpstream, HttpReply), McpError> {
    let context = exchange.relayed().exec_context();
    let _wait = exchange.trail.wait();
    let mut may_renew = true;
    loop {
        let attachment = relay::attachment(target, context).await?;
        let server = HttpUpstream::new(target.clone(), attachment.clone(), context);
        let body = text.map(<[u8]>::to_vec);
        let reply = server.send(method.clone(), headers.clone(), body);
        let reply = match method {
            // There may be nothing to say.
            Method::GET => reply.await?,
            _ => exchange.unless_silent(reply).await?,
        };
        exchange.trail.answered(reply.status);
        if reply.status == 401 && may_renew && relay::renew(target, &attachment, context) {
            may_renew = false;
            continue;
        }
        return Ok((server, reply));
    }
}

/// What a server behind a URL answers, as the client gets it.
pub async fn answer_of_http(
    request: &ClientRequest,
    server: &HttpUpstream,
    reply: HttpReply,
    mut passing: Passing,
    in_use: Option<InUse>,
    session: Option<tokio::sync::watch::Receiver<bool>>,
    exchange: &Exchange,
) -> Result<Reply, RpcError> {
    if let HttpBody::Events(events) = reply.body {
        let ends = Ends::of(&request.method, session, exchange);
        return Ok(events::reply(events, passing, in_use, ends));
    }
    let status = reply.status;
    match whole_answer(server, reply, request.id.get()).await {
        // Whose credential is refused is a matter between ati and the server.
        Ok(_) if matches!(status, 401 | 403 | 429) => {
            let error = server.refusal(status, "the server refused ati's credential");
            complete(in_use);
            exchange.no_answer(request, passing, exec_error(error))
        }
        Ok(text) => {
            let (text, _) = passing.pass(text);
            complete(in_use);
            let mut reply = Reply::from_json(text.into_bytes());
            reply.status = Success::relayed(status);
            Ok(reply)
        }
        Err(error) => {
            complete(in_use);
            exchange.no_answer(request, passing, exec_error(error))
        }
    }
}

fn complete(in_use: Option<InUse>) {
    if let Some(mut in_use) = in_use {
        in_use.complete();
    }
}

/// What a program answers: as JSON where the answer comes first, as events where it doesn't.
pub async fn answer_of_program(
    request: &ClientRequest,
    mut responses: Responses,
    program: &StdioUpstream,
    mut passing: Passing,
    in_use: Option<InUse>,
    ends: Ends,
    exchange: &Exchange,
) -> Result<Reply, RpcError> {
    let first = {
        let _wait = exchange.trail.wait();
        match ends.silence {
            Some(_) => {
                exchange
                    .unless_silent(async { Ok(responses.next().await) })
                    .await
            }
            None => Ok(responses.next().await),
        }
    };
    let first = match first {
        Ok(first) => first,
        Err(error) => return exchange.no_answer(request, passing, exec_error(error)),
    };
    match first {
        None => {
            let error = program.end_reason().await;
            exchange.no_answer(request, passing, exec_error(error))
        }
        Some(routed) if routed.is_last => {
            let (text, _) = passing.pass(routed.message);
            complete(in_use);
            Ok(Reply::from_json(text.into_bytes()))
        }
        Some(routed) => {
            let provider = exchange.provider.name.clone();
            let events = program_events(routed.message, responses, provider);
            Ok(events::reply(events, passing, in_use, ends))
        }
    }
}

fn program_events(first: Held, responses: Responses, provider: String) -> Events {
    let first = futures::stream::once(async move { Ok(Event::message(first)) });
    let rest = futures::stream::unfold(Some(responses), move |responses| {
        let provider = provider.clone();
        async move {
            let mut responses = responses?;
            match responses.next().await {
                Some(routed) => {
                    let next = (!routed.is_last).then_some(responses);
                    Some((Ok(Event::message(routed.message)), next))
                }
                None => {
                    let what = "the server ended".to_owned();
                    Some((Err(McpError::Ended { provider, what }), None))
                }
            }
        }
    });
    first.chain(rest).boxed()
}

/// What has no answer: a notification, or the client's answer to a request of the server's. In the
/// stateless era there is neither.
pub async fn notify(
    text: &[u8],
    cancelled: Option<&RawValue>,
    exchange: &Exchange,
) -> Result<Reply, Refusal> {
    let refuse = |error| {
        refusal(RpcRefusal {
            error,
            era: Era::Handshake,
            id: None,
        })
    };
    if !exchange.headers.contains_key(SESSION)
        && exchange
            .headers
            .get(VERSION)
            .is_some_and(|version| version == crate::mcp::STATELESS)
    {
        return Ok(framing::accepted());
    }
    let (session, target) = find(exchange).map_err(refuse)?;
    let relayed = exchange.relayed();
    let denied = |error: CallError| refuse(exchange.error(error));
    relayed.authorize().map_err(denied)?;
    let mut in_use = session.enter();
    let failed = |error| refuse(exchange.error(exec_error(error)));
    match &session.upstream {
        Upstream::Program(program) => match cancelled {
            Some(id) => program.cancel(id),
            None => program.notify(text).map_err(failed)?,
        },
        Upstream::Http(http) => {
            let sent = send(exchange, &target, Method::POST, http, Some(text)).await;
            let (server, reply) = sent.map_err(failed)?;
            if reply.status == 404 && http.session.is_some() {
                exchange.services.provider_sessions.remove(&session);
                return Err(refuse(RpcError::UnknownSession));
            }
            if reply.status >= 400 {
                return Err(failed(server.refusal(reply.status, "it refused a message")));
            }
        }
    }
    in_use.complete();
    Ok(framing::accepted())
}

/// `GET`: the stream for messages that belong to no request.
pub async fn listen(exchange: Exchange) -> Result<Reply, Refusal> {
    let exchange = &exchange;
    let refuse = |error| {
        refusal(RpcRefusal {
            error,
            era: Era::Handshake,
            id: None,
        })
    };
    let (session, target) = find(exchange).map_err(refuse)?;
    let authorized = exchange.relayed().authorize();
    authorized.map_err(|error| refuse(exchange.error(error)))?;
    let in_use = session.enter();
    let passing = exchange.passing("", "", Era::Handshake, None, false);
    let ends = Ends::of("", Some(session.ended()), exchange);
    let events: Events = match &session.upstream {
        Upstream::Program(program) => {
            let queue = program.listen();
            let queue = queue.ok_or_else(|| refuse(RpcError::UnknownSession))?;
            futures::stream::unfold(queue, |mut queue| async move {
                let routed = queue.recv().await?;
                Some((Ok(Event::message(routed.message)), queue))
            })
            .boxed()
        }
        Upstream::Http(http) => {
            let sent = send(exchange, &target, Method::GET, http, None).await;
            let failed = |error| refuse(exchange.error(exec_error(error)));
            let (server, reply) = sent.map_err(failed)?;
            match reply.body {
                HttpBody::Events(events) => events,
                _ if reply.status == 404 && http.session.is_some() => {
                    exchange.services.provider_sessions.remove(&session);
                    return Err(refuse(RpcError::UnknownSession));
                }
                _ if matches!(reply.status, 400..=404 | 406..=499) => {
                    let error = server.refusal(reply.status, "it refused the stream");
                    return Err(failed(error));
                }
                _ => {
                    return Err(Refusal::MethodNotAllowed {
                        allow: "POST,DELETE",
                    });
                }
            }
        }
    };
    Ok(events::reply(events, passing, Some(in_use), ends))
}

pub fn delete(exchange: &Exchange) -> Result<Reply, Refusal> {
    let found = find(exchange);
    let (session, _) = found.map_err(|error| {
        refusal(RpcRefusal {
            error,
            era: Era::Handshake,
            id: None,
        })
    })?;
    exchange.services.provider_sessions.remove(&session);
    Ok(Reply {
        status: Success::Answered.status(),
        headers: Vec::new(),
        body: ReplyBody::Whole(Bytes::new()),
    })
}
