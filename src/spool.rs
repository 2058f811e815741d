//! Bodies that may be too big for memory. A [`Spool`] keeps the first bytes in memory and moves all
//! of them to an unlinked temporary file past a limit. A [`Quota`] bounds the disk space of all
//! spools of the process together.
//!
//! File work runs on tokio's blocking threads, so a slow disk never stops an async worker.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use futures::stream::unfold;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::budget::{Budget, Exhausted, Share};

/// Bytes that are collected before a write to the file.
const WRITE_SIZE: usize = 256 << 10;
/// The most that a reader yields at once.
const READ_SIZE: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error("the temporary files of all calls together would need more than {limit} bytes")]
    QuotaExceeded { limit: u64 },
    #[error("the bodies of all calls together would need more than {limit} bytes of memory")]
    MemoryExceeded { limit: u64 },
    #[error("the temporary file of a call can't be written")]
    Disk(#[source] io::Error),
}

impl SpoolError {
    /// The disk itself has no room.
    pub fn is_disk_full(&self) -> bool {
        let SpoolError::Disk(error) = self else {
            return false;
        };
        matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        )
    }

    /// Whether the same body may find room later.
    pub fn is_shortage(&self) -> bool {
        match self {
            SpoolError::QuotaExceeded { .. } | SpoolError::MemoryExceeded { .. } => true,
            SpoolError::Disk(_) => false,
        }
    }
}

/// The disk space that all spools of the process share.
#[derive(Debug)]
pub struct Quota {
    space: Arc<Budget>,
    /// Read once, because the environment is not looked at after the start.
    dir: PathBuf,
}

impl Quota {
    /// A quota over the system's directory for temporary files.
    pub fn new(limit: u64) -> Arc<Self> {
        Quota::in_dir(limit, std::env::temp_dir())
    }

    pub fn in_dir(limit: u64, dir: PathBuf) -> Arc<Self> {
        Arc::new(Quota {
            space: Budget::new(limit),
            dir,
        })
    }

    pub fn limit(&self) -> u64 {
        self.space.limit()
    }

    /// Bytes that spools have on disk now, for the metrics.
    pub fn used(&self) -> u64 {
        self.space.used()
    }
}

/// An unlinked file, and the part of the quota that it takes. Both end with the last owner.
struct DiskFile {
    /// `None` only while it is being dropped.
    file: Option<File>,
    space: Mutex<Share>,
}

impl DiskFile {
    fn create(quota: Arc<Quota>) -> io::Result<Self> {
        Ok(DiskFile {
            file: Some(tempfile::tempfile_in(&quota.dir)?),
            space: Mutex::new(quota.space.share()),
        })
    }

    fn take(&self, bytes: u64) -> Result<(), SpoolError> {
        let taken = self.space.lock().grow(bytes);
        taken.map_err(|Exhausted { limit }| SpoolError::QuotaExceeded { limit })
    }

    fn file(&self) -> io::Result<&File> {
        self.file
            .as_ref()
            .ok_or_else(|| io::Error::other("the temporary file is closed"))
    }

    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.file()?.write_all(bytes)
    }

    fn read_at(&self, offset: u64, size: usize) -> io::Result<Bytes> {
        let mut piece = vec![0; size];
        self.file()?.read_exact_at(&mut piece, offset)?;
        Ok(piece.into())
    }
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        // The kernel frees the blocks of a big file here, which may take long.
        if let (Some(file), Ok(runtime)) = (self.file.take(), Handle::try_current()) {
            runtime.spawn_blocking(move || drop(file));
        }
    }
}

enum Storage {
    Memory(Vec<u8>),
    Disk {
        file: Arc<DiskFile>,
        /// Counted against the quota already, and not yet in the file.
        pending: Vec<u8>,
    },
    /// A write failed or was cancelled, so the content isn't whole.
    Broken,
}

/// A body while it is written. After an error, or after a `write` that was cancelled, it refuses
/// every other write.
pub struct Spool {
    storage: Storage,
    len: u64,
    memory_limit: usize,
    /// Of the budget for bodies in memory, where there is one.
    memory: Option<Share>,
    quota: Arc<Quota>,
}

impl Spool {
    /// At most `memory_limit` bytes stay in memory; a longer body goes to disk as a whole.
    pub fn new(memory_limit: usize, quota: Arc<Quota>) -> Self {
        Spool {
            storage: Storage::Memory(Vec::new()),
            len: 0,
            memory_limit,
            memory: None,
            quota,
        }
    }

    /// What stays in memory counts against this budget, until the body is dropped.
    pub fn within(self, memory: &Arc<Budget>) -> Self {
        Spool {
            memory: Some(memory.share()),
            ..self
        }
    }

