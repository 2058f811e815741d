//! The short way: plain HTTP/1.1 requests without Pingora's proxy. The same functions decide,
//! strip, attach, redact, count and log on both ways; what differs is how bytes get in and out.
//! Whatever isn't plain, and every refusal and failure of a route goes to Pingora, which answers.
//!
//! ```text
//! inbox       room for what callers send
//! request     the head of a plain request, for admission and for the upstream
//! upstream    connections: from the worker's pool, or dialled
//! exchange    both bodies at the same time, until the answer is complete
//! answer      the head of an answer, for the caller
//! builtin     endpoints of ati's own, by the same `api::answer`
//! patience    one timer for a connection
//! ```

mod answer;
mod builtin;
mod exchange;
mod inbox;
mod patience;
mod request;
mod scratch;
mod upstream;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use http::request::Parts;
use pingora_core::protocols::l4::socket::SocketAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

use super::fail_to_proxy::{self, LINGER, LINGER_BYTES};
use super::logging::{self, Failed, Outcome};
use super::{Ctx, Gateway, HeaderWatch, early_request_filter, request_filter};
use crate::clock::unix_at;
use crate::egress::Speaks;
use crate::error::{Refusal, UpstreamFault};
use crate::filters::Target;
use crate::http1::answer::Parser as AnswerParser;
use crate::http1::request::{Parser, Reading};
use exchange::{End, Exchange};
use patience::Patience;
use scratch::Scratch;
use upstream::Connected;

/// How long the caller has to receive the last bytes when the connection closes.
const SHUTDOWN_TIME: Duration = Duration::from_secs(5);
/// A caller's connection.
pub trait CallerStream: AsyncRead + AsyncWrite + Unpin + Send + Sync {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + Sync> CallerStream for S {}

/// What the connection's task does next.
pub enum Next {
    /// The connection has ended.
    Close,
    HandOver(HandOver),
}

/// A request that Pingora has to serve.
pub struct HandOver {
    /// What the caller has sent and that is unread, from the first byte of the request.
    pub unread: BytesMut,
    /// Where the request ends, counted from its first byte: a plain one. Behind its end, the
    /// connection comes back to the short way. None: that isn't known.
    pub end: Option<u64>,
    /// A part of the body is gone already. Pingora sees the connection end at `end`.
    pub is_cut: bool,
    /// What was done for the request.
    pub begun: Option<Box<Ctx>>,
}

/// One connection of a caller on the short way.
pub struct Connection {
    watch: Arc<HeaderWatch>,
    peer: Option<SocketAddr>,
    parser: Parser,
    inbox: BytesMut,
    patience: Patience,
    has_served: bool,
}

/// One plain request.
struct Plain {
    ctx: Box<Ctx>,
    parts: Parts,
    head: Bytes,
}

/// How a request of a route ended.
enum Served {
    /// The connection can be used again.
    Keep,
    Close,
    HandOver(HandOver),
}

impl Connection {
    pub fn new(watch: Arc<HeaderWatch>, peer: Option<SocketAddr>) -> Self {
        Connection {
            watch,
            peer,
            parser: Parser::default(),
            inbox: BytesMut::new(),
            patience: Patience::default(),
            has_served: false,
        }
    }

    /// The connection comes back from Pingora, with bytes of further requests.
    pub fn come_back(&mut self, unread: BytesMut) {
        self.inbox = unread;
    }

    /// Serves requests until one of them isn't for the short way, or the connection ends.
    pub async fn serve(
        &mut self,
        stream: &mut dyn CallerStream,
        gateway: &Gateway,
        shutdown: &watch::Receiver<bool>,
    ) -> Next {
        loop {
            // The watch begins with the first request.
            if self.has_served {
                self.watch.awaiting(self.inbox.len());
            }
            self.has_served = true;
            match self.read_head(stream).await {
                HeadRead::Plain => {}
                HeadRead::Closed => return self.close(stream).await,
                HeadRead::NotPlain => return self.hand_over_rest(),
            }
            self.watch.serving();
            match self.serve_request(stream, gateway, shutdown).await {
                Served::Keep => {}
                Served::Close => return self.close(stream).await,
                Served::HandOver(handed_over) => return Next::HandOver(handed_over),
            }
        }
    }

