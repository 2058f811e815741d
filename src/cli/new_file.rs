//! A file that gets its name when it is complete. Until then it has none, where the file system can
//! do that: whatever ends ati, nothing of it is left.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};

pub struct NewFile {
    file: File,
    target: PathBuf,
    /// Its temporary name, where it needs one.
    named: Option<PathBuf>,
}

impl NewFile {
    /// Begins a file that will be at `target`, in the place of a file that is there. The folders
    /// above it are made.
    pub fn create(target: &Path) -> io::Result<Self> {
        check(target)?;
        let dir = folder_of(target);
        fs::create_dir_all(dir)?;
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let nameless = openat(CWD, dir, flags, Mode::from_raw_mode(0o666));
        let (file, named) = match nameless {
            Ok(file) => (File::from(file), None),
            Err(_) => named(target)?,
        };
        Ok(NewFile {
            file,
            target: target.to_path_buf(),
            named,
        })
    }

    /// Whether it has a name that would stay if ati were killed now.
    pub fn is_named(&self) -> bool {
        self.named.is_some()
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Gives it its name.
    pub fn commit(mut self) -> io::Result<()> {
        // Something else may have come there since.
        check(&self.target)?;
        if let Ok(old) = fs::metadata(&self.target) {
            let mode = old.permissions().mode() & 0o777;
            self.file.set_permissions(Permissions::from_mode(mode))?;
        }
        let temporary = match self.named.clone() {
            Some(temporary) => temporary,
            None => {
                if self.link(&self.target).is_ok() {
                    return Ok(());
                }
                // A link can't replace a file, and a rename can.
                let temporary = temporary_name(&self.target);
                self.link(&temporary)?;
                self.named = Some(temporary.clone());
                temporary
            }
        };
        fs::rename(&temporary, &self.target)?;
        self.named = None;
        Ok(())
    }

    fn link(&self, name: &Path) -> io::Result<()> {
        let nameless = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        linkat(CWD, nameless, CWD, name, AtFlags::SYMLINK_FOLLOW)?;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.named {
            let _ = fs::remove_file(temporary);
        }
    }
}

fn named(target: &Path) -> io::Result<(File, Option<PathBuf>)> {
    let temporary = temporary_name(target);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file: OwnedFd = openat(CWD, &temporary, flags, Mode::from_raw_mode(0o666))?;
    Ok((file.into(), Some(temporary)))
}

/// Without the target's own name: with the additions it could be too long.
fn temporary_name(target: &Path) -> PathBuf {
    let name = format!(".ati-{}.tmp", uuid::Uuid::new_v4().simple());
    folder_of(target).join(name)
}

fn folder_of(target: &Path) -> &Path {
    match target.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

/// Whether a file can be there. A folder can't be replaced; a device or a pipe could, and must not.
fn check(target: &Path) -> io::Result<()> {
    let text = target.as_os_str().as_encoded_bytes();
    let is_folder = text.ends_with(b"/") || text.ends_with(b"/.") || target.file_name().is_none();
    let wrong = |what| Err(io::Error::other(what));
    match fs::metadata(target) {
        _ if is_folder => wrong("it is the name of a folder"),
        Ok(there) if there.is_dir() => wrong("there is a folder of that name"),
        Ok(there) if !there.is_file() => wrong("there is something that is no regular file"),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// As it is where the file system has no files without a name.
    fn create_named(target: &Path) -> io::Result<NewFile> {
        let (file, named) = named(target)?;
        let target = target.to_path_buf();
        Ok(NewFile {
            file,
            target,
            named,
        })
    }

    #[test]
    fn file_appears_whole_and_only_when_it_is_complete() {
        for create in [NewFile::create as fn(&Path) -> _, create_named] {
            let dir = tempfile::tempdir().unwrap();
            let target = dir.path().join("new.bin");
            for content in ["one", "two"] {
                let mut new = create(&target).unwrap();
                new.write(content.as_bytes()).unwrap();
                assert_ne!(fs::read_to_string(&target).ok().as_deref(), Some(content));
                new.commit().unwrap();
                assert_eq!(fs::read_to_string(&target).unwrap(), content);
                assert_eq!(names(dir.path()), ["new.bin"]);
            }
            let mut left = create(&target).unwrap();
            left.write(b"three").unwrap();
            drop(left);
            assert_eq!(names(dir.path()), ["new.bin"]);
            assert_eq!(fs::read_to_string(&target).unwrap(), "two");
        }
    }

    #[test]
    fn folders_above_are_made_and_the_old_mode_stays() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a/b/c.txt");
        NewFile::create(&target).unwrap().commit().unwrap();
        fs::set_permissions(&target, Permissions::from_mode(0o600)).unwrap();
        NewFile::create(&target).unwrap().commit().unwrap();
        let mode = fs::metadata(&target).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn link_is_replaced_and_its_target_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (other, link) = (dir.path().join("other"), dir.path().join("link"));
        for exists in [true, false] {
            let _ = fs::remove_file(&link);
            symlink(&other, &link).unwrap();
            fs::write(&other, "old").unwrap();
            if !exists {
                fs::remove_file(&other).unwrap();
            }
            let mut new = NewFile::create(&link).unwrap();
            new.write(b"new").unwrap();
            new.commit().unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_file());
            assert_eq!(other.exists(), exists);
        }
    }

    #[test]
    fn folder_device_and_pipe_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("folder")).unwrap();
        symlink(at("folder"), at("link")).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(CWD, at("pipe"), fifo, 0o600.into(), 0).unwrap();
        let why = |path: &Path| NewFile::create(path).err().unwrap().to_string();
        for name in ["folder", "link"] {
            assert_eq!(why(&at(name)), "there is a folder of that name");
        }
        for path in ["new/", "new/.", "..", "/", "new/..", ""] {
            assert_eq!(why(Path::new(path)), "it is the name of a folder", "{path}");
        }
        for path in [at("pipe"), "/dev/null".into()] {
            assert_eq!(why(&path), "there is something that is no regular file");
        }
        fs::write(at("file"), "x").unwrap();
        assert!(NewFile::create(&at("file/below")).is_err());
        assert_eq!(names(dir.path()), ["file", "folder", "link", "pipe"]);
        // Made a folder while the content came.
        let new = NewFile::create(&at("late")).unwrap();
        fs::create_dir(at("late")).unwrap();
        assert!(new.commit().is_err());
        assert_eq!(names(&at("late")), [""; 0]);
    }
}