    /// Room for a body of this length: a buffer that grows is copied again and again.
    pub fn with_room_for(mut self, length: u64) -> Self {
        if let Storage::Memory(memory) = &mut self.storage {
            memory.reserve_exact(self.memory_limit.min(length as usize));
        }
        self
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub async fn write(&mut self, chunk: &[u8]) -> Result<(), SpoolError> {
        self.storage = match std::mem::replace(&mut self.storage, Storage::Broken) {
            Storage::Memory(mut memory) if memory.len() + chunk.len() <= self.memory_limit => {
                self.take_memory(chunk.len())?;
                memory.extend_from_slice(chunk);
                Storage::Memory(memory)
            }
            Storage::Memory(memory) => {
                let quota = self.quota.clone();
                let file = blocking(move || DiskFile::create(quota)).await?;
                file.take(memory.len() as u64)?;
                let storage = append(Arc::new(file), memory, chunk).await?;
                self.memory = None;
                storage
            }
            Storage::Disk { file, pending } => append(file, pending, chunk).await?,
            Storage::Broken => return Err(broken()),
        };
        self.len += chunk.len() as u64;
        Ok(())
    }

    fn take_memory(&mut self, bytes: usize) -> Result<(), SpoolError> {
        let taken = self.memory.as_mut().map(|share| share.grow(bytes as u64));
        taken
            .unwrap_or(Ok(()))
            .map_err(|Exhausted { limit }| SpoolError::MemoryExceeded { limit })
    }

    pub async fn finish(self) -> Result<Spooled, SpoolError> {
        let content = match self.storage {
            Storage::Memory(memory) => Content::Memory(memory.into(), self.memory.map(Arc::new)),
            Storage::Disk { file, pending } => {
                flush(&file, pending).await?;
                Content::Disk(file)
            }
            Storage::Broken => return Err(broken()),
        };
        Ok(Spooled {
            content,
            len: self.len,
        })
    }
}

/// Add a chunk to what waits for the file, and write that when it is enough.
async fn append(
    file: Arc<DiskFile>,
    mut pending: Vec<u8>,
    chunk: &[u8],
) -> Result<Storage, SpoolError> {
    file.take(chunk.len() as u64)?;
    pending.extend_from_slice(chunk);
    if pending.len() >= WRITE_SIZE {
        pending = flush(&file, pending).await?;
    }
    Ok(Storage::Disk { file, pending })
}

/// Write, and return the buffer for the next use.
async fn flush(file: &Arc<DiskFile>, mut pending: Vec<u8>) -> Result<Vec<u8>, SpoolError> {
    if pending.is_empty() {
        return Ok(pending);
    }
    let file = file.clone();
    blocking(move || {
        file.append(&pending)?;
        pending.clear();
        Ok(pending)
    })
    .await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SpoolError> {
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(io::Error::other(e)))
        .map_err(SpoolError::Disk)
}

fn broken() -> SpoolError {
    SpoolError::Disk(io::Error::other("an earlier write did not complete"))
}

#[derive(Clone)]
enum Content {
    Memory(Bytes, Option<Arc<Share>>),
    Disk(Arc<DiskFile>),
}

/// A complete body. It can be read any number of times. The quota is given back when it and its
/// readers are dropped.
#[derive(Clone)]
pub struct Spooled {
    content: Content,
    len: u64,
}

impl std::fmt::Debug for Spooled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Spooled({} bytes)", self.len)
    }
}

impl From<Vec<u8>> for Spooled {
    fn from(bytes: Vec<u8>) -> Self {
        Spooled {
            len: bytes.len() as u64,
            content: Content::Memory(bytes.into(), None),
        }
    }
}

impl Spooled {
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The whole body, where it did not go to disk.
    pub fn in_memory(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Memory(bytes, _) => Some(bytes),
            Content::Disk(_) => None,
        }
    }

    /// The first `most` bytes, or all where there are fewer.
    pub async fn head(&self, most: usize) -> Result<Bytes, SpoolError> {
        let size = usize::try_from(self.len).map_or(most, |len| len.min(most));
        match &self.content {
            Content::Memory(bytes, _) => Ok(bytes.slice(..size)),
            Content::Disk(file) => {
                let file = file.clone();
                blocking(move || file.read_at(0, size)).await
            }
        }
    }

    /// A reader for parsers. It blocks on the disk: for use on blocking threads only.
    pub fn blocking_reader(&self) -> BlockingReader {
        BlockingReader {
            body: self.clone(),
            offset: 0,
        }
    }

    /// A file of the caller's own: it takes nothing of a quota, and may have a name.
    pub fn of_file(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        let file = DiskFile {
            file: Some(file),
            space: Mutex::new(Budget::new(0).share()),
        };
        Ok(Spooled {
            content: Content::Disk(Arc::new(file)),
            len,
        })
    }

    /// The body from its beginning, in pieces of bounded size.
    pub fn reader(&self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static + use<> {
        self.clone().into_stream()
    }

    pub fn into_stream(self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        let len = self.len;
        unfold((self.content, 0), move |(content, offset)| async move {
            let size = usize::try_from(len - offset).map_or(READ_SIZE, |left| left.min(READ_SIZE));
            if size == 0 {
                return None;
            }
            let next = offset + size as u64;
            let (piece, content) = match content {
                Content::Memory(mut bytes, share) => {
                    (Ok(bytes.split_to(size)), Content::Memory(bytes, share))
                }
                Content::Disk(file) => {
                    let from = file.clone();
                    let read = spawn_blocking(move || from.read_at(offset, size)).await;
                    let piece = read.unwrap_or_else(|e| Err(io::Error::other(e)));
                    (piece, Content::Disk(file))
                }
            };
            // An error ends the stream: nothing is left to read after it.
            let next = if piece.is_err() { len } else { next };
            Some((piece, (content, next)))
        })
    }
}

/// Reads a [`Spooled`] body from its beginning.
pub struct BlockingReader {
    body: Spooled,
    offset: u64,
}

impl io::Read for BlockingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &self.body.content {
            Content::Memory(bytes, _) => {
                let offset = usize::try_from(self.offset).unwrap_or(usize::MAX);
                let mut rest = bytes.get(offset..).unwrap_or_default();
                rest.read(buffer)?
            }
            Content::Disk(file) => file.file()?.read_at(buffer, self.offset)?,
        };
        self.offset += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
