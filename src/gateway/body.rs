//! The caller's side of a built-in request: its body, which is read as the endpoint asks for it,
//! and after the body's end the question whether the caller is still there.

use std::time::Duration;

use http::header::{CONTENT_LENGTH, EXPECT};
use pingora_error::{Error, ErrorType};
use pingora_proxy::Session;
use tokio::sync::mpsc;

use crate::api::{Body, BodyError, Piece};

pub(super) struct Upload {
    /// None once the body was read, or the endpoint dropped it.
    pieces: Option<mpsc::Sender<Piece>>,
    /// Reading failed before the body's end.
    pub broken: bool,
    /// The caller waits for a 100 before it sends its body.
    expects_continue: bool,
    stall: Duration,
}

impl Upload {
    /// The body of this request for its endpoint, and what feeds it.
    pub fn new(session: &mut Session, stall: Duration) -> (Self, Body) {
        let headers = &session.req_header().headers;
        let expects_continue = headers.contains_key(EXPECT);
        let announced = headers
            .get(CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let (pieces, body) = if session.is_body_empty() {
            (None, Body::empty())
        } else {
            let (pieces, body) = Body::channel(announced);
            (Some(pieces), body)
        };
        let upload = Upload {
            pieces,
            broken: false,
            expects_continue,
            stall,
        };
        (upload, body)
    }

    /// Runs next to the endpoint, and next to the writing of its answer. Returns when the caller
    /// has left. Cancel-safe: after its future was dropped it can be called again.
    pub async fn pump(&mut self, session: &mut Session) -> Box<Error> {
        while let Some(pieces) = &self.pieces {
            // An error: the endpoint answered without reading the body to its end.
            let Ok(slot) = pieces.reserve().await else {
                self.pieces = None;
                break;
            };
            if std::mem::take(&mut self.expects_continue) {
                // Pingora takes the 100 for an answer before the body's end, and would close.
                let keepalive = session.get_keepalive();
                if let Err(e) = session.write_continue_response().await {
                    return caller_left(e);
                }
                session.set_keepalive(keepalive);
            }
            // Pingora bounds the reads of HTTP/1 only.
            let read = tokio::time::timeout(self.stall, session.read_request_body()).await;
            let piece = match read {
                Ok(Ok(piece)) => Ok(piece),
                Ok(Err(e)) => Err(BodyError::Broken(e)),
                Err(_) => Err(BodyError::Stalled),
            };
            self.broken |= piece.is_err();
            let ended = !matches!(piece, Ok(Some(_)));
            slot.send(piece);
            if ended {
                self.pieces = None;
            }
        }
        // Pingora can't look for the end of the connection while a part of the body is unread.
        if !session.is_body_done() {
            return std::future::pending().await;
        }
        match session.downstream_session.read_body_or_idle(true).await {
            Err(e) => caller_left(e),
            Ok(_) => Error::new_down(ErrorType::ConnectionClosed),
        }
    }
}

fn caller_left(cause: Box<Error>) -> Box<Error> {
    Error::because(ErrorType::ConnectionClosed, "", cause).into_down()
}
