//! Atomic writes, private folders, locks, reads that can neither block nor fill the memory, and
//! reads that follow no link.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// Bytes of a file that people write: manifests, settings, certificates, lists of keys.
const LARGEST: u64 = 16 << 20;

/// Opens a file for reading. Anything but a regular file is an error: opening a pipe that no
/// process writes to would block for good, and a device may have no end.
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is no regular file"))
    }
}

/// A whole file of at most 16 MiB.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_at_most(path, LARGEST)
}

/// A whole file of at most `limit` bytes.
pub fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_limited(open(path)?, limit)
}

/// As [`read_at_most`], for a file that says what is run: others must not be able to write it.
pub fn read_unshared(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    if is_shared(&file.metadata()?) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, SHARED));
    }
    read_limited(file, limit)
}

/// Whether every user may write a file.
pub fn is_shared(file: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    file.mode() & 0o002 != 0
}

/// Why such a file isn't used.
pub const SHARED: &str = "every user may write it, so it isn't used";

fn read_limited(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(limit + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        let message = format!("it has more than {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(content)
}

/// A whole text file of at most 16 MiB.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

/// A regular file below `root`. No link leads out of the folder, and neither does `..`.
pub fn open_beneath(root: &Path, relative: &Path) -> io::Result<File> {
    let folder = File::open(root)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let file = match openat2(&folder, relative, flags, Mode::empty(), resolve) {
        Ok(file) => File::from(file),
        // A sandbox around ati may not know the call.
        Err(Errno::NOSYS | Errno::PERM) => open_checked(root, relative)?,
        Err(Errno::XDEV | Errno::LOOP) => {
            return Err(io::Error::other("it leads out of its folder"));
        }
        Err(e) => return Err(e.into()),
    };
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is no regular file"))
    }
}

/// The same with the calls that every kernel has.
fn open_checked(root: &Path, relative: &Path) -> io::Result<File> {
    let real = root.join(relative).canonicalize()?;
    match relative.is_relative() && real.starts_with(root.canonicalize()?) {
        true => open(&real),
        false => Err(io::Error::other("it leads out of its folder")),
    }
}

/// The whole content of a file below `root`, of at most `limit` bytes.
pub fn read_beneath(root: &Path, relative: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_limited(open_beneath(root, relative)?, limit)
}

/// Replaces `path` by `content`: readers see the whole old file or the whole new one, with this
/// mode from the first byte on.
pub fn write_atomic(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let temporary = temporary_path(path);
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

/// Writes a new file, and the folders above it. It has its name only once it is whole, and a failed
/// write leaves nothing.
pub fn write_new_from(path: &Path, content: &mut impl Read, mode: u32) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir)?;
    // Without the file's own name, which may be as long as a name can be.
    let temporary = temporary_path(&dir.join("upload"));
    let result = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&temporary)?;
        keep_owner(&file, path, dir);
        io::copy(content, &mut file)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// Where root writes into another user's folder, the file gets the owner of the file that it
/// replaces, or of the folder; a process that isn't root can't change owners. Only for a file that
/// was just created here: the other user could have put a link to any file in its place.
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

fn temporary_path(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", uuid::Uuid::new_v4().simple()));
    path.with_file_name(name)
}

/// Creates a folder that only its owner may enter, and the folders above it.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

/// A new temporary folder that only its owner may enter, from the moment it is there.
pub fn private_temporary_dir(prefix: &str) -> io::Result<PathBuf> {
    let made = tempfile::Builder::new()
        .prefix(prefix)
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir()?;
    Ok(made.keep())
}

/// Removes a folder with everything in it, also where folders below it are closed to their owner or
/// nested deeper than a path can be: what is in a subfolder is moved up before that is removed. No
/// link is followed. One that isn't there is as good as removed.
pub fn remove_tree(root: &Path) -> io::Result<()> {
    match fs::remove_dir(root) {
        Ok(()) => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(_) => {}
    }
    if !fs::symlink_metadata(root)?.is_dir() {
        return fs::remove_file(root);
    }
    loop {
        open_to_owner(root)?;
        let mut is_empty = true;
        for entry in fs::read_dir(root)? {
            let entry = entry?;
            is_empty = false;
            let path = entry.path();
            if !entry.file_type()?.is_dir() {
                fs::remove_file(&path)?;
            } else if fs::remove_dir(&path).is_err() {
                move_up(&path, root)?;
                fs::remove_dir(&path)?;
            }
        }
        if is_empty {
            return fs::remove_dir(root);
        }
    }
}

