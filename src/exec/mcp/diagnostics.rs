//! What a transport noticed: why it ended, what the server wrote to stderr, lines that aren't
//! JSON-RPC. A caller that gets no answer is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::McpError;
use crate::text::clip;

/// How much of the end of stderr is kept.
const KEPT_STDERR: usize = 2048;
/// How many lines of it are shown.
const SHOWN_LINES: usize = 5;
/// How long the end of a server waits for the end of its stderr, which says why the server ended.
pub const STDERR_WAIT: Duration = Duration::from_millis(500);

#[derive(Default)]
pub struct TransportDiagnostics {
    notes: Mutex<Notes>,
    /// Whether the server has ever sent a JSON-RPC message.
    sent_json_rpc: AtomicBool,
    /// Lines in a row that aren't JSON-RPC.
    garbage_lines: AtomicUsize,
    stderr_open: watch::Sender<bool>,
}

#[derive(Default)]
struct Notes {
    /// The first cause; later ones follow from it.
    cause: Option<McpError>,
    stderr: String,
    /// How the first line that isn't JSON-RPC began.
    garbage_sample: String,
}

impl TransportDiagnostics {
    /// Records why the transport ended, unless a cause is known already.
    pub fn set_cause(&self, cause: McpError) {
        self.notes.lock().cause.get_or_insert(cause);
    }

    pub fn cause(&self) -> Option<McpError> {
        self.notes.lock().cause.clone()
    }

    /// Where lines of stderr go. Stderr counts as open until this is dropped.
    pub fn open_stderr(self: &Arc<Self>) -> StderrLog {
        self.stderr_open.send_replace(true);
        StderrLog(self.clone())
    }

    /// Waits until stderr is read to its end, but no longer than `deadline`: a process that the
    /// server left behind may hold it open.
    pub async fn wait_for_stderr(&self, deadline: Instant) {
        let mut open = self.stderr_open.subscribe();
        let _ = timeout_at(deadline, open.wait_for(|open| !open)).await;
    }

    /// Records a line that isn't JSON-RPC. Returns how many there were in a row, this one included.
    pub fn add_garbage(&self, line: &str) -> usize {
        let before = self.garbage_lines.fetch_add(1, Ordering::Relaxed);
        if before == 0 {
            self.notes.lock().garbage_sample = clip(line, 80).escape_debug().to_string();
        }
        before + 1
    }

    /// Records a JSON-RPC message: lines before it were a banner, or a log on the wrong stream.
    pub fn add_json_rpc(&self) {
        if self.garbage_lines.load(Ordering::Relaxed) > 0 {
            self.garbage_lines.store(0, Ordering::Relaxed);
        }
        if !self.sent_json_rpc.load(Ordering::Relaxed) {
            self.sent_json_rpc.store(true, Ordering::Relaxed);
        }
    }

    /// What follows "the server ended" or "the server was not ready" in an error.
    pub fn detail(&self) -> String {
        let notes = self.notes.lock();
        let mut text = String::new();
        let garbage = self.garbage_lines.load(Ordering::Relaxed);
        if garbage > 0 {
            text += &format!(
                "; it wrote {garbage} lines to stdout that are no JSON-RPC (the first: \"{}\")",
                notes.garbage_sample
            );
        }
        let lines: Vec<&str> = notes.stderr.trim().lines().collect();
        if !lines.is_empty() {
            let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
            text += &format!("; its last words: {}", shown.join(" | "));
        }
        text
    }

    /// Whether the server has sent lines, and none of them was JSON-RPC.
    pub fn sent_only_garbage(&self) -> bool {
        !self.sent_json_rpc.load(Ordering::Relaxed)
            && self.garbage_lines.load(Ordering::Relaxed) > 0
    }
}

/// Keeps the end of stderr while it is read.
pub struct StderrLog(Arc<TransportDiagnostics>);

impl StderrLog {
    /// Adds a line. Secrets have been redacted.
    pub fn add(&self, line: &str) {
        let mut notes = self.0.notes.lock();
        notes.stderr.push_str(line);
        notes.stderr.push('\n');
        let surplus = notes.stderr.len().saturating_sub(KEPT_STDERR);
        let cut = notes.stderr.ceil_char_boundary(surplus);
        notes.stderr.drain(..cut);
    }
}

impl Drop for StderrLog {
    fn drop(&mut self) {
        self.0.stderr_open.send_replace(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detail_shows_the_last_lines_of_stderr() {
        let diagnostics = Arc::<TransportDiagnostics>::default();
        let stderr = diagnostics.open_stderr();
        assert_eq!(diagnostics.detail(), "");
        for number in 0..8 {
            stderr.add(&format!("line {number}"));
        }
        let shown = "; its last words: line 3 | line 4 | line 5 | line 6 | line 7";
        assert_eq!(diagnostics.detail(), shown);
        stderr.add(&"x".repeat(3 * KEPT_STDERR));
        assert!(diagnostics.detail().len() < KEPT_STDERR + 30);
    }

    #[tokio::test]
    async fn waiting_for_stderr_is_bounded_and_ends_with_stderr() {
        let diagnostics = Arc::<TransportDiagnostics>::default();
        let far = || Instant::now() + Duration::from_secs(3600);
        diagnostics.wait_for_stderr(far()).await;
        let open = diagnostics.open_stderr();
        let soon = Instant::now() + Duration::from_millis(50);
        diagnostics.wait_for_stderr(soon).await;
        assert!(Instant::now() >= soon);
        let (_, ()) = tokio::join!(diagnostics.wait_for_stderr(far()), async { drop(open) });
    }
}
