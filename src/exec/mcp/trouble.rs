//! What a transport noticed, for whoever waits on it in vain.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::McpError;

/// Of what a server wrote to stderr, the end says most.
const LAST_WORDS: usize = 2048;

#[derive(Default)]
pub struct Trouble(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    /// The first cause; what follows from it is no news.
    cause: Option<McpError>,
    last_words: String,
    /// Lines that are no JSON-RPC, and how the first of them began.
    garbage: usize,
    sample: String,
}

impl Trouble {
    pub fn caused_by(&self, cause: McpError) {
        self.lock().cause.get_or_insert(cause);
    }

    pub fn cause(&self) -> Option<McpError> {
        self.lock().cause.clone()
    }

    /// A line of stderr, without secrets already.
    pub fn heard(&self, line: &str) {
        let mut noted = self.lock();
        noted.last_words.push_str(line);
        noted.last_words.push('\n');
        let surplus = noted.last_words.len().saturating_sub(LAST_WORDS);
        let cut = noted.last_words.ceil_char_boundary(surplus);
        noted.last_words.drain(..cut);
    }

    /// How many there were, this one included.
    pub fn garbage(&self, line: &str) -> usize {
        let mut noted = self.lock();
        if noted.garbage == 0 {
            let end = line.floor_char_boundary(80);
            noted.sample = line[..end].escape_debug().to_string();
        }
        noted.garbage += 1;
        noted.garbage
    }

    /// What to add to "it ended" or "it was not ready".
    pub fn circumstances(&self) -> String {
        let noted = self.lock();
        let mut text = String::new();
        if noted.garbage > 0 {
            text += &format!(
                "; it wrote {} lines to stdout that are no JSON-RPC (the first: \"{}\")",
                noted.garbage, noted.sample
            );
        }
        let words = noted.last_words.trim();
        if !words.is_empty() {
            let words: Vec<&str> = words.lines().rev().take(5).collect();
            let words: Vec<&str> = words.into_iter().rev().collect();
            text += &format!("; its last words: {}", words.join(" | "));
        }
        text
    }

    pub fn heard_garbage(&self) -> bool {
        self.lock().garbage > 0
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
