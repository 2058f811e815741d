//! Reads an answer.

use std::io;

use tokio::io::AsyncReadExt as _;

use super::SendError;
use super::pool::{self, Connection, PoolKey};
use crate::error::UpstreamFault;
use crate::http1::Doubt;
use crate::http1::answer::{Framing, Head};
use crate::http1::body::Body;

/// Answers before the real one, such as 103 Early Hints.
pub(super) const MOST_INTERIM: usize = 16;
/// How much of a long body is read at a time.
const LONG_READ: usize = 64 << 10;

/// An answer whose head was read. Where it is dropped before the end of its body, its connection is
/// closed.
pub struct Answer {
    status: u16,
    location: Option<Box<[u8]>>,
    announced: u64,
    body: Body,
    connection: Option<Connection>,
    /// Where the connection goes after the body, if it can be used again.
    keep: Option<PoolKey>,
}

/// What is needed of a head, once its bytes are gone.
pub(super) struct Received {
    status: u16,
    location: Option<Box<[u8]>>,
    framing: Framing,
    may_reuse: bool,
}

/// Reads the head of an answer. None where the connection ended before its first byte.
pub(super) async fn read_head(
    connection: &mut Connection,
    to_head: bool,
) -> Result<Option<Received>, SendError> {
    let mut interim = 0;
    loop {
        if let Some(head) = connection.parser.parse(&connection.buffer, to_head)? {
            if head.status == 101 {
                // No request asked for another protocol.
                return Err(UpstreamFault::Protocol.into());
            }
            let (length, is_interim) = (head.length, head.is_interim());
            let received = receive(head, &connection.buffer);
            connection.buffer.drain(..length);
            if !is_interim {
                return Ok(Some(received));
            }
            interim += 1;
            if interim > MOST_INTERIM {
                return Err(UpstreamFault::Protocol.into());
            }
            continue;
        }
        let is_first = connection.buffer.is_empty() && interim == 0;
        match connection.stream.read_buf(&mut connection.buffer).await {
            Ok(1..) => {}
            Ok(0) | Err(_) if is_first => return Ok(None),
            Ok(0) => return Err(Doubt::Truncated.into()),
            Err(error) => return Err(fault(&error).into()),
        }
    }
}

/// Drops answers that came before the real one, while the request is still being sent. None: the
/// real one has begun, or what came is no answer.
pub(super) fn skip_interim(connection: &mut Connection) -> Option<usize> {
    let mut skipped = 0;
    loop {
        let Connection { buffer, parser, .. } = connection;
        match parser.parse(buffer, false).ok()? {
            // Of the next one, there is a part at most.
            None => return Some(skipped),
            Some(head) if head.is_interim() => {
                let length = head.length;
                buffer.drain(..length);
                skipped += 1;
            }
            Some(_) => return None,
        }
    }
}

fn receive(head: &Head, bytes: &[u8]) -> Received {
    let location = head.values(bytes, "location").next();
    Received {
        status: head.status,
        location: location.map(Into::into),
        framing: head.framing,
        may_reuse: head.may_reuse,
    }
}

impl Answer {
    pub(super) fn new(connection: Connection, head: Received, keep: Option<PoolKey>) -> Self {
        let mut answer = Answer {
            status: head.status,
            location: head.location,
            announced: match head.framing {
                Framing::Length(length) => length,
                Framing::None | Framing::Chunked | Framing::UntilClose => 0,
            },
            body: Body::new(head.framing),
            connection: Some(connection),
            keep: keep.filter(|_| head.may_reuse),
        };
        if answer.body.is_done() {
            answer.finish();
        }
        answer
    }

    pub fn status(&self) -> u16 {
        self.status
    }

    /// The first `Location` header.
    pub fn location(&self) -> Option<&[u8]> {
        self.location.as_deref()
    }

    /// Bytes of the body, where its head says so.
    pub fn announced(&self) -> u64 {
        self.announced
    }

    /// Appends the next piece of the body. False: the body has ended.
    pub async fn read_into(&mut self, out: &mut Vec<u8>) -> Result<bool, SendError> {
        loop {
            let Some(connection) = &mut self.connection else {
                return Ok(false);
            };
            if !connection.buffer.is_empty() {
                let before = out.len();
                let content = |piece: &[u8]| out.extend_from_slice(piece);
                let fed = self.body.feed(&connection.buffer, content)?;
                connection.buffer.drain(..fed.taken);
                if fed.done {
                    self.finish();
                }
                if out.len() > before {
                    return Ok(true);
                }
                continue;
            }
            if self.announced > LONG_READ as u64 {
                connection.buffer.reserve(LONG_READ);
            }
            match connection.stream.read_buf(&mut connection.buffer).await {
                Ok(1..) => {}
                Ok(0) => {
                    self.connection = None;
                    self.body.end()?;
                }
                // Some servers close TLS without saying so. A body that ends with the connection
                // may have been cut by anyone in between, so that is an error.
                Err(error) => {
                    self.connection = None;
                    return Err(fault(&error).into());
                }
            }
        }
    }

    /// The body is complete.
    fn finish(&mut self) {
        if let (Some(connection), Some(key)) = (self.connection.take(), self.keep.take()) {
            pool::put(&key, connection);
        }
    }
}

/// Of a connection that was open.
fn fault(error: &io::Error) -> UpstreamFault {
    let inner = error.get_ref();
    if inner.is_some_and(|inner| inner.is::<rustls::Error>()) {
        UpstreamFault::Tls
    } else {
        UpstreamFault::Closed
    }
}
