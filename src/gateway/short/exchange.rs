//! One request and its answer: both bodies move at the same time, each as fast as its reader.

use std::error::Error;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use pingora_core::protocols::Stream;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::sync::watch;

use super::patience::Patience;
use super::scratch::Scratch;
use super::{CallerStream, answer, deadline};
use crate::error::{Refusal, UpstreamFault};
use crate::gateway::Ctx;
use crate::http1::Doubt;
use crate::http1::answer::Framing;
use crate::http1::body::Body;

/// Bytes that are read at a time.
const READ: usize = 16 << 10;
/// Bytes of further requests that are read while one is served. The caller's leaving isn't noticed
/// behind them.
const LOOK_AHEAD: usize = 16 << 10;

type Cause = Box<dyn Error + Send + Sync>;

/// How an exchange ended.
#[derive(Debug)]
pub(super) enum End {
    /// The caller has the whole answer.
    Done,
    /// The caller left, or stalled: the name of the error, and its cause.
    Caller(&'static str, Option<String>),
    Upstream(UpstreamFault, Option<Cause>),
}

pub(super) struct Exchange<'a> {
    pub ctx: &'a mut Ctx,
    /// The request is a HEAD.
    pub is_head: bool,
    /// The caller wants the connection to end.
    pub closes: bool,
    /// True from the start of a drain.
    pub shutdown: &'a watch::Receiver<bool>,
    /// When the upstream's connection was there.
    pub since: Instant,
    /// Bytes of the request's body that were not taken from the inbox.
    pub body_left: u64,
    /// Bytes at the beginning of the inbox that belong to the body, which is complete.
    pub body_taken: usize,
    pub caller: &'a mut dyn CallerStream,
    pub upstream: &'a mut Stream,
    pub inbox: &'a mut BytesMut,
    pub scratch: &'a mut Scratch,
    pub patience: &'a mut Patience,
    /// How long a caller may take or send nothing.
    pub stall: Duration,
    pub state: State,
}

/// How far an exchange is.
#[derive(Default)]
pub(super) struct State {
    /// Of the answer, once its head is on its way to the caller.
    pub status: u16,
    /// The caller's connection can be used again.
    pub keeps: bool,
    pub can_reuse_upstream: bool,
    /// The upstream has sent something.
    pub has_answered_bytes: bool,
    /// Body bytes that the caller has got.
    pub bytes_out: u64,
    /// Of what is for the upstream.
    sent: usize,
    /// What was sent may lie in a buffer of the stream.
    is_unflushed: bool,
    send_failure: Option<io::Error>,
    answer: Answer,
    /// The answer allows it.
    may_reuse: bool,
    /// A byte of the answer's head was written.
    has_replied: bool,
    /// Of what is for the caller.
    written: usize,
    /// Body bytes in what is for the caller.
    content: u64,
    /// Something moved since the deadline was set.
    has_moved: bool,
    deadline: Option<(Instant, Waits)>,
}

#[derive(Default)]
enum Answer {
    #[default]
    Head,
    Body(Body, Coding),
    Done,
    /// It ends here, and isn't complete: the caller gets what came so far.
    Broken(Doubt),
}

/// How the caller gets the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    AsItIs,
    Chunks,
}

/// Which side has to move next.
#[derive(Debug, Clone, Copy)]
enum Waits {
    CallerTakes,
    CallerSends,
    Upstream,
}

