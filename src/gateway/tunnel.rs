//! WebSockets. Pingora would apply its read timeouts to them, so they are relayed here: the upstream's handshake within
//! connect_timeout, then bytes both ways for as long as both sides like.

mod frames;
mod relay;
mod replay;

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderName, Method, Version};
use pingora_core::connectors::TransportConnector;
use pingora_core::protocols::Stream;
use pingora_error::Result;
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::Session;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::upstream_request_filter::prepare;
use super::{Ctx, refuse, respond, upstream_response_filter};
use crate::egress::{Attempt, peer};
use crate::error::{Refusal, UpstreamFault};
use crate::route::Route;
use crate::snapshot::Snapshot;

/// No upstream has more to say about a handshake.
const MAX_HEAD: usize = 64 << 10;

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

/// Relay, or answer with what the upstream said instead. The caller gets its 101 only after the upstream gave one.
pub(super) async fn run(
    session: &mut Session,
    ctx: &mut Ctx,
    dialer: &TransportConnector,
) -> Result<bool> {
    if !session.is_body_empty() {
        return refuse(ctx, Refusal::BadRequest);
    }
    let Some(forward) = ctx.forward() else {
        return refuse(ctx, Refusal::Internal);
    };
    let route = &forward.route;
    let mut request = session.req_header().clone();
    strip_hop_by_hop(&mut request);
    prepare(&mut request, forward, ctx.from_proxy)?;
    request.insert_header(CONNECTION, "Upgrade")?;
    request.insert_header(UPGRADE, "websocket")?;

    let connect = route.upstream.timeouts.connect;
    let opened = tokio::time::timeout(connect, open(route, ctx, dialer, &request)).await;
    let (upstream, mut answer, early) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(fault)) => return refuse(ctx, Refusal::Upstream(fault)),
        Err(_) => return refuse(ctx, Refusal::Upstream(UpstreamFault::ConnectTimeout)),
    };
    if !forward.forwards_authorization {
        route.attachment.observe(answer.status.as_u16());
    }
    if answer.status.as_u16() != 101 {
        return decline(session, ctx, answer).await;
    }
    respond::add_signature_status(&mut answer, ctx)?;
    let Some((caller, sent_early)) = take_over(session, &answer).await else {
        return refuse(ctx, Refusal::Internal);
    };
    // It may live for days; the keys that it began with shouldn't.
    ctx.snapshot = Snapshot::retired();
    ctx.admitted = None;
    let (_guard, closing) = ctx.load().enter_tunnel();
    let passed = relay::run(caller, upstream, &answer, sent_early, early, closing).await;
    ctx.tunnelled = Some(passed);
    Ok(false)
}

/// What Pingora does on the ordinary way: before anything of ours is added, whatever the caller meant for us alone goes. Extensions are not
/// negotiated: both legs speak plain RFC 6455.
fn strip_hop_by_hop(request: &mut RequestHeader) {
    let named: Vec<String> = request
        .headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| !name.is_empty())
        .collect();
    for name in &named {
        request.remove_header(name.as_str());
    }
    for name in [
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "trailers",
        "transfer-encoding",
        "content-length",
        "expect",
        "http2-settings",
        "sec-websocket-extensions",
    ] {
        request.remove_header(name);
    }
}

/// Dial, ask, read the answer's head. What came after it belongs to the tunnel.
async fn open(
    route: &Route,
    ctx: &Ctx,
    dialer: &TransportConnector,
    request: &RequestHeader,
) -> std::result::Result<(Stream, ResponseHeader, Vec<u8>), UpstreamFault> {
    let addresses = route
        .upstream
        .addresses(&ctx.snapshot.resolver)
        .await
        .map_err(|_| UpstreamFault::Unresolved)?;
    let mut failure = UpstreamFault::Connect;
    for address in addresses.iter() {
        match dialer
            .new_stream(&peer(&route.upstream, *address, Attempt::Tunnel))
            .await
        {
            Ok(mut stream) => {
                let mut head = Vec::with_capacity(1024);
                head.extend_from_slice(b"GET ");
                head.extend_from_slice(request.raw_path());
                head.extend_from_slice(b" HTTP/1.1\r\n");
                request.header_to_h1_wire(&mut head);
                head.extend_from_slice(b"\r\n");
                stream
                    .write_all(&head)
                    .await
                    .map_err(|_| UpstreamFault::Closed)?;
                stream.flush().await.map_err(|_| UpstreamFault::Closed)?;
                let (answer, early) = read_answer(&mut stream).await?;
                return Ok((stream, answer, early));
            }
            Err(e) => failure = super::fail_to_proxy::fault(&e),
        }
    }
    Err(failure)
}

async fn read_answer(
    stream: &mut Stream,
) -> std::result::Result<(ResponseHeader, Vec<u8>), UpstreamFault> {
    let mut buffer = Vec::with_capacity(1024);
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 128];
        let mut parsed = httparse::Response::new(&mut headers);
        match parsed.parse(&buffer) {
            // Hints on the way to the answer; it may have come in the same piece.
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
            _ => return Err(UpstreamFault::Protocol),
        }
        let read = stream.read_buf(&mut buffer).await;
        if read.map_err(|_| UpstreamFault::Closed)? == 0 {
            return Err(UpstreamFault::Closed);
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

/// The upstream said no: its status and headers go to the caller, its body doesn't.
async fn decline(session: &mut Session, ctx: &mut Ctx, mut answer: ResponseHeader) -> Result<bool> {
    upstream_response_filter::strip(&mut answer);
    answer.remove_header("transfer-encoding");
    answer.insert_header("content-length", 0)?;
    respond::add_signature_status(&mut answer, ctx)?;
    session.set_keepalive(None);
    session
        .write_response_header(Box::new(answer), true)
        .await?;
    Ok(false)
}

/// Take the caller's connection out of Pingora's hands. In its place stays a session that has seen the same request and the same
/// answer, for the hooks that still ask.
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
