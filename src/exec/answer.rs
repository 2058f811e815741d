//! The result of an executor: JSON text, in memory or, where it is too big for that, in a spool.

use std::io::{self, Read as _};

use bytes::Bytes;
use futures::Stream;
use futures::stream::{self, StreamExt as _};
use serde_json::value::RawValue;
use tokio::task::spawn_blocking;

use super::JsonWithFiles;
use crate::json;
use crate::spool::Spooled;

pub enum Answer {
    Memory(Box<RawValue>),
    Spooled(SpooledJson),
    WithFiles(JsonWithFiles),
}

impl Answer {
    /// JSON passes as it came; any other text becomes a JSON string.
    pub fn from_bytes(body: &[u8]) -> Box<RawValue> {
        let text = |body: &[u8]| {
            let text = String::from_utf8_lossy(body);
            serde_json::value::to_raw_value(&text).unwrap_or_default()
        };
        serde_json::from_slice(body).unwrap_or_else(|_| text(body))
    }

    /// Bytes of the answer's body.
    pub fn size(&self) -> u64 {
        match self {
            Answer::Memory(raw) => raw.get().len() as u64,
            Answer::Spooled(spooled) => spooled.body_length(),
            Answer::WithFiles(json) => json.len(),
        }
    }

    /// The whole text in memory, for what has to look into it.
    pub async fn into_raw(self) -> io::Result<Box<RawValue>> {
        match self {
            Answer::Memory(raw) => Ok(raw),
            on_disk => {
                let read = spawn_blocking(move || on_disk.into_raw_blocking()).await;
                read.unwrap_or_else(|e| Err(io::Error::other(e)))
            }
        }
    }

    /// As [`Answer::into_raw`], for use on blocking threads only.
    pub fn into_raw_blocking(self) -> io::Result<Box<RawValue>> {
        match self {
            Answer::Memory(raw) => Ok(raw),
            Answer::Spooled(spooled) => spooled.into_raw_blocking(),
            Answer::WithFiles(json) => json.into_raw_blocking(),
        }
    }
}

/// A spooled body as JSON text.
#[derive(Debug)]
pub struct SpooledJson {
    body: Spooled,
    /// The body is no JSON, so its text becomes a JSON string while it is read.
    is_text: bool,
}

impl SpooledJson {
    /// Checks the body. It blocks on the disk: for use on blocking threads only.
    pub fn check_blocking(body: Spooled) -> Self {
        let is_text = !json::is_valid(body.blocking_reader());
        SpooledJson { body, is_text }
    }

    /// The length of the JSON text, where it is known without reading it.
    pub fn known_length(&self) -> Option<u64> {
        (!self.is_text).then(|| self.body.len())
    }

    /// Bytes of the spooled body.
    pub fn body_length(&self) -> u64 {
        self.body.len()
    }

    pub fn into_stream(self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        let body = self.body.into_stream();
        if self.is_text {
            quoted(body).boxed()
        } else {
            body.boxed()
        }
    }

    fn into_raw_blocking(self) -> io::Result<Box<RawValue>> {
        let mut whole = Vec::new();
        self.body.blocking_reader().read_to_end(&mut whole)?;
        Ok(Answer::from_bytes(&whole))
    }
}

/// The text as a JSON string. What is no UTF-8 becomes U+FFFD, as in [`String::from_utf8_lossy`].
fn quoted(
    body: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let quote = || stream::once(async { Ok(Bytes::from_static(b"\"")) });
    let mut carry = Vec::new();
    let end = stream::once(async { Ok(Bytes::new()) });
    let escaped = body.chain(end).map(move |piece| {
        let piece = piece?;
        // The empty piece is the end: what was kept back is complete now.
        let is_last = piece.is_empty();
        carry.extend_from_slice(&piece);
        let cut = if is_last {
            carry.len()
        } else {
            complete_characters(&carry)
        };
        let text = String::from_utf8_lossy(&carry[..cut]);
        let text = serde_json::to_string(&text)?;
        carry.drain(..cut);
        Ok(Bytes::from(text[1..text.len() - 1].to_owned()))
    });
    quote().chain(escaped).chain(quote())
}

/// How much of the text can be decoded now: all but a character whose last bytes are still to come.
fn complete_characters(text: &[u8]) -> usize {
    // A character has at most four bytes, so an incomplete one begins in the last three.
    let from = text.len().saturating_sub(3);
    (from..text.len())
        .find(|start| match std::str::from_utf8(&text[*start..]) {
            Ok(_) => false,
            Err(e) => e.valid_up_to() == 0 && e.error_len().is_none(),
        })
        .unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::{Quota, Spool};

    async fn spooled(body: &[u8]) -> SpooledJson {
        let mut spool = Spool::new(0, Quota::new(1 << 20));
        spool.write(body).await.unwrap();
        SpooledJson::check_blocking(spool.finish().await.unwrap())
    }

    async fn text(spooled: SpooledJson) -> String {
        let pieces: Vec<_> = spooled.into_stream().collect().await;
        let bytes: Vec<u8> = pieces.into_iter().flat_map(Result::unwrap).collect();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn body_in_memory_passes_as_json_or_becomes_a_string() {
        let exact = r#"{"b": 1.00, "a": 12345678901234567890, "b": 2}"#;
        assert_eq!(Answer::from_bytes(exact.as_bytes()).get(), exact);
        assert_eq!(Answer::from_bytes(b"hello").get(), "\"hello\"");
        assert_eq!(Answer::from_bytes(b"").get(), "\"\"");
        assert_eq!(Answer::from_bytes(b"\xff").get(), "\"\u{fffd}\"");
    }

    #[tokio::test]
    async fn spooled_body_gives_the_same_text_as_one_in_memory() {
        for body in [
            &br#"{"b": 1.00, "b": 2}"#[..],
            b"hello \"you\"\n",
            b"",
            b"\xff\xfe and \xc3",
            "an emoji \u{1f600} and an \u{e4}".as_bytes(),
            b"{\"half\": ",
        ] {
            let whole = Answer::from_bytes(body).get().to_owned();
            let json = spooled(body).await;
            assert!(
                json.known_length()
                    .is_none_or(|len| len == whole.len() as u64)
            );
            assert_eq!(text(json).await, whole);
            let raw = spooled(body).await.into_raw_blocking().unwrap();
            assert_eq!(raw.get(), whole);
        }
    }

    #[tokio::test]
    async fn character_split_between_pieces_is_kept_whole() {
        let body = "a\u{1f600}\u{e4}b".as_bytes();
        for cut in 0..=body.len() {
            let (one, two) = body.split_at(cut);
            let pieces = [one, two].map(|piece| Ok(Bytes::copy_from_slice(piece)));
            let pieces = pieces.into_iter().filter(|piece| {
                let piece: &io::Result<Bytes> = piece;
                piece.as_ref().is_ok_and(|piece| !piece.is_empty())
            });
            let pieces: Vec<_> = quoted(stream::iter(pieces.collect::<Vec<_>>()))
                .collect()
                .await;
            let bytes: Vec<u8> = pieces.into_iter().flat_map(Result::unwrap).collect();
            assert_eq!(String::from_utf8(bytes).unwrap(), "\"a\u{1f600}\u{e4}b\"");
        }
    }
}
