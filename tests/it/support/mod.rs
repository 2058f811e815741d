//! Starts the real binary on ports of the system's choice, and talks to it over real sockets.

pub mod ati;
pub mod database;
pub mod dns;
pub mod http;
pub mod skip;
pub mod sources;
pub mod tls;
pub mod tokens;
pub mod upstream;

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

/// Long enough for a loaded machine; a test that waits for it has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// An address at which nothing listens, and which no other test picks: they use 127.0.0.1.
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.47.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// The interval between two looks at a condition that is waited for.
pub const POLL: Duration = Duration::from_millis(5);

/// Polls `look` until it returns something.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(POLL);
    }
}