impl Exchange<'_> {
    /// What the caller has sent of the body already goes out together with the head.
    pub fn begin(&mut self) -> Result<(), End> {
        if self.body_left > 0 && !self.inbox.is_empty() {
            self.take_body()?;
        }
        Ok(())
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            match self.step(cx) {
                Ok(true) => {}
                Ok(false) => break,
                Err(end) => return Poll::Ready(end),
            }
        }
        let limit = match self.state.deadline {
            Some(limit) if !self.state.has_moved => limit,
            _ => self.next_deadline(),
        };
        self.state.has_moved = false;
        self.state.deadline = Some(limit);
        if self.patience.is_over(limit.0, cx) {
            return Poll::Ready(match limit.1 {
                Waits::CallerTakes => End::Caller("WriteTimedout", None),
                Waits::CallerSends => End::Caller("ReadTimedout", None),
                Waits::Upstream => self.fail(UpstreamFault::Timeout, None),
            });
        }
        Poll::Pending
    }

    /// Moves what can be moved. Whether another step may move more.
    fn step(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        self.send(cx);
        let answered = self.read_answer(cx)?;
        let replied = self.reply(cx)?;
        let received = self.read_caller(cx)?;
        Ok(answered || replied || received)
    }

    fn next_deadline(&self) -> (Instant, Waits) {
        let now = match self.state.deadline {
            Some(_) => Instant::now(),
            None => self.since,
        };
        let inactivity = self
            .ctx
            .forward()
            .map_or(Duration::ZERO, |it| it.route.upstream.timeouts.inactivity);
        let awaits_body = self.body_left > 0 && self.scratch.to_upstream.is_empty();
        if !self.scratch.to_caller.is_empty() {
            (now + self.stall, Waits::CallerTakes)
        } else if awaits_body && self.stall <= inactivity {
            (now + self.stall, Waits::CallerSends)
        } else {
            (deadline(self.ctx, now, inactivity), Waits::Upstream)
        }
    }

    /// Before a byte of the answer was written, Pingora can still answer in its place.
    fn fail(&mut self, fault: UpstreamFault, cause: Option<Cause>) -> End {
        if !self.state.has_replied {
            self.state.status = 0;
        }
        End::Upstream(fault, cause)
    }

    fn refuse(&mut self, refusal: Refusal) -> End {
        match refusal {
            Refusal::Upstream(fault) => self.fail(fault, None),
            _ => self.fail(UpstreamFault::Closed, None),
        }
    }

    fn send(&mut self, cx: &mut Context<'_>) {
        let State {
            sent,
            is_unflushed,
            send_failure,
            has_moved,
            ..
        } = &mut self.state;
        if send_failure.is_some() {
            return;
        }
        let bytes = &mut self.scratch.to_upstream;
        let mut stream = Pin::new(&mut *self.upstream);
        while *sent < bytes.len() {
            match stream.as_mut().poll_write(cx, &bytes[*sent..]) {
                Poll::Pending => return,
                Poll::Ready(Ok(length)) if length > 0 => {
                    *sent += length;
                    *is_unflushed = true;
                    *has_moved = true;
                }
                Poll::Ready(Ok(_)) => *send_failure = Some(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Err(e)) => *send_failure = Some(e),
            }
            if send_failure.is_some() {
                break;
            }
        }
        if *is_unflushed && send_failure.is_none() {
            match stream.as_mut().poll_flush(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) => *is_unflushed = false,
                Poll::Ready(Err(e)) => *send_failure = Some(e),
            }
        }
        if !bytes.is_empty() {
            // A credential was in it. An answer may still come where sending failed.
            bytes.fill(0);
            bytes.clear();
            *sent = 0;
        }
    }

    /// The rest of the body; behind it, further requests, or the end of the connection.
    fn read_caller(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let awaits_body = self.body_left > 0;
        let may_read = if awaits_body {
            self.state.send_failure.is_none() && self.scratch.to_upstream.is_empty()
        } else {
            self.inbox.len() < LOOK_AHEAD
        };
        if !may_read {
            return Ok(false);
        }
        if awaits_body {
            self.inbox.reserve(READ);
        }
        let read = pin!(self.caller.read_buf(self.inbox)).poll(cx);
        match read {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(0)) => Err(End::Caller("ConnectionClosed", None)),
            Poll::Ready(Ok(_)) => {
                if awaits_body {
                    self.state.has_moved = true;
                    self.take_body()?;
                }
                Ok(true)
            }
            Poll::Ready(Err(e)) => Err(End::Caller("ReadError", Some(e.to_string()))),
        }
    }

    /// From the inbox to what is for the upstream.
    fn take_body(&mut self) -> Result<(), End> {
        let most = usize::try_from(self.body_left).unwrap_or(usize::MAX);
        let length = self.inbox.len().min(most);
        if let Err(refusal) = self.ctx.take_request_bytes(length) {
            return Err(self.refuse(refusal));
        }
        let bytes = &self.inbox[..length];
        self.scratch.send_also(bytes);
        self.body_left -= length as u64;
        if self.body_left == 0 {
            self.body_taken = length;
        } else {
            self.inbox.clear();
        }
        Ok(())
    }

    /// Only when the caller has taken what came before.
    fn read_answer(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let is_over = matches!(self.state.answer, Answer::Done | Answer::Broken(_));
        if !self.scratch.to_caller.is_empty() || is_over {
            return Ok(false);
        }
        self.scratch.from_upstream.reserve(READ);
        let read = pin!(self.upstream.read_buf(&mut self.scratch.from_upstream)).poll(cx);
        match read {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(0)) => self.end_of_upstream(None),
            Poll::Ready(Ok(_)) => {
                self.state.has_answered_bytes = true;
                self.state.has_moved = true;
                self.take_answer()?;
                Ok(true)
            }
            Poll::Ready(Err(e)) => self.end_of_upstream(Some(e)),
        }
    }

    /// The upstream has closed its connection, or broken it off.
    fn end_of_upstream(&mut self, failure: Option<io::Error>) -> Result<bool, End> {
        let is_clean = failure.is_none();
        if let Answer::Body(body, coding) = &mut self.state.answer
            && is_clean
            && body.end().is_ok()
        {
            let coding = *coding;
            self.complete(coding);
            return Ok(true);
        }
        let failure = failure.or_else(|| self.state.send_failure.take());
        let cause = failure.map(|e| Box::new(e) as Cause);
        Err(self.fail(UpstreamFault::Closed, cause))
    }

    fn take_answer(&mut self) -> Result<(), End> {
        loop {
            match self.state.answer {
                Answer::Head => {
                    if !self.take_head()? {
                        return Ok(());
                    }
                }
                Answer::Body(..) => return self.take_content(),
                Answer::Done | Answer::Broken(_) => return Ok(()),
            }
        }
    }

    /// Whether there was a head.
    fn take_head(&mut self) -> Result<bool, End> {
        let Scratch {
            from_upstream,
            to_caller,
            parser,
            ..
        } = &mut *self.scratch;
        let head = match parser.parse(from_upstream, self.is_head) {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(false),
            Err(doubt) => {
                return Err(self.fail(UpstreamFault::Protocol, Some(Box::new(doubt))));
            }
        };
        if let Err(refusal) = self.ctx.take_answer(head.status) {
            return Err(self.refuse(refusal));
        }
        let (status, length, framing) = (head.status, head.length, head.framing);
        let (is_interim, may_reuse) = (head.is_interim(), head.may_reuse);
        // An answer before the end of the request: what the caller still sends is its body.
        let is_early = self.body_left > 0;
        // A drain lets requests finish that came together with this one.
        let is_last = *self.shutdown.borrow() && self.inbox.len() <= self.body_taken;
        let keeps = !self.closes && !is_early && !is_last;
        let coding = match framing {
            Framing::Chunked | Framing::UntilClose => Coding::Chunks,
            Framing::None | Framing::Length(_) => Coding::AsItIs,
        };
        let kind = answer::Kind {
            is_interim,
            is_chunked: coding == Coding::Chunks,
            keeps,
        };
        self.ctx.observe(status);
        match answer::write(to_caller, head, from_upstream, kind, self.ctx) {
            Ok(upstream_id) => self.ctx.upstream_request_id = upstream_id,
            Err(answer::TwoLengths) => return Err(self.fail(UpstreamFault::Protocol, None)),
        }
        from_upstream.advance(length);
        if !is_interim {
            self.state.status = status;
            self.state.keeps = keeps;
            self.state.may_reuse = may_reuse;
            self.state.answer = Answer::Body(Body::new(framing), coding);
        }
        Ok(true)
    }

    fn take_content(&mut self) -> Result<(), End> {
        let Answer::Body(body, coding) = &mut self.state.answer else {
            return Ok(());
        };
        let coding = *coding;
        let Scratch {
            from_upstream,
            to_caller,
            ..
        } = &mut *self.scratch;
        let mut content = 0;
        let fed = body.feed(from_upstream, |piece| {
            content += piece.len();
            match coding {
                Coding::AsItIs => to_caller.extend_from_slice(piece),
                Coding::Chunks => answer::write_chunk(to_caller, piece),
            }
        });
        let fed = match fed {
            Ok(fed) => fed,
            Err(doubt) => {
                self.state.answer = Answer::Broken(doubt);
                return Ok(());
            }
        };
        if let Err(refusal) = self.ctx.take_answer_bytes(content) {
            return Err(self.refuse(refusal));
        }
        self.state.content += content as u64;
        from_upstream.advance(fed.taken);
        if fed.done {
            self.complete(coding);
        }
        Ok(())
    }

    /// The answer has come to its end.
    fn complete(&mut self, coding: Coding) {
        if coding == Coding::Chunks {
            answer::write_last_chunk(&mut self.scratch.to_caller);
        }
        let is_sent = self.body_left == 0
            && self.scratch.to_upstream.is_empty()
            && self.state.send_failure.is_none();
        // What came behind the answer belongs to no request.
        let is_exact = self.scratch.from_upstream.is_empty();
        self.state.can_reuse_upstream = self.state.may_reuse && is_sent && is_exact;
        self.state.answer = Answer::Done;
        self.ctx.dial.answered = Some(Instant::now());
    }

    fn reply(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let bytes = &mut self.scratch.to_caller;
        if bytes.is_empty() {
            return self.replied(false);
        }
        let mut caller = Pin::new(&mut *self.caller);
        let failed = |e: io::Error| End::Caller("WriteError", Some(e.to_string()));
        while self.state.written < bytes.len() {
            match caller.as_mut().poll_write(cx, &bytes[self.state.written..]) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(0)) => return Err(failed(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(length)) => {
                    self.state.written += length;
                    self.state.has_moved = true;
                    self.state.has_replied |= self.state.status > 0;
                }
                Poll::Ready(Err(e)) => return Err(failed(e)),
            }
        }
        match caller.as_mut().poll_flush(cx) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(e)) => return Err(failed(e)),
        }
        bytes.clear();
        self.state.written = 0;
        self.state.bytes_out += std::mem::take(&mut self.state.content);
        self.replied(true)
    }

    /// The caller has taken all there is.
    fn replied(&mut self, has_moved: bool) -> Result<bool, End> {
        match self.state.answer {
            Answer::Done => Err(End::Done),
            // As Pingora names it: the answer ended before its time.
            Answer::Broken(doubt) => Err(self.fail(UpstreamFault::Closed, Some(Box::new(doubt)))),
            Answer::Head | Answer::Body(..) => Ok(has_moved),
        }
    }
}
