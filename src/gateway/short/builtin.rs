//! Built-in endpoints on the short way: the same `api::answer`, within the same budgets.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method};
use pingora_core::protocols::http::date::get_cached_date;
use tokio::io::AsyncReadExt as _;
use tokio::sync::{mpsc, watch};

use super::answer::{line, write_chunk, write_last_chunk};
use super::patience::Patience;
use super::{CallerStream, Connection, Plain, Served, discard};
use crate::api::{self, Body, BodyError, Piece, Reply, ReplyBody, ReplyStream};
use crate::error::{AfterRefusal, Refusal};
use crate::filters;
use crate::gateway::fail_to_proxy::{self, FINISH, FINISH_BYTES, LINGER, LINGER_BYTES};
use crate::gateway::logging::{self, Failed, Outcome};
use crate::gateway::{Ctx, Gateway, respond};
use crate::route::Builtin;

/// Bytes of further requests that are read while one is served.
const LOOK_AHEAD: usize = 16 << 10;
/// Bytes of a body that are read at a time.
const READ: usize = 16 << 10;

/// The caller's side of a request: its body, which is read as the endpoint asks for it, and after
/// the body's end the question whether the caller is still there.
struct Upload<'a> {
    stream: &'a mut dyn CallerStream,
    inbox: &'a mut BytesMut,
    /// Bytes of the body that are unread.
    left: u64,
    /// None once the body was read, or the endpoint dropped it.
    pieces: Option<mpsc::Sender<Piece>>,
    /// Reading failed before the body's end.
    is_broken: bool,
    stall: Duration,
    patience: &'a mut Patience,
}

/// What ended a request before its answer was complete.
struct Ended {
    kind: &'static str,
    cause: Option<String>,
}

impl Ended {
    fn because(kind: &'static str, e: &io::Error) -> Self {
        Ended {
            kind,
            cause: Some(e.to_string()),
        }
    }
}

impl<'a> Upload<'a> {
    fn body(&mut self) -> Body {
        if self.left == 0 {
            return Body::empty();
        }
        if self.inbox.len() as u64 >= self.left {
            let whole = self.inbox.split_to(self.left as usize).freeze();
            self.left = 0;
            return Body::whole(whole);
        }
        let (pieces, body) = Body::channel(Some(self.left));
        self.pieces = Some(pieces);
        body
    }

    /// Runs next to the endpoint, and next to the writing of its answer. Returns when the caller
    /// has left. Cancel-safe: after its future was dropped it can be called again.
    async fn pump(&mut self) -> Ended {
        while let Some(pieces) = &self.pieces {
            // An error: the endpoint answered without reading the body to its end.
            let Ok(slot) = pieces.reserve().await else {
                self.pieces = None;
                break;
            };
            if self.left == 0 {
                slot.send(Ok(None));
                self.pieces = None;
                break;
            }
            if self.inbox.is_empty() {
                self.inbox.reserve(READ);
                let read = self.stream.read_buf(self.inbox);
                let failure = match tokio::time::timeout(self.stall, read).await {
                    Ok(Ok(1..)) => None,
                    Ok(Ok(0)) => {
                        let e = io::Error::from(io::ErrorKind::UnexpectedEof);
                        Some(BodyError::Broken(e.into()))
                    }
                    Ok(Err(e)) => Some(BodyError::Broken(e.into())),
                    Err(_) => Some(BodyError::Stalled),
                };
                if let Some(failure) = failure {
                    self.is_broken = true;
                    slot.send(Err(failure));
                    self.pieces = None;
                    break;
                }
            }
            let most = usize::try_from(self.left).unwrap_or(usize::MAX);
            let length = self.inbox.len().min(most);
            let piece = self.inbox.split_to(length).freeze();
            self.left -= length as u64;
            slot.send(Ok(Some(piece)));
        }
        // The end of the connection can't be seen behind a body that is unread.
        if self.left > 0 {
            return std::future::pending().await;
        }
        while self.inbox.len() < LOOK_AHEAD {
            match self.stream.read_buf(self.inbox).await {
                Ok(1..) => {}
                Ok(0) => {
                    return Ended {
                        kind: "ConnectionClosed",
                        cause: None,
                    };
                }
                Err(e) => return Ended::because("ConnectionClosed", &e),
            }
        }
        std::future::pending().await
    }

    /// A caller that takes nothing for too long is given up.
    async fn write(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        let (patience, stall) = (&mut *self.patience, self.stall);
        let mut stream = Pin::new(&mut *self.stream);
        let mut written = 0;
        let mut deadline = None;
        poll_fn(|cx| {
            while written < bytes.len() {
                match stream.as_mut().poll_write(cx, &bytes[written..]) {
                    Poll::Ready(Ok(0)) => {
                        let e = io::ErrorKind::WriteZero.into();
                        return Poll::Ready(Err(Ended::because("WriteError", &e)));
                    }
                    Poll::Ready(Ok(length)) => {
                        written += length;
                        deadline = None;
                    }
                    Poll::Ready(Err(e)) => {
                        return Poll::Ready(Err(Ended::because("WriteError", &e)));
                    }
                    Poll::Pending => {
                        let deadline = *deadline.get_or_insert_with(|| Instant::now() + stall);
                        if patience.is_over(deadline, cx) {
                            return Poll::Ready(Err(Ended {
                                kind: "WriteTimedout",
                                cause: None,
                            }));
                        }
                        return Poll::Pending;
                    }
                }
            }
            let flushed = stream.as_mut().poll_flush(cx);
            flushed.map_err(|e| Ended::because("WriteError", &e))
        })
        .await
    }
}

