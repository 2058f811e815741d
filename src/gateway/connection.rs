use std::sync::atomic::{AtomicU64, Ordering};

/// One client connection: which request it is at, and whether that is still being read. Pingora bounds single reads; a caller that sends
/// its header a byte at a time is found by whoever watches this. A request costs two stores and no look at the clock.
#[derive(Debug, Default)]
pub struct Connection {
    /// Even while a request's header is awaited, odd while it is served; never the same twice.
    phase: AtomicU64,
}

/// What a connection was seen doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase(u64);

impl Phase {
    pub fn is_reading(self) -> bool {
        self.0.is_multiple_of(2)
    }

    /// Whether nothing was ever served on it.
    pub fn is_first(self) -> bool {
        self.0 == 0
    }
}

impl Connection {
    /// The server begins to wait for another request.
    pub fn reading(&self) {
        let next = (self.phase.load(Ordering::Relaxed) | 1) + 1;
        self.phase.store(next, Ordering::Relaxed);
    }

    /// The header is complete; what follows has other limits.
    pub fn serving(&self) {
        let next = self.phase.load(Ordering::Relaxed) | 1;
        self.phase.store(next, Ordering::Relaxed);
    }

    pub fn phase(&self) -> Phase {
        Phase(self.phase.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_never_repeat() {
        let connection = Connection::default();
        assert!(connection.phase().is_reading() && connection.phase().is_first());
        let mut seen = vec![connection.phase()];
        for _ in 0..3 {
            connection.serving();
            assert!(!connection.phase().is_reading());
            seen.push(connection.phase());
            connection.reading();
            assert!(connection.phase().is_reading() && !connection.phase().is_first());
            seen.push(connection.phase());
        }
        let mut unique = seen.clone();
        unique.dedup();
        assert_eq!(seen, unique);
    }
}
