//! WebSockets. Pingora would apply its read timeouts to them, so ati relays them itself: first the
//! upstream's handshake within connect_timeout, then bytes both ways until either side ends.

mod frames;
mod relay;
mod replay;

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Instant;

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderName, Method, Version};
use pingora_core::connectors::TransportConnector;
use pingora_core::protocols::Stream;
use pingora_error::Result;
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::Session;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::ctx::Dial;
use super::upstream_request_filter::prepare;
use super::{Ctx, fail_to_proxy, refuse, refuse_because, respond, scrub, upstream_response_filter};
use crate::egress::{Attempt, Resolver, Unresolved, peer};
use crate::error::{Refusal, UpstreamFault};
use crate::hop_by_hop;
use crate::route::Route;

/// The longest head of a handshake's response.
const MAX_HEAD: usize = 64 << 10;

/// Why the upstream's side of a tunnel can't be opened.
struct HandshakeFailure {
    fault: UpstreamFault,
    cause: Option<Box<dyn StdError + Send + Sync>>,
}

impl HandshakeFailure {
    fn closed(cause: std::io::Error) -> Self {
        HandshakeFailure {
            fault: UpstreamFault::Closed,
            cause: Some(cause.into()),
        }
    }
}

impl From<UpstreamFault> for HandshakeFailure {
    fn from(fault: UpstreamFault) -> Self {
        HandshakeFailure { fault, cause: None }
    }
}

/// Whether this request asks for a WebSocket.
pub(super) fn is_asked_for(request: &RequestHeader) -> bool {
    let lists = |name: HeaderName, word: &str| {
        let values = request.headers.get_all(name);
        values
            .iter()
            .filter_map(|value| value.to_str().ok())
            .any(|value| {
                value
                    .split(',')
                    .any(|part| part.trim().eq_ignore_ascii_case(word))
            })
    };
    request.method == Method::GET
        && request.version == Version::HTTP_11
        && lists(UPGRADE, "websocket")
        && lists(CONNECTION, "upgrade")
}

/// The caller gets its 101 only after the upstream's. Another answer of the upstream is passed on.
pub(super) async fn run(
    session: &mut Session,
    ctx: &mut Ctx,
    dialer: &TransportConnector,
) -> Result<bool> {
    if !session.is_body_empty() {
        return refuse(ctx, Refusal::BadRequest);
    }
    let (Some(forward), Some(snapshot)) = (ctx.forward(), &ctx.snapshot) else {
        return refuse(ctx, Refusal::Internal);
    };
    let route = &forward.route;
    let mut request = session.req_header().clone();
    strip_hop_by_hop(&mut request);
    prepare(&mut request, forward, ctx)?;
    request.insert_header(CONNECTION, "Upgrade")?;
    request.insert_header(UPGRADE, "websocket")?;

    let connect = route.upstream.timeouts.connect;
    let mut dial = Dial {
        tunnel_upstream: Some(route.upstream.clone()),
        ..Dial::default()
    };
    let opening = open(route, &snapshot.resolver, dialer, &request, &mut dial);
    let opened = tokio::time::timeout(connect, opening).await;
    if opened.as_ref().is_ok_and(Result::is_ok) {
        dial.answered = Some(Instant::now());
        if !forward.forwards_authorization
            && let Ok(Ok((_, answer, _))) = &opened
        {
            forward.attachment().observe(answer.status.as_u16());
        }
    }
    let attachment = forward.attachment().clone();
    ctx.dial = dial;
    let (upstream, mut answer, early) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(HandshakeFailure { fault, cause })) => {
            let refusal = Refusal::Upstream(fault);
            return match cause {
                Some(cause) => refuse_because(ctx, refusal, cause),
                None => refuse(ctx, refusal),
            };
        }
        Err(_) => return refuse(ctx, Refusal::Upstream(UpstreamFault::ConnectTimeout)),
    };
    scrub::headers(&mut answer, &attachment)?;
    drop(attachment);
    upstream_response_filter::record_upstream_id(&answer, ctx);
    if answer.status.as_u16() != 101 {
        return decline(session, ctx, answer).await;
    }
    respond::add_common_headers(&mut answer, ctx)?;
    let Some((caller, sent_early)) = take_over(session, &answer).await else {
        return refuse(ctx, Refusal::Internal);
    };
    // The route holds credentials too.
    ctx.snapshot = None;
    ctx.admitted = None;
    let (_guard, closing) = ctx.in_flight.load.enter_tunnel();
    let passed = relay::run(caller, upstream, &answer, sent_early, early, closing).await;
    ctx.traffic.tunnel = Some(passed);
    Ok(false)
}

/// What Pingora does for requests that are no WebSocket. It comes before ati adds headers, because
/// the caller's `Connection` may name those too. Extensions aren't negotiated: both sides use plain
/// RFC 6455.
fn strip_hop_by_hop(request: &mut RequestHeader) {
    let is_named = |name: &str| {
        hop_by_hop::named(&request.headers).any(|other| other.eq_ignore_ascii_case(name))
    };
    let ends_here = |name: &str| {
        matches!(
            name,
            "content-length" | "expect" | "sec-websocket-extensions"
        ) || hop_by_hop::contains(name)
            || is_named(name)
    };
    let found: Vec<HeaderName> = request
        .headers
        .keys()
        .filter(|name| ends_here(name.as_str()))
        .cloned()
        .collect();
    for name in &found {
        request.remove_header(name);
    }
}

