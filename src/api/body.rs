//! A request's body in pieces. The gateway reads the caller's connection and sends the pieces
//! through a channel that holds one: a caller can't send faster than its endpoint reads.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;

use crate::spool::{Spool, SpoolError, Spooled};

/// A part of the body, or `None` at its end. Without that end mark a body is incomplete.
pub type Piece = Result<Option<Bytes>, BodyError>;

/// Why a body can't be read. The texts are answers of `/call`.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("length limit exceeded: more than {0} bytes")]
    TooLarge(usize),
    #[error("not complete after {} s", .0.as_secs())]
    TooSlow(Duration),
    #[error("the connection broke, or nothing came for too long")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
    #[error("the connection broke, or nothing came for too long")]
    Stalled,
    #[error("it is too big for memory, and can't be kept on disk: {0}")]
    NotSpooled(#[source] SpoolError),
    /// The gateway stopped reading before the end.
    #[error("the request was given up")]
    Abandoned,
}

/// What was read of a body up to a limit.
pub enum Beginning {
    Whole(Spooled),
    /// There is more.
    More(Spooled),
}

/// Owned, so that it can be handed to a task or to an HTTP client as the body of another request.
pub struct Body {
    announced: Option<u64>,
    /// The whole body, where it was there at once and is unread.
    whole: Option<Bytes>,
    /// None once the end was read.
    pieces: Option<mpsc::Receiver<Piece>>,
}

impl Body {
    pub fn empty() -> Self {
        Body {
            announced: Some(0),
            whole: None,
            pieces: None,
        }
    }

    /// A body that is there already.
    pub fn whole(bytes: Bytes) -> Self {
        Body {
            announced: Some(bytes.len() as u64),
            whole: Some(bytes),
            pieces: None,
        }
    }

    /// A body, and the sender of its pieces. `announced` is the request's Content-Length.
    pub fn channel(announced: Option<u64>) -> (mpsc::Sender<Piece>, Self) {
        let (sender, pieces) = mpsc::channel(1);
        let body = Body {
            announced,
            whole: None,
            pieces: Some(pieces),
        };
        (sender, body)
    }

    /// The whole body, for an endpoint that needs it at once. A length that is announced and too
    /// large is refused before a byte is read.
    pub async fn read_all(mut self, limit: usize, patience: Duration) -> Result<Bytes, BodyError> {
        if self.announced.is_some_and(|length| length > limit as u64) {
            return Err(BodyError::TooLarge(limit));
        }
        tokio::time::timeout(patience, self.join_pieces(limit))
            .await
            .unwrap_or(Err(BodyError::TooSlow(patience)))
    }

    /// Whether its Content-Length says so.
    pub fn announces_more_than(&self, bytes: u64) -> bool {
        self.announced.is_some_and(|length| length > bytes)
    }

    /// The body in a spool, for an endpoint that takes bodies too big for memory. It is read until
    /// it has more bytes than `limit`.
    pub async fn begin(
        &mut self,
        limit: usize,
        spool: Spool,
        patience: Duration,
    ) -> Result<Beginning, BodyError> {
        let room = self.announced.unwrap_or(0).min(limit as u64);
        let spool = spool.with_room_for(room);
        tokio::time::timeout(patience, self.spool_pieces(limit, spool))
            .await
            .unwrap_or(Err(BodyError::TooSlow(patience)))
    }

    async fn spool_pieces(
        &mut self,
        limit: usize,
        mut spool: Spool,
    ) -> Result<Beginning, BodyError> {
        while let Some(piece) = self.next().await {
            spool.write(&piece?).await.map_err(BodyError::NotSpooled)?;
            if spool.len() > limit as u64 {
                let begin = spool.finish().await.map_err(BodyError::NotSpooled)?;
                return Ok(Beginning::More(begin));
            }
        }
        let whole = spool.finish().await.map_err(BodyError::NotSpooled)?;
        Ok(Beginning::Whole(whole))
    }

    async fn join_pieces(&mut self, limit: usize) -> Result<Bytes, BodyError> {
        let mut first = Bytes::new();
        let mut all = BytesMut::new();
        while let Some(piece) = self.next().await {
            let piece = piece?;
            if first.len() + all.len() + piece.len() > limit {
                return Err(BodyError::TooLarge(limit));
            }
            // Most bodies come in one piece, which needs no copy.
            if first.is_empty() && all.is_empty() {
                first = piece;
                continue;
            }
            if all.is_empty() {
                let announced = self.announced.unwrap_or(0) as usize;
                all.reserve(announced.max(first.len() + piece.len()));
                all.extend_from_slice(&std::mem::take(&mut first));
            }
            all.extend_from_slice(&piece);
        }
        Ok(if all.is_empty() { first } else { all.freeze() })
    }
}

impl Stream for Body {
    type Item = Result<Bytes, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(whole) = self.whole.take() {
            return Poll::Ready(Some(Ok(whole)));
        }
        let Some(pieces) = &mut self.pieces else {
            return Poll::Ready(None);
        };
        let item = match ready!(pieces.poll_recv(cx)) {
            Some(Ok(Some(piece))) => return Poll::Ready(Some(Ok(piece))),
            Some(Ok(None)) => None,
            Some(Err(e)) => Some(Err(e)),
            None => Some(Err(BodyError::Abandoned)),
        };
        self.pieces = None;
        Poll::Ready(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    async fn read(pieces: Vec<Piece>, announced: Option<u64>) -> Result<Bytes, String> {
        let (sender, body) = Body::channel(announced);
        let send = async move {
            for piece in pieces {
                if sender.send(piece).await.is_err() {
                    return;
                }
            }
        };
        let (read, ()) = tokio::join!(body.read_all(8, PATIENCE), send);
        read.map_err(|e| e.to_string())
    }

    fn piece(text: &'static str) -> Piece {
        Ok(Some(Bytes::from_static(text.as_bytes())))
    }

    #[tokio::test]
    async fn body_in_pieces_is_joined_up_to_the_limit() {
        let whole = |text: &'static str| Ok(Bytes::from_static(text.as_bytes()));
        let too_large = Err("length limit exceeded: more than 8 bytes".to_owned());
        assert_eq!(read(vec![Ok(None)], None).await, whole(""));
        let one = vec![piece("12345678"), Ok(None)];
        assert_eq!(read(one, Some(8)).await, whole("12345678"));
        let three = vec![piece("123"), piece("456"), piece("78"), Ok(None)];
        assert_eq!(read(three, None).await, whole("12345678"));
        let long = vec![piece("12345"), piece("6789"), Ok(None)];
        assert_eq!(read(long, None).await, too_large);
        assert_eq!(read(vec![], Some(9)).await, too_large);
        let empty = Body::empty().read_all(8, PATIENCE).await;
        assert!(empty.is_ok_and(|body| body.is_empty()));
    }

    #[tokio::test]
    async fn body_without_its_end_is_no_body() {
        let gone = read(vec![piece("123")], None).await;
        assert_eq!(gone, Err("the request was given up".to_owned()));
        let stalled = read(vec![piece("123"), Err(BodyError::Stalled)], None).await;
        assert!(stalled.is_err_and(|e| e.contains("nothing came for too long")));
    }

    #[tokio::test]
    async fn body_that_takes_too_long_is_given_up() {
        let (_sender, body) = Body::channel(None);
        let read = body.read_all(8, Duration::from_millis(1)).await;
        assert_eq!(read.unwrap_err().to_string(), "not complete after 0 s");
    }
}
