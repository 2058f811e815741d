use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);
const SERVING: u64 = u64::MAX;

/// One client connection: whether it is being waited for, and since when. Pingora bounds single reads; a caller that sends its
/// header a byte at a time is found by this.
#[derive(Debug)]
pub struct Connection {
    /// Milliseconds since the start of the process, or [`SERVING`].
    reading_since: AtomicU64,
    reused: AtomicBool,
}

impl Connection {
    pub fn new() -> Self {
        Connection {
            reading_since: AtomicU64::new(now()),
            reused: AtomicBool::new(false),
        }
    }

    /// The server begins to wait for the next request.
    pub fn reading(&self) {
        self.reading_since.store(now(), Ordering::Relaxed);
    }

    /// The header is complete; what follows has other limits.
    pub fn serving(&self) {
        self.reading_since.store(SERVING, Ordering::Relaxed);
        self.reused.store(true, Ordering::Relaxed);
    }

    /// How long until the header must be complete, and zero when that time is past.
    pub fn patience(&self, header: Duration, keepalive: Duration) -> Duration {
        let since = self.reading_since.load(Ordering::Relaxed);
        if since == SERVING {
            return header;
        }
        let allowed = if self.reused.load(Ordering::Relaxed) {
            keepalive + header
        } else {
            header
        };
        allowed.saturating_sub(Duration::from_millis(now().saturating_sub(since)))
    }
}

impl Default for Connection {
    fn default() -> Self {
        Connection::new()
    }
}

fn now() -> u64 {
    START.elapsed().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_longer_between_requests_and_never_ends_while_serving() {
        let (header, keepalive) = (Duration::from_secs(10), Duration::from_secs(60));
        let connection = Connection::new();
        assert!(connection.patience(header, keepalive) <= header);
        assert_eq!(
            connection.patience(Duration::ZERO, keepalive),
            Duration::ZERO
        );
        connection.serving();
        assert_eq!(connection.patience(header, keepalive), header);
        connection.reading();
        assert!(connection.patience(header, keepalive) > keepalive);
    }
}
