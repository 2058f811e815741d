//! The body of a `/call`: of an ordinary one, and of one with a file in it that is longer than an
//! ordinary one may be.

use std::time::Instant;

use futures::StreamExt as _;

use super::body::{Beginning, Body, BodyError};
use super::pace;
use crate::auth::Identity;
use crate::call::payload::{
    CallWithFile, IncomingCall, Learned, failed, takes_file, too_much_text, uploader,
};
use crate::call::{self, Context};
use crate::error::{CallError, Shortage};
use crate::exec::files::FilesError;
use crate::spool::{Spool, SpoolError, Spooled};

pub enum CallBody {
    Ordinary(Spooled),
    WithFile(CallWithFile),
}

/// Why a body isn't taken.
pub struct NotTaken {
    pub error: CallError,
    /// The tool, where it was known already.
    pub tool: Option<String>,
}

/// Reads the body. What is longer than an ordinary one is kept only as far as it is the file of a
/// caller that may send one.
pub async fn read(
    mut body: Body,
    identity: &Identity,
    context: &Context<'_>,
) -> Result<CallBody, NotTaken> {
    let mut tool = None;
    let read = read_within(&mut body, identity, context, &mut tool).await;
    read.map_err(|error| NotTaken { error, tool })
}

async fn read_within(
    body: &mut Body,
    identity: &Identity,
    context: &Context<'_>,
    tool: &mut Option<String>,
) -> Result<CallBody, CallError> {
    let (limits, runtime) = (context.limits, context.runtime);
    let ordinary = limits.max_call_bytes;
    let begin = if body.announces_more_than(ordinary as u64) {
        None
    } else {
        let spool = Spool::new(limits.spool_bytes, runtime.spools.clone()).within(&runtime.memory);
        let read = body.begin(ordinary, spool, limits.timeout).await;
        match read.map_err(unread)? {
            Beginning::Whole(body) => return Ok(CallBody::Ordinary(body)),
            Beginning::More(begin) => Some(begin),
        }
    };
    let mut incoming = Incoming {
        call: IncomingCall::default(),
        read: 0,
        started: Instant::now(),
        tool,
        is_file_call: false,
        identity,
        context,
    };
    if let Some(begin) = begin {
        let mut begin = std::pin::pin!(begin.into_stream());
        while let Some(piece) = begin.next().await {
            let piece = piece.map_err(|e| unread(BodyError::NotSpooled(SpoolError::Disk(e))))?;
            incoming.push(&piece).await?;
        }
    }
    let most = context.file_limits.max_call_bytes();
    if body.announces_more_than(most) && uploader(context.catalog, identity).is_some() {
        return Err(unread(BodyError::TooLarge(to_usize(most))));
    }
    while let Some(piece) = body.next().await {
        incoming.push(&piece.map_err(unread)?).await?;
    }
    let is_file_call = incoming.is_file_call;
    let finished = incoming.call.finish().await;
    let finished = finished.map_err(|error| told(error, is_file_call, context));
    finished.map(CallBody::WithFile)
}

struct Incoming<'a> {
    call: IncomingCall,
    read: u64,
    started: Instant,
    /// The tool's name, once it is known.
    tool: &'a mut Option<String>,
    /// It has a file, or is for a tool that takes one.
    is_file_call: bool,
    identity: &'a Identity,
    context: &'a Context<'a>,
}

impl Incoming<'_> {
    async fn push(&mut self, piece: &[u8]) -> Result<(), CallError> {
        self.read += piece.len() as u64;
        let (context, identity) = (self.context, self.identity);
        let most = context.file_limits.max_call_bytes();
        if self.read > most {
            return Err(unread(BodyError::TooLarge(to_usize(most))));
        }
        let time = context.limits.timeout + pace::time_for(self.read);
        if self.started.elapsed() > time {
            return Err(unread(BodyError::TooSlow(time)));
        }
        let too_long = || unread(BodyError::TooLarge(context.limits.max_call_bytes));
        let (named, is_file_call) = (&mut *self.tool, &mut self.is_file_call);
        let allow = |learned| match learned {
            Learned::ToolName(name) => {
                let tool = context.catalog.find(&name);
                let tool = tool.ok_or_else(|| CallError::UnknownTool(name.clone()))?;
                *named = Some(name);
                call::authorize(tool, identity, context.catalog)?;
                *is_file_call = takes_file(tool);
                if *is_file_call {
                    Ok(())
                } else {
                    Err(too_long())
                }
            }
            Learned::File => {
                // The tool's name may come after the file.
                *is_file_call |= uploader(context.catalog, identity).is_some();
                if *is_file_call {
                    Ok(())
                } else {
                    Err(too_long())
                }
            }
        };
        let pushed = self.call.push(piece, context, allow).await;
        let is_file_call = self.is_file_call;
        pushed.map_err(|error| told(error, is_file_call, context))
    }
}

/// `None`: there is too much text besides the file. What isn't known to be the call of a file tool
/// is a call that is too long, whatever else is wrong with it.
fn told(error: Option<CallError>, is_file_call: bool, context: &Context<'_>) -> CallError {
    match error {
        None | Some(CallError::InvalidRequest(_)) if !is_file_call => {
            unread(BodyError::TooLarge(context.limits.max_call_bytes))
        }
        Some(error) => error,
        None => too_much_text(),
    }
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn unread(error: BodyError) -> CallError {
    match error {
        BodyError::NotSpooled(SpoolError::MemoryExceeded { .. }) => {
            CallError::Busy(Shortage::Memory)
        }
        BodyError::NotSpooled(SpoolError::QuotaExceeded { .. }) => CallError::Busy(Shortage::Spool),
        // The machine's fault, not the caller's.
        BodyError::NotSpooled(error @ SpoolError::Disk(_)) => failed(FilesError::from(error)),
        e => CallError::UnreadableBody(e.to_string()),
    }
}
