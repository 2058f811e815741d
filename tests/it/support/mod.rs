//! Starts the real binary on ports of the system's choice, and talks to it over real sockets.

pub mod ati;
pub mod dns;
pub mod http;
pub mod tls;
pub mod tokens;
pub mod upstream;

use std::time::{Duration, Instant};

/// Long enough for a loaded machine; a test that waits for it has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Look until it is so.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
