//! A folder for the files that a program writes for its caller. It is made for one call and is gone
//! after it. What the program puts there is looked at with suspicion: only a regular file with no
//! other name is opened, below the folder that was made and not below what its name leads to later.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use tokio::runtime::Handle;

use crate::files;

/// Of the folder's name, for operators that find one.
const PREFIX: &str = ".ati-cli-out-";
/// To remove it.
const MOST_TRIES: usize = 10;

/// Why a file that the program should have written can't be used.
#[derive(Debug, thiserror::Error)]
pub enum OutputFault {
    #[error("it isn't there")]
    Missing,
    #[error("it is no regular file")]
    NotRegular,
    /// The program may have linked a file there that isn't its own.
    #[error("it has a second name")]
    Linked,
    #[error("it has more than {0} bytes")]
    TooLarge(u64),
    #[error("it can't be read: {0}")]
    Unreadable(#[source] io::Error),
}

/// A file that a program wrote.
pub type OutputFile = File;

pub struct OutputFolder {
    path: PathBuf,
    folder: OwnedFd,
}

impl OutputFolder {
    /// A new folder that only its owner may enter. Its name is random.
    pub fn create(parent: &Path) -> io::Result<Self> {
        let name = format!("{PREFIX}{}", uuid::Uuid::new_v4().simple());
        // The program may run in another folder.
        let path = std::path::absolute(parent)?.join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(folder) => Ok(OutputFolder { path, folder }),
            Err(e) => {
                let _ = fs::remove_dir(&path);
                Err(e.into())
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size of a file while it is written.
    pub fn size(&self, name: &str) -> Option<u64> {
        let found = statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        u64::try_from(found.st_size).ok()
    }

    /// A file that the program wrote, of at most `most` bytes.
    pub fn open(&self, name: &str, most: u64) -> Result<OutputFile, OutputFault> {
        let found = statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(fault)?;
        // Opening a device may do something.
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(OutputFault::NotRegular);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.folder, name, flags, Mode::empty()).map_err(fault)?;
        let file = File::from(file);
        // It may be another one by now.
        let opened = file.metadata().map_err(OutputFault::Unreadable)?;
        if !opened.is_file() {
            return Err(OutputFault::NotRegular);
        }
        if opened.nlink() != 1 {
            return Err(OutputFault::Linked);
        }
        if opened.len() > most {
            return Err(OutputFault::TooLarge(most));
        }
        Ok(file)
    }

    /// Removes it, and waits for that.
    pub fn remove(mut self) {
        remove(&std::mem::take(&mut self.path));
    }
}

fn fault(error: Errno) -> OutputFault {
    match error {
        Errno::NOENT => OutputFault::Missing,
        // A link, and a socket.
        Errno::LOOP | Errno::NXIO => OutputFault::NotRegular,
        other => OutputFault::Unreadable(other.into()),
    }
}

impl Drop for OutputFolder {
    /// Not on a worker: the kernel frees the blocks of big files here.
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.path);
        if path.as_os_str().is_empty() {
            return;
        }
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || remove(&path))),
            Err(_) => remove(&path),
        }
    }
}

/// No call nests deeper for folders in folders: a program may make as many as it likes.
fn remove(path: &Path) {
    let mut tries = 0;
    while let Err(error) = files::remove_tree(path) {
        tries += 1;
        // The supervisor of the program may remove it at the same time.
        if error.kind() == io::ErrorKind::NotFound && tries < MOST_TRIES {
            continue;
        }
        tracing::warn!(%error, path = %path.display(), "a folder of captured files is left");
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn fault_of(folder: &OutputFolder, name: &str) -> String {
        folder.open(name, 10).unwrap_err().to_string()
    }

    #[test]
    fn only_a_regular_file_of_its_own_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let folder = OutputFolder::create(dir.path()).unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("good"), "0123456789").unwrap();
        assert_eq!(
            folder.open("good", 10).unwrap().metadata().unwrap().len(),
            10
        );
        assert_eq!(folder.size("good"), Some(10));

        fs::write(at("big"), "0123456789a").unwrap();
        assert_eq!(fault_of(&folder, "big"), "it has more than 10 bytes");
        assert_eq!(fault_of(&folder, "missing"), "it isn't there");
        symlink("/etc/passwd", at("link")).unwrap();
        symlink(at("good"), at("inner_link")).unwrap();
        symlink("/nonexistent", at("dangling")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), fifo, 0o600.into(), 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for name in ["link", "inner_link", "dangling", "folder", "pipe", "socket"] {
            assert_eq!(fault_of(&folder, name), "it is no regular file", "{name}");
        }
        let foreign = dir.path().join("foreign");
        fs::write(&foreign, "x").unwrap();
        fs::hard_link(&foreign, at("second_name")).unwrap();
        assert_eq!(fault_of(&folder, "second_name"), "it has a second name");
    }

    #[test]
    fn folder_is_private_and_gone_with_all_that_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = OutputFolder::create(dir.path()).unwrap();
        let mode = fs::metadata(folder.path()).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o700);
        let inner = folder.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("file"), "x").unwrap();
        for closed in [inner.as_path(), inner.parent().unwrap(), folder.path()] {
            fs::set_permissions(closed, fs::Permissions::from_mode(0o000)).unwrap();
        }
        drop(folder);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn folder_with_very_deep_folders_is_removed_without_recursion() {
        let dir = tempfile::tempdir().unwrap();
        let folder = OutputFolder::create(dir.path()).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = rustix::fs::open(folder.path(), flags, Mode::empty()).unwrap();
        for _ in 0..6_000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = openat(&at, "d", flags, Mode::empty()).unwrap();
        }
        drop(at);
        // Little room, so that even a short step for each folder would be too much.
        let small = std::thread::Builder::new().stack_size(128 << 10);
        small.spawn(|| folder.remove()).unwrap().join().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn folder_that_was_replaced_is_not_looked_into() {
        let dir = tempfile::tempdir().unwrap();
        let folder = OutputFolder::create(dir.path()).unwrap();
        let (away, foreign) = (dir.path().join("away"), dir.path().join("foreign"));
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join("secret"), "x").unwrap();
        fs::rename(folder.path(), &away).unwrap();
        symlink(&foreign, folder.path()).unwrap();
        assert_eq!(fault_of(&folder, "secret"), "it isn't there");
        drop(folder);
        assert!(foreign.join("secret").exists());
    }
}
