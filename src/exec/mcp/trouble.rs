//! What a transport noticed, for whoever waits on it in vain.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::McpError;

/// Of what a server wrote to stderr, the end says most.
const LAST_WORDS: usize = 2048;

#[derive(Default)]
pub struct Trouble {
    noted: Mutex<Noted>,
    /// Whether it has ever said something that makes sense.
    understood: AtomicBool,
    /// Lines in a row that don't.
    garbage: AtomicUsize,
}

#[derive(Default)]
struct Noted {
    /// The first cause; what follows from it is no news.
    cause: Option<McpError>,
    last_words: String,
    /// How the first line that is no JSON-RPC began.
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

    /// How many there were in a row, this one included.
    pub fn garbage(&self, line: &str) -> usize {
        let before = self.garbage.fetch_add(1, Ordering::Relaxed);
        if before == 0 {
            let end = line.floor_char_boundary(80);
            self.lock().sample = line[..end].escape_debug().to_string();
        }
        before + 1
    }

    /// It said something that makes sense: what it said before was a banner, or a log in the wrong place.
    pub fn understood(&self) {
        if self.garbage.load(Ordering::Relaxed) > 0 {
            self.garbage.store(0, Ordering::Relaxed);
        }
        if !self.understood.load(Ordering::Relaxed) {
            self.understood.store(true, Ordering::Relaxed);
        }
    }

    /// What to add to "it ended" or "it was not ready".
    pub fn circumstances(&self) -> String {
        let noted = self.lock();
        let mut text = String::new();
        let garbage = self.garbage.load(Ordering::Relaxed);
        if garbage > 0 {
            text += &format!(
                "; it wrote {garbage} lines to stdout that are no JSON-RPC (the first: \"{}\")",
                noted.sample
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

    /// Whether all that was ever heard is something else than MCP.
    pub fn heard_garbage_only(&self) -> bool {
        !self.understood.load(Ordering::Relaxed) && self.garbage.load(Ordering::Relaxed) > 0
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
