use std::sync::atomic::{AtomicU64, Ordering};

/// Which request a client connection is at, and whether its header is still being read. Pingora
/// bounds single reads only, so the connection's task polls this to find a caller that sends its
/// header one byte at a time. A request costs two stores and no look at the clock.
#[derive(Debug, Default)]
pub struct HeaderWatch {
    /// Even while a request's header is awaited, odd while the request is served. It only grows.
    phase: AtomicU64,
}

/// What a connection was doing when it was polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase(u64);

impl Phase {
    pub fn is_reading(self) -> bool {
        self.0.is_multiple_of(2)
    }

    /// Whether the connection's first header is awaited.
    pub fn is_first(self) -> bool {
        self.0 == 0
    }
}

impl HeaderWatch {
    /// The server begins to wait for another request.
    pub fn reading(&self) {
        let next = (self.phase.load(Ordering::Relaxed) | 1) + 1;
        self.phase.store(next, Ordering::Relaxed);
    }

    /// The header is complete. Other limits apply to what follows.
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
    fn phases_of_a_connection_never_repeat() {
        let watch = HeaderWatch::default();
        assert!(watch.phase().is_reading() && watch.phase().is_first());
        let mut seen = vec![watch.phase()];
        for _ in 0..3 {
            watch.serving();
            assert!(!watch.phase().is_reading());
            seen.push(watch.phase());
            watch.reading();
            assert!(watch.phase().is_reading() && !watch.phase().is_first());
            seen.push(watch.phase());
        }
        let mut unique = seen.clone();
        unique.dedup();
        assert_eq!(seen, unique);
    }
}
