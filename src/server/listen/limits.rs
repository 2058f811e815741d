//! How many connections the limit on open files allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are kept for listeners, logs, files and runtimes.
const RESERVED_DESCRIPTORS: usize = 64;

/// Raises the soft limit on open files to the hard one, and returns how many connections fit. The
/// soft limit is low by default only for programs that use select(2). Each connection may need a
/// second descriptor, for its upstream.
pub fn raise_connection_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    // None means that there is no limit.
    let files = current.map_or(usize::MAX, |files| {
        usize::try_from(files).unwrap_or(usize::MAX)
    });
    (files.saturating_sub(RESERVED_DESCRIPTORS) / 2).max(1)
}