/// What became of a request.
struct Answered {
    status: u16,
    bytes_out: u64,
    keeps: bool,
    /// After the answer, the unread body is read on for a while.
    lingers: bool,
    ended: Option<Ended>,
}

impl Connection {
    /// Answers a request to a built-in endpoint.
    pub(super) async fn answer(
        &mut self,
        builtin: Builtin,
        stream: &mut dyn CallerStream,
        gateway: &Gateway,
        shutdown: &watch::Receiver<bool>,
        mut plain: Plain,
    ) -> Served {
        let length = self.parser.head().body();
        let closes = self.parser.head().closes;
        let Some(snapshot) = plain.ctx.snapshot.clone() else {
            return Served::Close;
        };
        let trail = plain.ctx.call_trail(&gateway.services);
        let mut upload = Upload {
            stream,
            inbox: &mut self.inbox,
            left: length,
            pieces: None,
            is_broken: false,
            stall: snapshot.settings.limits.stall,
            patience: &mut self.patience,
        };
        let request = api::Request {
            id: plain.ctx.request_id,
            parts: plain.parts.clone(),
            body: upload.body(),
            trail,
        };
        let replied = match &plain.ctx.admitted {
            Some(pass) => {
                // Boxed: its future is large, and the connection's task keeps room for it.
                let answering = api::answer(builtin, pass, request, &snapshot, &gateway.services);
                let mut answering = Box::pin(answering);
                tokio::select! {
                    biased;
                    replied = &mut answering => Ok(replied),
                    left = upload.pump() => Err(left),
                }
            }
            None => Ok(Err(Refusal::Internal)),
        };
        let may_keep = |upload: &Upload<'_>| {
            let is_last = *shutdown.borrow() && upload.inbox.is_empty();
            !closes && !is_last && upload.left == 0 && !upload.is_broken
        };
        let answered = match replied {
            Err(ended) => Answered {
                status: 0,
                bytes_out: 0,
                keeps: false,
                lingers: false,
                ended: Some(ended),
            },
            Ok(Ok(mut reply)) => {
                if snapshot.routes.serves_files(filters::host(&plain.parts)) {
                    let one = HeaderValue::from_static("1");
                    reply.headers.push((api::FILES_HEADER, one));
                }
                let keeps = may_keep(&upload);
                let abandoned = gateway.services.abandon.subscribe();
                write(&mut upload, &plain, reply, keeps, abandoned).await
            }
            Ok(Err(refusal)) => {
                let connection = refusal.connection();
                if connection == AfterRefusal::KeepOpen && upload.left <= FINISH_BYTES as u64 {
                    finish_body(&mut upload).await;
                }
                let keeps = connection == AfterRefusal::KeepOpen && may_keep(&upload);
                fail_to_proxy::count(&refusal, &plain.ctx);
                if refusal == Refusal::Internal {
                    let id = plain.ctx.request_id;
                    tracing::error!(request_id = %id, "a request failed inside of ati");
                }
                let reply = respond::refusal_reply(&plain.parts, &plain.ctx, &refusal);
                plain.ctx.refusal = Some(refusal);
                let abandoned = gateway.services.abandon.subscribe();
                let mut answered = write(&mut upload, &plain, reply, keeps, abandoned).await;
                answered.lingers = connection != AfterRefusal::CloseUnread;
                answered
            }
        };
        let left = upload.left;
        let outcome = Outcome {
            request: &plain.parts,
            status: answered.status,
            bytes_in: length - left,
            bytes_out: answered.bytes_out,
            failed: answered.ended.map(|ended| Failed {
                kind: ended.kind,
                cause: ended.cause,
            }),
        };
        logging::record(&outcome, &plain.ctx, &gateway.services);
        let failed = outcome.failed.is_some();
        drop(plain);
        if answered.keeps && !failed {
            return Served::Keep;
        }
        if answered.lingers && !failed && left > 0 {
            discard(stream, left, LINGER, LINGER_BYTES).await;
        }
        Served::Close
    }
}

/// Reads the rest of a short body, so that what follows on the connection is another request.
async fn finish_body(upload: &mut Upload<'_>) {
    upload.pieces = None;
    if upload.left == 0 || upload.is_broken {
        return;
    }
    let there = upload.inbox.len().min(upload.left as usize);
    let _ = upload.inbox.split_to(there);
    upload.left -= there as u64;
    upload.left = discard(upload.stream, upload.left, FINISH, FINISH_BYTES).await;
}

