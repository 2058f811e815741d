//! What the system lets this process do.
#![allow(unsafe_code)]

/// Descriptors for listeners, logs, files and runtimes.
const RESERVE: usize = 64;

/// Raise the limit on open files (the soft one is a leftover for programs that use select(2)), and say how many connections it
/// allows: each may need a second one to an upstream.
pub fn connections() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls read or write the one struct that they are given.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return usize::MAX;
        }
        let soft = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max;
        if libc::setrlimit(libc::RLIMIT_NOFILE, &limit) != 0 {
            limit.rlim_cur = soft;
        }
    }
    let files = usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX);
    (files.saturating_sub(RESERVE) / 2).max(1)
}