/// Dial, send the handshake, read the head of its response. The bytes after that belong to the
/// tunnel.
async fn open(
    route: &Route,
    resolver: &Arc<Resolver>,
    dialer: &TransportConnector,
    request: &RequestHeader,
    dial: &mut Dial,
) -> std::result::Result<(Stream, ResponseHeader, Vec<u8>), HandshakeFailure> {
    let began = Instant::now();
    dial.began = Some(began);
    let addresses = route
        .upstream
        .addresses(resolver, began)
        .await
        .map_err(|Unresolved| {
            dial.attempt();
            UpstreamFault::Unresolved
        })?;
    let mut failure = HandshakeFailure::from(UpstreamFault::Connect);
    for address in addresses.iter() {
        dial.attempt();
        match dialer
            .new_stream(&peer(&route.upstream, *address, Attempt::Tunnel))
            .await
        {
            Ok(mut stream) => {
                dial.connected(Instant::now());
                let head = wire_format(request);
                stream
                    .write_all(&head)
                    .await
                    .map_err(HandshakeFailure::closed)?;
                stream.flush().await.map_err(HandshakeFailure::closed)?;
                let (answer, early) = read_answer(&mut stream).await?;
                return Ok((stream, answer, early));
            }
            Err(e) => {
                failure = HandshakeFailure {
                    fault: fail_to_proxy::fault(&e),
                    cause: Some(e),
                }
            }
        }
    }
    Err(failure)
}

fn wire_format(request: &RequestHeader) -> Vec<u8> {
    let mut head = Vec::with_capacity(1024);
    head.extend_from_slice(b"GET ");
    head.extend_from_slice(request.raw_path());
    head.extend_from_slice(b" HTTP/1.1\r\n");
    request.header_to_h1_wire(&mut head);
    head.extend_from_slice(b"\r\n");
    head
}

async fn read_answer(
    stream: &mut Stream,
) -> std::result::Result<(ResponseHeader, Vec<u8>), HandshakeFailure> {
    let mut buffer = Vec::with_capacity(1024);
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 128];
        let mut parsed = httparse::Response::new(&mut headers);
        match parsed.parse(&buffer) {
            // An interim response. The final one may already stand behind it in the buffer.
            Ok(httparse::Status::Complete(length))
                if matches!(parsed.code, Some(100 | 102..=199)) =>
            {
                buffer.drain(..length);
                continue;
            }
            Ok(httparse::Status::Complete(length)) => {
                let answer = into_header(&parsed).ok_or(UpstreamFault::Protocol)?;
                return Ok((answer, buffer.split_off(length)));
            }
            Ok(httparse::Status::Partial) if buffer.len() < MAX_HEAD => {}
            Ok(httparse::Status::Partial) => return Err(UpstreamFault::Protocol.into()),
            Err(e) => {
                return Err(HandshakeFailure {
                    fault: UpstreamFault::Protocol,
                    cause: Some(e.into()),
                });
            }
        }
        let read = stream.read_buf(&mut buffer).await;
        if read.map_err(HandshakeFailure::closed)? == 0 {
            return Err(UpstreamFault::Closed.into());
        }
    }
}

fn into_header(parsed: &httparse::Response<'_, '_>) -> Option<ResponseHeader> {
    let mut header = ResponseHeader::build(parsed.code?, Some(parsed.headers.len())).ok()?;
    for field in parsed.headers.iter() {
        header
            .append_header(field.name.to_owned(), field.value)
            .ok()?;
    }
    Some(header)
}

/// The upstream refused the handshake: its status and headers go to the caller, its body doesn't.
async fn decline(session: &mut Session, ctx: &mut Ctx, mut answer: ResponseHeader) -> Result<bool> {
    upstream_response_filter::strip_hop_by_hop(&mut answer);
    answer.remove_header("transfer-encoding");
    answer.insert_header("content-length", 0)?;
    respond::add_common_headers(&mut answer, ctx)?;
    session.set_keepalive(None);
    session
        .write_response_header(Box::new(answer), true)
        .await?;
    Ok(false)
}

/// Take the caller's connection out of Pingora's session. In its place stays a session that has
/// seen the same request and the same answer, for the hooks that Pingora still calls.
async fn take_over(session: &mut Session, answer: &ResponseHeader) -> Option<(Stream, Vec<u8>)> {
    let stand_in = replay::session(session.to_h1_raw(), answer).await?;
    let mut real = *std::mem::replace(&mut session.downstream_session, stand_in);
    // `finish` gives a connection back only where another request could follow.
    real.set_keepalive(Some(1));
    real.set_pipelining_enabled(true);
    let (stream, early) = real.finish().await.ok()??.into_parts();
    Some((
        stream,
        early.map(|bytes| bytes.to_vec()).unwrap_or_default(),
    ))
}