/// Moves the subfolders of a folder to `root`, and removes the rest of what is in it.
fn move_up(folder: &Path, root: &Path) -> io::Result<()> {
    open_to_owner(folder)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            // Moving it changes its `..`.
            open_to_owner(&path)?;
            fs::rename(&path, root.join(uuid::Uuid::new_v4().to_string()))?;
        } else {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

fn open_to_owner(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
}

/// Holds an exclusive lock for as long as the returned file lives, so that two processes don't
/// overwrite each other's changes.
pub fn lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Root locks in other users' folders. They may have put a link to a foreign file there, or a
    // pipe without a reader, on which opening would block.
    options
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = match options.clone().create_new(true).open(path) {
        Ok(file) => {
            let dir = path.parent().unwrap_or(Path::new("."));
            keep_owner(&file, Path::new(""), dir);
            file
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            options.open(path).map_err(explain_link)?
        }
        Err(e) => return Err(e),
    };
    file.lock()?;
    Ok(file)
}

/// The content of this file, without following a link: for files that root reads in another user's
/// folder and writes back there.
pub fn read_unlinked(path: &Path) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mut content = Vec::new();
    let mut file = options.open(path).map_err(explain_link)?;
    file.read_to_end(&mut content)?;
    Ok(content)
}

/// The system's message for a refused link is about too many levels of links.
fn explain_link(e: io::Error) -> io::Error {
    if e.raw_os_error() == Some(libc::ELOOP) {
        io::Error::other("it is a link, and must be a file")
    } else {
        e
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_a_sane_size_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("file"), "text").unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        assert_eq!(read_text(&path("link")).unwrap(), "text");
        assert_eq!(read_at_most(&path("file"), 4).unwrap(), b"text");
        assert_eq!(
            read_at_most(&path("file"), 3).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path("pipe"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        for other in [path("pipe"), dir.path().to_path_buf(), "/dev/zero".into()] {
            let error = read(&other).unwrap_err();
            assert_eq!(error.to_string(), "it is no regular file", "{other:?}");
        }
        fs::write(path("binary"), [0xff]).unwrap();
        assert!(read_text(&path("binary")).is_err());
    }

    #[test]
    fn tree_is_removed_however_deep_it_is_and_links_stay_what_they_lead_to() {
        let dir = tempfile::tempdir().unwrap();
        let (root, kept) = (dir.path().join("root"), dir.path().join("kept"));
        for folder in [&root, &kept] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(kept.join("file"), "").unwrap();
        let made = std::process::Command::new("mkdir")
            .args(["-p", &"a/".repeat(5000), "b/c/d"])
            .current_dir(&root)
            .status();
        assert!(made.unwrap().success());
        fs::write(root.join("b/c/file"), "x").unwrap();
        std::os::unix::fs::symlink(&kept, root.join("b/c/link")).unwrap();
        std::os::unix::fs::symlink(&kept, root.join("link")).unwrap();
        fs::set_permissions(root.join("b/c"), fs::Permissions::from_mode(0o000)).unwrap();
        remove_tree(&root).unwrap();
        assert!(!root.exists() && kept.join("file").exists());
        remove_tree(&root).unwrap();
        std::os::unix::fs::symlink(&kept, &root).unwrap();
        remove_tree(&root).unwrap();
        assert!(!root.is_symlink() && kept.join("file").exists());
    }

    #[test]
    fn failed_write_leaves_the_old_file_and_no_temporary_one() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("folder");
        fs::create_dir(&target).unwrap();
        // A folder can't be replaced by a file: the rename fails after the temporary was written.
        assert!(write_atomic(&target, b"x", 0o600).is_err());
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 1);
    }

    #[test]
    fn replaced_file_has_the_given_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        write_atomic(&path, b"one", 0o600).unwrap();
        write_atomic(&path, b"two", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn lock_through_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("lock"));
        fs::write(&target, "theirs").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(lock(&link).unwrap_err().to_string().contains("a link"));
        assert!(read_unlinked(&link).is_err());
        assert_eq!(read_unlinked(&target).unwrap(), b"theirs");
        // A dangling link creates no file.
        fs::remove_file(&target).unwrap();
        assert!(lock(&link).is_err());
        assert!(!target.exists());
    }

    #[test]
    fn only_a_new_lock_file_changes_its_owner() {
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
    fn target_of_a_replaced_link_does_not_decide_the_owner() {
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