    /// Reads until there is a whole head, or something that will never be a plain one.
    async fn read_head(&mut self, stream: &mut dyn CallerStream) -> HeadRead {
        loop {
            if !self.inbox.is_empty() {
                match self.parser.parse(&self.inbox) {
                    Reading::Plain(_) => return HeadRead::Plain,
                    Reading::NotPlain => return HeadRead::NotPlain,
                    Reading::Incomplete => self.watch.has_part(),
                }
            }
            let (watch, inbox) = (&self.watch, &mut self.inbox);
            let read = poll_fn(|cx| {
                inbox::make_room(inbox);
                let read = std::pin::pin!(stream.read_buf(inbox)).poll(cx);
                if read.is_pending() {
                    inbox::give_back(inbox);
                }
                match read {
                    Poll::Pending if watch.must_close(cx) => Poll::Ready(None),
                    other => other.map(Some),
                }
            });
            match read.await {
                Some(Ok(1..)) => {}
                // Pingora knows what to do with half a head.
                Some(_) if !self.inbox.is_empty() => return HeadRead::NotPlain,
                Some(_) | None => return HeadRead::Closed,
            }
        }
    }

    fn hand_over_rest(&mut self) -> Next {
        Next::HandOver(HandOver {
            unread: std::mem::take(&mut self.inbox),
            end: None,
            is_cut: false,
            begun: None,
        })
    }

    async fn close(&mut self, stream: &mut dyn CallerStream) -> Next {
        // Failure and timeout are ignored: the caller is gone, or doesn't read.
        let _ = tokio::time::timeout(SHUTDOWN_TIME, stream.shutdown()).await;
        Next::Close
    }

