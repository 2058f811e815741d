//! Memory for secrets: pages of its own, kept out of swap and core dumps where the kernel allows
//! it, and wiped before they are unmapped.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use zeroize::Zeroize;

static REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether the kernel has refused to lock memory so far (`RLIMIT_MEMLOCK`).
pub fn refused() -> bool {
    REFUSED.load(Ordering::Relaxed)
}

/// A buffer of fixed capacity on locked pages. It never moves and never reallocates, so it leaves
/// no copies.
pub struct Locked {
    start: NonNull<u8>,
    capacity: usize,
    len: usize,
}

// SAFETY: the pages belong to this value alone, and access follows the borrow rules of `&self` and
// `&mut self`.
unsafe impl Send for Locked {}
// SAFETY: as above; there is no interior mutability.
unsafe impl Sync for Locked {}

impl Locked {
    pub fn with_capacity(capacity: usize) -> io::Result<Self> {
        let page = page_size();
        let capacity = capacity.max(1).div_ceil(page) * page;
        // SAFETY: an anonymous private mapping at an address of the kernel's choice aliases
        // nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                capacity,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the range was mapped above. Both calls are best effort: a refusal is recorded,
        // and not fatal.
        let kept = unsafe {
            let locked = libc::mlock(start, capacity) == 0;
            let undumped = libc::madvise(start, capacity, libc::MADV_DONTDUMP) == 0;
            locked && undumped
        };
        if !kept {
            REFUSED.store(true, Ordering::Relaxed);
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Locked {
            start,
            capacity,
            len: 0,
        })
    }

    /// Reads a whole file. Its content touches no other memory.
    pub fn read_file(path: &Path, limit: usize) -> io::Result<Self> {
        Self::read(&mut crate::files::open(path)?, limit)
    }

    pub fn read(file: &mut File, limit: usize) -> io::Result<Self> {
        let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        // Files under /proc and /dev report no length.
        let capacity = if size == 0 { limit.min(64 << 10) } else { size };
        if size > limit {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("larger than {limit} bytes"),
            ));
        }
        let mut buffer = Self::with_capacity(capacity + 1)?;
        loop {
            let room = buffer.room();
            if room.is_empty() {
                return Err(io::Error::other("grew while it was read"));
            }
            match file.read(room) {
                Ok(0) => return Ok(buffer),
                Ok(n) => buffer.len += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Appends, and returns the range of the new bytes. Fails where they don't fit.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<Range<usize>> {
        let start = self.len;
        self.room()
            .get_mut(..bytes.len())
            .ok_or(io::ErrorKind::StorageFull)?
            .copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(start..self.len)
    }

    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the first `len` bytes are within the mapping, initialised by the kernel (zero) or
        // by `push` and `read`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    fn room(&mut self) -> &mut [u8] {
        // SAFETY: as above, over the whole mapping.
        let all = unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.capacity) };
        &mut all[self.len..]
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.as_mut_slice().zeroize();
        // SAFETY: this value owns the mapping, and nothing borrows from it any more.
        unsafe {
            libc::munlock(self.start.as_ptr().cast(), self.capacity);
            libc::munmap(self.start.as_ptr().cast(), self.capacity);
        }
    }
}

fn page_size() -> usize {
    // SAFETY: sysconf reads a constant of the system.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_do_not_fit_are_refused() {
        let mut buffer = Locked::with_capacity(1).unwrap();
        let page = vec![7; page_size()];
        assert_eq!(buffer.push(&page).unwrap(), 0..page.len());
        assert!(buffer.push(b"x").is_err());
        assert_eq!(buffer.as_slice(), page);
    }

    #[test]
    fn file_over_the_limit_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![b'x'; 100]).unwrap();
        assert!(Locked::read_file(&path, 99).is_err());
        assert_eq!(Locked::read_file(&path, 100).unwrap().as_slice().len(), 100);
    }
}
