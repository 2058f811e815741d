//! Transparent huge pages. The allocator asks for them, and with them each thread that touches a
//! few KiB holds 2 MiB: the memory of a server would grow with its threads, for no gain in speed.

use rustix::thread::disable_transparent_huge_pages;

/// To be called early: what has been touched before stays as it is. Programs inherit it, unless
/// they are started through [`allow_again`]. A kernel that refuses keeps its huge pages.
pub fn forbid() {
    let _ = disable_transparent_huge_pages(true);
}

/// For a program of the operator, which has reasons of its own.
pub(super) fn allow_again() {
    let _ = disable_transparent_huge_pages(false);
}
