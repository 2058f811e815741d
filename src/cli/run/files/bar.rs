//! The progress of a transfer on a terminal. Where stderr is none, nothing is written.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const KNOWN: &str = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}, {eta} left";
const UNKNOWN: &str = "{msg} {spinner} {bytes} {bytes_per_sec}";
const WAITING: &str = "{msg} {spinner} {elapsed}";
const TICK: Duration = Duration::from_millis(120);

/// Is removed from the terminal when it is dropped.
pub struct Bar(ProgressBar);

/// For a stream that counts its bytes.
pub struct Counter(ProgressBar);

impl Counter {
    pub fn add(&self, bytes: usize) {
        self.0.inc(bytes as u64);
    }
}

impl Bar {
    pub fn new() -> Self {
        let bar = ProgressBar::no_length();
        bar.set_draw_target(match std::io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        });
        Bar(bar)
    }

    /// Bytes go over the wire from here on, this many if that is known.
    pub fn begin(&self, message: &'static str, total: Option<u64>) {
        self.0.set_style(style(match total {
            Some(_) => KNOWN,
            None => UNKNOWN,
        }));
        self.0.reset();
        if let Some(total) = total {
            self.0.set_length(total);
        }
        self.0.set_message(message);
    }

    /// Another machine works.
    pub fn wait(&self, message: &'static str) {
        self.0.set_style(style(WAITING));
        self.0.set_message(message);
        if !self.0.is_hidden() {
            self.0.enable_steady_tick(TICK);
        }
    }

    pub fn add(&self, bytes: usize) {
        self.0.inc(bytes as u64);
    }

    pub fn counter(&self) -> Counter {
        Counter(self.0.clone())
    }

    /// So many bytes of the whole are there.
    pub fn set(&self, done: u64, total: Option<u64>) {
        if total != self.0.length() {
            self.begin("Downloading", total);
        }
        self.0.set_position(done);
    }

    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar())
}
