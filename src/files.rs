//! Files that appear whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Replace `path` by `content`: readers see the old file or the new one. The mode holds from the first byte on.
pub fn write_atomic(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let temporary = temporary_beside(path);
    let result = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&temporary)?;
        keep_owner(&file, path, dir);
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        File::open(dir)?.sync_all()
    })();
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// What root writes for somebody else belongs to that somebody: the owner of what it replaces, else of the folder. Who isn't root can't, and
/// needn't. Only for a file that we have just made: that somebody could have put a link to anything in its place.
fn keep_owner(file: &File, path: &Path, dir: &Path) {
    let Ok(model) = fs::symlink_metadata(path).or_else(|_| fs::metadata(dir)) else {
        return;
    };
    if let Ok(ours) = file.metadata()
        && ours.uid() == 0
        && model.uid() != 0
    {
        let _ = std::os::unix::fs::fchown(file, Some(model.uid()), Some(model.gid()));
    }
}

fn temporary_beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", uuid::Uuid::new_v4().simple()));
    path.with_file_name(name)
}

/// A folder for one owner, and those above it.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

/// Hold an exclusive lock for as long as the returned file lives, so that two processes don't lose each other's edits.
pub fn lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Root locks in folders of others, who may have put there a link to a file that isn't theirs, or a pipe that nobody reads.
    options
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = match options.clone().create_new(true).open(path) {
        Ok(file) => {
            let dir = path.parent().unwrap_or(Path::new("."));
            keep_owner(&file, Path::new(""), dir);
            file
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => options.open(path).map_err(plain)?,
        Err(e) => return Err(e),
    };
    file.lock()?;
    Ok(file)
}

/// What is in this very file, and not in one that a link leads to: for what root reads in a folder of somebody else and writes back there.
pub fn read_unlinked(path: &Path) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mut content = Vec::new();
    let mut file = options.open(path).map_err(plain)?;
    file.read_to_end(&mut content)?;
    Ok(content)
}

/// The system speaks of many levels of links where it means one.
fn plain(e: io::Error) -> io::Error {
    if e.raw_os_error() == Some(libc::ELOOP) {
        io::Error::other("it is a link, and must be a file")
    } else {
        e
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_litter() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("folder");
        fs::create_dir(&target).unwrap();
        // A folder can't be replaced by a file: the rename fails after the temporary was written.
        assert!(write_atomic(&target, b"x", 0o600).is_err());
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 1);
    }

    #[test]
    fn the_mode_is_what_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        write_atomic(&path, b"one", 0o600).unwrap();
        write_atomic(&path, b"two", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_lock_is_never_taken_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("lock"));
        fs::write(&target, "theirs").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(lock(&link).unwrap_err().to_string().contains("a link"));
        assert!(read_unlinked(&link).is_err());
        assert_eq!(read_unlinked(&target).unwrap(), b"theirs");
        // One that leads nowhere makes nothing.
        fs::remove_file(&target).unwrap();
        assert!(lock(&link).is_err());
        assert!(!target.exists());
    }

    #[test]
    fn only_a_lock_that_was_just_made_changes_hands() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let owner = |path: &Path| fs::metadata(path).unwrap().uid();
        let give = |path: &Path| std::os::unix::fs::chown(path, Some(65534), Some(65534));
        if give(dir.path()).is_err() {
            return crate::skip::skip("only root may give a folder to another user");
        }
        drop(lock(&path).unwrap());
        assert_eq!(owner(&path), 65534);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        drop(lock(&path).unwrap());
        assert_eq!(owner(&path), 0);
    }

    #[test]
    fn a_link_that_is_replaced_says_nothing_about_the_owner() {
        let dir = tempfile::tempdir().unwrap();
        let (other, link) = (dir.path().join("other"), dir.path().join("link"));
        fs::write(&other, "").unwrap();
        let given = std::os::unix::fs::chown(&other, Some(65534), Some(65534));
        std::os::unix::fs::symlink(&other, &link).unwrap();
        if given.is_err() {
            return crate::skip::skip("only root may give a file to another user");
        }
        write_atomic(&link, b"x", 0o600).unwrap();
        let at = fs::symlink_metadata(&link).unwrap();
        assert_eq!((at.is_file(), at.uid()), (true, 0));
    }
}