/// As the long way spells them: scripts of existing deployments may look for these.
fn spelled(name: &HeaderName) -> &str {
    match *name {
        CONTENT_TYPE => "Content-Type",
        CONTENT_LENGTH => "Content-Length",
        CACHE_CONTROL => "Cache-Control",
        _ => name.as_str(),
    }
}

async fn write(
    upload: &mut Upload<'_>,
    plain: &Plain,
    reply: Reply,
    keeps: bool,
    abandoned: watch::Receiver<bool>,
) -> Answered {
    let mut out = Vec::with_capacity(1024);
    let is_head = plain.parts.method == Method::HEAD;
    let status = reply.status;
    let reason = status.canonical_reason().unwrap_or_default();
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(b"\r\n");
    let has_length = reply
        .headers
        .iter()
        .any(|(name, _)| *name == CONTENT_LENGTH);
    let mut is_chunked = false;
    for (name, value) in &reply.headers {
        line(&mut out, spelled(name).as_bytes(), value.as_bytes());
    }
    match &reply.body {
        ReplyBody::Whole(body) if !has_length => {
            let length = HeaderValue::from(body.len());
            line(&mut out, b"Content-Length", length.as_bytes());
        }
        ReplyBody::Stream(_) if !has_length => {
            is_chunked = true;
            line(&mut out, b"Transfer-Encoding", b"chunked");
        }
        ReplyBody::Whole(_) | ReplyBody::Stream(_) => {}
    }
    let _ = plain.ctx.common_headers(|name, value| {
        line(&mut out, name.as_bytes(), value);
        Ok::<_, ()>(())
    });
    line(&mut out, b"Date", get_cached_date().as_bytes());
    let connection: &[u8] = if keeps { b"keep-alive" } else { b"close" };
    line(&mut out, b"Connection", connection);
    out.extend_from_slice(b"\r\n");
    let mut answered = Answered {
        status: status.as_u16(),
        bytes_out: 0,
        keeps,
        lingers: false,
        ended: None,
    };
    let written = match reply.body {
        ReplyBody::Whole(body) if !is_head => {
            answered.bytes_out = body.len() as u64;
            out.extend_from_slice(&body);
            upload.write(&out).await
        }
        ReplyBody::Stream(stream) if !is_head => {
            let pieces = Pieces {
                stream,
                abandoned,
                is_chunked,
            };
            let sent = &mut answered.bytes_out;
            pieces.write(upload, &plain.ctx, out, sent).await
        }
        ReplyBody::Whole(_) | ReplyBody::Stream(_) => upload.write(&out).await,
    };
    if let Err(ended) = written {
        answered.ended = Some(ended);
    }
    answered
}

/// A streamed answer: each piece is written as soon as it is there.
struct Pieces {
    stream: ReplyStream,
    abandoned: watch::Receiver<bool>,
    is_chunked: bool,
}

impl Pieces {
    /// Ends when the stream ends, when it fails, when the caller leaves, or when the process ends.
    /// Only the first is a clean end: without the last chunk the caller can tell that something is
    /// missing.
    async fn write(
        mut self,
        upload: &mut Upload<'_>,
        ctx: &Ctx,
        mut out: Vec<u8>,
        sent: &mut u64,
    ) -> Result<(), Ended> {
        loop {
            // The head leaves with the first piece, if that is there already.
            if !out.is_empty() {
                let ready = poll_fn(|cx| {
                    let polled = pin!(self.stream.next()).poll(cx);
                    Poll::Ready(match polled {
                        Poll::Ready(piece) => Some(piece),
                        Poll::Pending => None,
                    })
                });
                match ready.await {
                    Some(piece) => {
                        let taken = self.take(piece, ctx, &mut out, sent);
                        upload.write(&out).await?;
                        out.clear();
                        if taken? {
                            return Ok(());
                        }
                        continue;
                    }
                    None => {
                        upload.write(&out).await?;
                        out.clear();
                    }
                }
            }
            let piece = tokio::select! {
                biased;
                piece = self.stream.next() => piece,
                left = upload.pump() => return Err(left),
                _ = self.abandoned.wait_for(|end| *end) => Some(Err("the process ends".into())),
            };
            let is_last = self.take(piece, ctx, &mut out, sent)?;
            upload.write(&out).await?;
            out.clear();
            if is_last {
                return Ok(());
            }
        }
    }

    /// Appends a piece. Whether it was the last.
    fn take(
        &self,
        piece: Option<Result<Bytes, api::StreamError>>,
        ctx: &Ctx,
        out: &mut Vec<u8>,
        sent: &mut u64,
    ) -> Result<bool, Ended> {
        match piece {
            Some(Ok(bytes)) => {
                *sent += bytes.len() as u64;
                if self.is_chunked {
                    write_chunk(out, &bytes);
                } else {
                    out.extend_from_slice(&bytes);
                }
                Ok(false)
            }
            Some(Err(e)) => {
                tracing::warn!(
                    request_id = %ctx.request_id,
                    error = %e,
                    "a streamed answer broke off"
                );
                Err(Ended {
                    kind: "broken_off",
                    cause: Some(e.to_string()),
                })
            }
            None => {
                if self.is_chunked {
                    write_last_chunk(out);
                }
                Ok(true)
            }
        }
    }
}
