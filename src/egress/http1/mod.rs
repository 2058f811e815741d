//! The HTTP/1 client of tools. A request is written into one buffer, its answer is read where it
//! arrives, and an idle connection waits on the thread that opened it: there is no task for each
//! connection, and no layer between a call and its socket.
//!
//! HTTP/2 is the other client's. An https origin comes here once that client has seen it answer in
//! HTTP/1 ([`Clients::note_version`]); if it changes its mind, [`SendError::Http2`] says so before
//! anything was sent.

mod answer;
mod dial;
mod pool;
mod write;

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};

pub use answer::Answer;
pub use dial::KnownHttp1;

use super::client::Clients;
use super::origin::Origin;
use crate::error::{Problem, UpstreamFault};
use crate::http1::Doubt;
use pool::{Connection, PoolKey};

/// A request as it is sent. Names of headers are in lower case, each name once.
pub struct Request<'a> {
    pub method: &'a Method,
    pub origin: &'a Arc<Origin>,
    pub path_and_query: &'a str,
    pub headers: &'a [(HeaderName, HeaderValue)],
    pub body: Option<&'a Bytes>,
    /// False: it isn't sent again once it may have arrived, whatever its method.
    pub may_repeat: bool,
}

impl Request<'_> {
    fn body(&self) -> &[u8] {
        self.body.map_or(&[], |body| body)
    }

    /// Whether it may be sent again although its first sending may have arrived.
    fn is_repeatable(&self) -> bool {
        self.may_repeat && self.method == Method::GET && self.body().is_empty()
    }
}

#[derive(Debug)]
pub enum SendError {
    /// The server wants HTTP/2. Nothing was sent.
    Http2,
    /// The name resolves to an address that the guard doesn't let through.
    Blocked,
    Fault(UpstreamFault),
    /// The answer can't be understood.
    Doubt(Doubt),
    /// TLS can't be set up.
    Setup(Problem),
}

impl From<UpstreamFault> for SendError {
    fn from(fault: UpstreamFault) -> Self {
        SendError::Fault(fault)
    }
}

impl From<Doubt> for SendError {
    fn from(doubt: Doubt) -> Self {
        match doubt {
            Doubt::Truncated => SendError::Fault(UpstreamFault::Closed),
            doubt => SendError::Doubt(doubt),
        }
    }
}

/// What became of a request on one connection.
enum Outcome {
    Answered(Box<Answer>),
    /// The connection ended before the first byte of an answer.
    Lost {
        /// Whether the server may have got any of the request.
        was_sent: bool,
    },
}

/// Sends a request and reads the head of its answer. A connection of the pool may have been closed
/// by its server in the meantime: then the request is sent once more, if the server can't have
/// acted on it, or if acting twice does no harm.
pub async fn send(
    clients: &Clients,
    source: Option<IpAddr>,
    request: &Request<'_>,
) -> Result<Box<Answer>, SendError> {
    let key = PoolKey {
        clients: clients.id(),
        source,
        origin: request.origin.clone(),
    };
    if let Some(kept) = pool::take(&key) {
        match exchange(kept, request, &key).await? {
            Outcome::Answered(answer) => return Ok(answer),
            Outcome::Lost { was_sent } if was_sent && !request.is_repeatable() => {
                return Err(UpstreamFault::Closed.into());
            }
            Outcome::Lost { .. } => {}
        }
    }
    // Boxed: it is rare, and large.
    let stream = Box::pin(dial::dial(clients, source, request.origin)).await?;
    match exchange(Connection::new(stream), request, &key).await? {
        Outcome::Answered(answer) => Ok(answer),
        Outcome::Lost { .. } => Err(UpstreamFault::Closed.into()),
    }
}

async fn exchange(
    mut connection: Connection,
    request: &Request<'_>,
    key: &PoolKey,
) -> Result<Outcome, SendError> {
    let sent = write::request(&mut connection, request).await;
    let to_head = request.method == Method::HEAD;
    let head = answer::read_head(&mut connection, to_head).await?;
    let Some(head) = head else {
        let was_sent = sent.bytes > 0;
        return Ok(Outcome::Lost { was_sent });
    };
    Ok(Outcome::Answered(Box::new(Answer::new(
        connection,
        head,
        // An answer before the end of its request: the rest of the request was never sent.
        sent.is_complete.then(|| key.clone()),
    ))))
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tls_tests;
