use super::BareLf;
use super::answer::{LONGEST_HEAD, MOST_HEADERS};

/// Why an answer can't be used: it is no HTTP/1, or two readers could see its end at two places.
/// The connection must not be used again. No text shows the upstream's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    #[error("it is not HTTP/1")]
    NotHttp1,
    #[error("its status line is malformed")]
    StatusLine,
    #[error("its head has a line that doesn't end with CR and LF")]
    BareLf,
    #[error("a header's name is malformed, or the header goes on in a second line")]
    HeaderName,
    #[error("a header's value has bytes that no header may have")]
    HeaderValue,
    #[error("it has more than {MOST_HEADERS} headers")]
    TooManyHeaders,
    #[error("its head is longer than {LONGEST_HEAD} bytes")]
    LongHead,
    #[error("its content-length is no number")]
    BadLength,
    #[error("it has two different content-lengths")]
    TwoLengths,
    #[error("it has a content-length and a transfer-encoding")]
    LengthAndChunks,
    #[error("its transfer-encoding isn't chunked alone")]
    TransferCoding,
    #[error("it has a transfer-encoding, which HTTP/1.0 has not")]
    ChunksInHttp10,
    #[error("the size of a chunk is malformed")]
    ChunkSize,
    #[error("the extensions of its chunks are malformed or too long")]
    ChunkExtension,
    #[error("a chunk doesn't end where its size says")]
    ChunkEnd,
    #[error("its trailers are malformed")]
    Trailer,
    #[error("its trailers are too long")]
    LongTrailers,
    #[error("it ended before its body was complete")]
    Truncated,
}

impl From<BareLf> for Doubt {
    fn from(_: BareLf) -> Self {
        Doubt::BareLf
    }
}
