//! A JSON answer that holds files as base64. The files stay in their spools, and are encoded while
//! the answer is sent: it never stands in memory as a whole.

use std::io::{self, Read as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::Stream;
use futures::stream::{self, StreamExt as _};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::spool::Spooled;

/// JSON text, in the order in which it is sent.
#[derive(Debug, Default)]
pub struct JsonWithFiles {
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Text(Bytes),
    /// Becomes a JSON string.
    File(Spooled),
}

impl JsonWithFiles {
    /// Text that is part of the JSON: punctuation, names, whole values.
    pub fn text(mut self, text: impl Into<Bytes>) -> Self {
        self.parts.push(Part::Text(text.into()));
        self
    }

    /// A value, written as JSON.
    pub fn value(self, value: &Value) -> Self {
        self.text(value.to_string())
    }

    /// A file's bytes as a JSON string in base64.
    pub fn file(mut self, file: Spooled) -> Self {
        self.parts.push(Part::File(file));
        self
    }

    /// The length of the JSON text.
    pub fn len(&self) -> u64 {
        self.parts.iter().map(Part::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The text with a number in place of each file, and the files by these numbers: for what
    /// needs no base64.
    pub fn detach(self) -> (String, Vec<Spooled>) {
        let (mut text, mut files) = (String::new(), Vec::new());
        for part in self.parts {
            match part {
                Part::Text(part) => text.push_str(&String::from_utf8_lossy(&part)),
                Part::File(file) => {
                    text.push_str(&files.len().to_string());
                    files.push(file);
                }
            }
        }
        (text, files)
    }

    pub fn into_stream(self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        stream::iter(self.parts).flat_map(|part| match part {
            Part::Text(text) => stream::once(async { Ok(text) }).boxed(),
            Part::File(file) => quoted_base64(file).boxed(),
        })
    }

    /// The whole text in memory, for what has to look into it. It blocks on the disk: for use on
    /// blocking threads only.
    pub fn into_raw_blocking(self) -> io::Result<Box<RawValue>> {
        let mut text = String::with_capacity(usize::try_from(self.len()).unwrap_or(0));
        for part in self.parts {
            match part {
                Part::Text(part) => text.push_str(&String::from_utf8_lossy(&part)),
                Part::File(file) => {
                    let mut bytes = Vec::new();
                    file.blocking_reader().read_to_end(&mut bytes)?;
                    text.push('"');
                    STANDARD.encode_string(&bytes, &mut text);
                    text.push('"');
                }
            }
        }
        RawValue::from_string(text).map_err(io::Error::from)
    }
}

impl Part {
    fn len(&self) -> u64 {
        match self {
            Part::Text(text) => text.len() as u64,
            Part::File(file) => file.len().div_ceil(3) * 4 + 2,
        }
    }
}

fn quoted_base64(file: Spooled) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let quote = || stream::once(async { Ok(Bytes::from_static(b"\"")) });
    let mut left = file.len();
    // Three bytes make four letters: what is over waits for the next piece.
    let mut carry = Vec::new();
    let encoded = file.into_stream().map(move |piece| {
        let piece = piece?;
        left = left.saturating_sub(piece.len() as u64);
        carry.extend_from_slice(&piece);
        let over = if left == 0 { 0 } else { carry.len() % 3 };
        let cut = carry.len() - over;
        let text = STANDARD.encode(&carry[..cut]);
        carry.drain(..cut);
        Ok(Bytes::from(text))
    });
    quote().chain(encoded).chain(quote())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::{Quota, Spool};
    use serde_json::json;

    async fn spooled(body: &[u8]) -> Spooled {
        let mut spool = Spool::new(0, Quota::new(u64::MAX));
        spool.write(body).await.unwrap();
        spool.finish().await.unwrap()
    }

    async fn example(body: &[u8]) -> JsonWithFiles {
        JsonWithFiles::default()
            .text(r#"{"name":"#)
            .value(&json!("a \"b\""))
            .text(r#","content_base64":"#)
            .file(spooled(body).await)
            .text("}")
    }

    #[tokio::test]
    async fn detached_files_leave_their_numbers() {
        let answer = JsonWithFiles::default().text("[").file(spooled(b"a").await);
        let answer = answer.text(",").file(spooled(b"bc").await).text("]");
        let (text, files) = answer.detach();
        assert_eq!(text, "[0,1]");
        let sizes: Vec<u64> = files.iter().map(Spooled::len).collect();
        assert_eq!(sizes, [1, 2]);
    }

    #[tokio::test]
    async fn streamed_text_is_json_of_the_announced_length() {
        // One piece of a spool has 64 KiB, which isn't divisible by three.
        for len in [0, 1, 2, 3, 4, 65_535, 65_536, 65_537, 200_000] {
            let body: Vec<u8> = (0..len).map(|n| (n * 7 % 251) as u8).collect();
            let answer = example(&body).await;
            let announced = answer.len();
            let pieces: Vec<_> = answer.into_stream().collect().await;
            let text: Vec<u8> = pieces.into_iter().flat_map(Result::unwrap).collect();
            assert_eq!(text.len() as u64, announced, "{len}");
            let parsed: Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(parsed["name"], "a \"b\"");
            let decoded = STANDARD.decode(parsed["content_base64"].as_str().unwrap());
            assert_eq!(decoded.unwrap(), body, "{len}");
            let raw = example(&body).await.into_raw_blocking().unwrap();
            assert_eq!(raw.get().as_bytes(), text, "{len}");
        }
    }
}
