//! What the system lets this process do.
#![allow(unsafe_code)]

use tracing::debug;

/// Each connection needs a descriptor, often two; the soft limit is a leftover for programs that use select(2).
pub fn raise_open_files() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls read or write the one struct that they are given.
    let raised = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0
        }
    };
    debug!(open_files = limit.rlim_cur, raised, "open files");
}