    /// The request whose head was parsed last.
    async fn serve_request(
        &mut self,
        stream: &mut dyn CallerStream,
        gateway: &Gateway,
        shutdown: &watch::Receiver<bool>,
    ) -> Served {
        let head = self.inbox.split_to(self.parser.head().length).freeze();
        let Some(parts) = request::parts(self.parser.head(), &head) else {
            return self.hand_over_unseen(head);
        };
        let ctx = Box::new(Ctx::new(gateway.current.load_full(), &gateway.load));
        let mut plain = Plain { ctx, parts, head };
        plain.ctx.is_begun = true;
        let begun =
            early_request_filter::begin(&mut plain.ctx, self.peer.as_ref(), &plain.parts.headers);
        let admitted = match begun {
            Ok(()) => {
                let keys = gateway.services.keys.as_deref();
                let now = unix_at(plain.ctx.started);
                request_filter::admit(&plain.parts, || None, keys, now, &mut plain.ctx).await
            }
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = admitted {
            plain.ctx.refusal = Some(refusal);
            return Served::HandOver(self.hand_over(plain));
        }
        let builtin = match plain.ctx.admitted.as_ref().map(|pass| pass.target()) {
            Some(Target::Upstream { forward, .. }) => {
                let route = &forward.route;
                if forward.scrubs() || route.upstream.speaks() != Speaks::Http1 {
                    return Served::HandOver(self.hand_over(plain));
                }
                return self.forward(stream, gateway, shutdown, plain).await;
            }
            Some(Target::Public(builtin) | Target::Admin(builtin)) => *builtin,
            Some(Target::Builtin { endpoint, .. }) => *endpoint,
            None => return Served::HandOver(self.hand_over(plain)),
        };
        // Boxed: the connection's task keeps no room for it.
        Box::pin(self.answer(builtin, stream, gateway, shutdown, plain)).await
    }

    /// A request that was not admitted yet: Pingora begins anew, and keeps the connection.
    fn hand_over_unseen(&mut self, head: Bytes) -> Served {
        let mut unread = BytesMut::from(head);
        unread.extend_from_slice(&self.inbox);
        self.inbox = BytesMut::new();
        Served::HandOver(HandOver {
            unread,
            end: None,
            is_cut: false,
            begun: None,
        })
    }

    /// A request of which no byte of the body is gone.
    fn hand_over(&mut self, plain: Plain) -> HandOver {
        let Plain { ctx, parts, head } = plain;
        drop(parts);
        let length = head.len() as u64;
        let mut unread = BytesMut::from(head);
        unread.extend_from_slice(&self.inbox);
        self.inbox = BytesMut::new();
        HandOver {
            unread,
            end: Some(length + self.parser.head().body()),
            is_cut: false,
            begun: Some(ctx),
        }
    }

    async fn forward(
        &mut self,
        stream: &mut dyn CallerStream,
        gateway: &Gateway,
        shutdown: &watch::Receiver<bool>,
        mut plain: Plain,
    ) -> Served {
        let mut scratch = Scratch::take();
        let stall = plain
            .ctx
            .snapshot
            .as_ref()
            .map_or(Duration::ZERO, |snapshot| snapshot.settings.limits.stall);
        let mut may_retry = self.parser.head().body() == 0 && plain.parts.method.is_idempotent();
        let mut pooled = true;
        loop {
            let mut connected = match upstream::connect(&mut plain.ctx, gateway, pooled).await {
                Ok(connected) => connected,
                Err(upstream::NoConnection::Http2) => {
                    return Served::HandOver(self.hand_over(plain));
                }
                Err(upstream::NoConnection::Failed(fault, cause)) => {
                    plain.ctx.refusal = Some(Refusal::Upstream(fault));
                    plain.ctx.cause = cause;
                    return Served::HandOver(self.hand_over(plain));
                }
            };
            scratch.clear();
            let written = request::write(&mut scratch.to_upstream, self.parser.head(), &plain);
            if written.is_none() {
                plain.ctx.refusal = Some(Refusal::Internal);
                return Served::HandOver(self.hand_over(plain));
            }
            plain.ctx.traffic.request = 0;
            plain.ctx.dial.connected(connected.at);
            let head = self.parser.head();
            let mut exchange = Exchange {
                ctx: &mut plain.ctx,
                is_head: plain.parts.method == http::Method::HEAD,
                closes: head.closes,
                shutdown,
                since: connected.at,
                body_left: head.body(),
                body_taken: 0,
                caller: stream,
                upstream: &mut connected.stream,
                inbox: &mut self.inbox,
                scratch: &mut scratch,
                patience: &mut self.patience,
                stall,
                state: exchange::State::default(),
            };
            let end = match exchange.begin() {
                Ok(()) => poll_fn(|cx| exchange.poll(cx)).await,
                Err(end) => end,
            };
            let exchange::Exchange {
                state,
                body_left,
                body_taken,
                ..
            } = exchange;
            let is_stale = connected.is_reused && !state.has_answered_bytes;
            if is_stale && may_retry && matches!(end, End::Upstream(UpstreamFault::Closed, _)) {
                // The connection was closed while it idled, before it saw the request.
                may_retry = false;
                pooled = false;
                scratch.parser = AnswerParser::of_proxy();
                continue;
            }
            let progress = Progress {
                state,
                body_left,
                body_taken,
            };
            return self
                .finish(stream, gateway, plain, scratch, connected, progress, end)
                .await;
        }
    }

    /// After the exchange: the pool, the log, and what becomes of the connection.
    #[expect(clippy::too_many_arguments)]
    async fn finish(
        &mut self,
        stream: &mut dyn CallerStream,
        gateway: &Gateway,
        mut plain: Plain,
        scratch: Scratch,
        connected: Connected,
        progress: Progress,
        end: End,
    ) -> Served {
        let Progress {
            state,
            body_left,
            body_taken,
        } = progress;
        let mut outcome = Outcome {
            request: &plain.parts,
            status: state.status,
            bytes_in: self.parser.head().body() - body_left,
            bytes_out: state.bytes_out,
            failed: None,
        };
        match end {
            End::Done => {
                if state.can_reuse_upstream {
                    connected.give_back(&plain.ctx);
                }
                scratch.give_back();
                logging::record(&outcome, &plain.ctx, &gateway.services);
                drop(plain);
                self.inbox.advance(body_taken);
                if body_left > 0 {
                    // A connection that closes with bytes unread is reset, and the answer lost.
                    discard(stream, body_left, LINGER, LINGER_BYTES).await;
                    return Served::Close;
                }
                if state.keeps {
                    Served::Keep
                } else {
                    Served::Close
                }
            }
            End::Caller(kind, cause) => {
                outcome.failed = Some(Failed { kind, cause });
                logging::record(&outcome, &plain.ctx, &gateway.services);
                Served::Close
            }
            End::Upstream(fault, cause) if state.status > 0 => {
                // The answer has begun: the cut connection tells the caller.
                let refusal = Refusal::Upstream(fault);
                fail_to_proxy::count(&refusal, &plain.ctx);
                plain.ctx.refusal = Some(refusal);
                outcome.failed = Some(Failed {
                    kind: "UpstreamFailed",
                    cause: cause.map(|cause| cause.to_string()),
                });
                logging::record(&outcome, &plain.ctx, &gateway.services);
                Served::Close
            }
            End::Upstream(fault, cause) => {
                plain.ctx.refusal = Some(Refusal::Upstream(fault));
                plain.ctx.cause = cause;
                Served::HandOver(self.hand_over_failed(plain, body_left, body_taken))
            }
        }
    }

    /// A request that its upstream may have seen: Pingora only answers it.
    fn hand_over_failed(&mut self, plain: Plain, body_left: u64, body_taken: usize) -> HandOver {
        let body = self.parser.head().body();
        if body_left == 0 && body_taken as u64 == body {
            // The body is still there, in front of what came behind it.
            return self.hand_over(plain);
        }
        let mut handed_over = self.hand_over(plain);
        let head = self.parser.head().length as u64;
        if body_left == 0 {
            // What came behind the body is the next request, which this connection won't serve.
            handed_over.unread.truncate(head as usize);
        }
        handed_over.end = Some(head + body_left);
        handed_over.is_cut = true;
        if let Some(ctx) = &mut handed_over.begun {
            ctx.traffic.read_before = body - body_left;
        }
        handed_over
    }
}

/// How far an exchange came.
struct Progress {
    state: exchange::State,
    /// Bytes of the request's body that were not read.
    body_left: u64,
    /// Bytes at the beginning of the inbox that belong to the body, and were sent.
    body_taken: usize,
}

enum HeadRead {
    Plain,
    NotPlain,
    Closed,
}

/// Reads and drops the rest of a body, within limits. Returns how much of it is left.
async fn discard(
    stream: &mut dyn CallerStream,
    mut left: u64,
    patience: Duration,
    most: usize,
) -> u64 {
    let mut space = vec![0; 8 << 10];
    let mut dropped = 0;
    let read = async {
        while left > 0 && dropped < most {
            let part = space.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            match stream.read(&mut space[..part]).await {
                Ok(length @ 1..) => {
                    left -= length as u64;
                    dropped += length;
                }
                Ok(0) | Err(_) => return,
            }
        }
    };
    let _ = tokio::time::timeout(patience, read).await;
    left
}

/// When an upstream's silence ends a request.
fn deadline(ctx: &Ctx, now: Instant, limit: Duration) -> Instant {
    let limit = match ctx.time_left() {
        Some(left) => limit.min(left),
        None => limit,
    };
    now + limit
}
