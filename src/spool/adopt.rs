//! Files that others wrote, as bodies.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Content, DiskFile, Quota, SpoolError, Spooled};

impl Quota {
    /// Where spools have their files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A file without a name. It counts when it is adopted.
    pub fn new_file(&self) -> io::Result<File> {
        tempfile::tempfile_in(&self.dir)
    }
}

impl Spooled {
    /// A file that is complete. What it holds counts against the quota from now on. Its name is
    /// the caller's to remove.
    pub fn adopt(file: File, quota: &Arc<Quota>) -> Result<Self, SpoolError> {
        let len = file.metadata().map_err(SpoolError::Disk)?.len();
        let adopted = DiskFile {
            file: Some(file),
            space: Mutex::new(quota.space.share()),
        };
        adopted.take(len)?;
        Ok(Spooled {
            content: Content::Disk(Arc::new(adopted)),
            len,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn adopted_file_is_read_after_its_name_is_gone_and_counts_until_then() {
        let dir = tempfile::tempdir().unwrap();
        let (path, body) = (dir.path().join("file"), vec![7; 200_000]);
        std::fs::write(&path, &body).unwrap();
        let quota = Quota::in_dir(200_000, dir.path().to_path_buf());
        assert_eq!(quota.dir(), dir.path());
        let adopted = Spooled::adopt(File::open(&path).unwrap(), &quota).unwrap();
        let second = Spooled::adopt(File::open(&path).unwrap(), &quota);
        assert!(matches!(second, Err(SpoolError::QuotaExceeded { .. })));
        std::fs::remove_file(&path).unwrap();
        assert_eq!((adopted.len(), quota.used()), (200_000, 200_000));
        let mut read = Vec::new();
        adopted.blocking_reader().read_to_end(&mut read).unwrap();
        assert_eq!(read, body);
        drop(adopted);
        assert_eq!(quota.used(), 0);
    }
}
