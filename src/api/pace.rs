//! How slowly a caller may send or read what takes disk space that all calls share.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{Stream, StreamExt as _};

use super::StreamError;

/// A caller that is slower than this on average is given up.
const SLOWEST_BYTES_PER_SECOND: u64 = 256 << 10;

/// The time for a body of this size, besides the time for a call.
pub fn time_for(bytes: u64) -> Duration {
    Duration::from_secs(bytes / SLOWEST_BYTES_PER_SECOND)
}

/// An answer of about this size, which ends with an error once its caller has had its time.
pub fn paced(
    answer: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    size: u64,
    timeout: Duration,
) -> impl Stream<Item = Result<Bytes, StreamError>> + Send + 'static {
    let deadline = Instant::now() + timeout + time_for(size);
    answer.map(move |piece| {
        if Instant::now() > deadline {
            return Err("the caller reads too slowly".into());
        }
        piece.map_err(StreamError::from)
    })
}
