//! Redaction: finds the secrets of a call in what comes back, in each of their encodings, and
//! replaces them. Upstreams quote keys in their errors, and some repeat whole requests.
//!
//! One search serves whole buffers and streams, so both give the same result: the leftmost match,
//! and of several that begin there the longest.

mod encodings;
mod escapes;
mod search;

use std::sync::Arc;

use search::{Search, Step};

pub(super) use encodings::SHORTEST;
pub use search::RedactionPatterns;

pub(super) const REPLACEMENT: &[u8] = b"[REDACTED]";

impl RedactionPatterns {
    /// Whether there is anything to replace in a complete text.
    pub fn are_in(&self, text: &[u8]) -> bool {
        if self.are_too_long_for(text) {
            return false;
        }
        self.are_unavailable() || !matches!(Search::new(self, text, true).next(0), Step::End)
    }

    /// Replaces every match in a complete text.
    pub fn redact(&self, text: &mut Vec<u8>) {
        if self.are_unavailable() {
            *text = REPLACEMENT.to_vec();
            return;
        }
        let mut clean = Vec::new();
        match replace(Search::new(self, text, true), text, &mut clean) {
            Replaced::Nothing => {}
            Replaced::UpTo(_) | Replaced::GaveUp => *text = clean,
        }
    }
}

/// Redacts a stream. It keeps back the end of a chunk while that may be the beginning of a secret:
/// less than the longest encoding of one.
pub struct Redactor {
    patterns: Arc<RedactionPatterns>,
    kept_back: Vec<u8>,
    /// The search became too costly. The rest of the stream is dropped: it may end a secret.
    gave_up: bool,
}

impl Redactor {
    pub(super) fn new(patterns: Arc<RedactionPatterns>) -> Self {
        Redactor {
            patterns,
            kept_back: Vec::new(),
            gave_up: false,
        }
    }

    /// Whether the rest of the stream is missing in what it returned.
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// Takes the next chunk, and returns what is decided so far.
    pub fn push(&mut self, chunk: &[u8]) -> Vec<u8> {
        if self.patterns.are_unavailable() || self.gave_up {
            return Vec::new();
        }
        if self.kept_back.is_empty() {
            return self.advance(chunk);
        }
        let mut input = std::mem::take(&mut self.kept_back);
        input.extend_from_slice(chunk);
        self.advance(&input)
    }

    fn advance(&mut self, input: &[u8]) -> Vec<u8> {
        let mut clean = Vec::with_capacity(input.len());
        let search = Search::new(&self.patterns, input, false);
        match replace(search, input, &mut clean) {
            Replaced::UpTo(decided) => self.kept_back = input[decided..].to_vec(),
            Replaced::Nothing => clean.extend_from_slice(input),
            Replaced::GaveUp => self.gave_up = true,
        }
        clean
    }

    /// The stream has ended: returns the rest.
    pub fn finish(mut self) -> Vec<u8> {
        if self.gave_up {
            return Vec::new();
        }
        self.patterns.redact(&mut self.kept_back);
        self.kept_back
    }
}

enum Replaced {
    /// All of the input stays as it is, and nothing is copied.
    Nothing,
    /// The input is decided up to here.
    UpTo(usize),
    /// The rest of the input was replaced as a whole, because a search would cost too much.
    GaveUp,
}

/// Appends the decided part of `input`, with its matches replaced, to `clean`.
fn replace(mut search: Search<'_>, input: &[u8], clean: &mut Vec<u8>) -> Replaced {
    let mut done = 0;
    loop {
        match search.next(done) {
            Step::Match(found) => {
                clean.extend_from_slice(&input[done..found.start]);
                clean.extend_from_slice(REPLACEMENT);
                done = found.end;
            }
            Step::Undecided(from) => {
                clean.extend_from_slice(&input[done..from]);
                return Replaced::UpTo(from);
            }
            Step::GiveUp(from) => {
                clean.extend_from_slice(&input[done..from]);
                clean.extend_from_slice(REPLACEMENT);
                return Replaced::GaveUp;
            }
            Step::End if done == 0 => return Replaced::Nothing,
            Step::End => {
                clean.extend_from_slice(&input[done..]);
                return Replaced::UpTo(input.len());
            }
        }
    }
}

#[cfg(test)]
mod property;
#[cfg(test)]
mod tests;
