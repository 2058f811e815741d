//! Credentials in files, for programs that take the path of one: `@{key}` of a manifest.
//!
//! All files are in one folder, which processes lock while they change it. A file is locked as long
//! as a program may read it, so that no other process replaces it by another value meanwhile.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::Once;

use super::Secret;

/// Below the ATI folder.
const FOLDER: &str = ".creds";
/// Of a file while it is written.
const UNFINISHED: &str = ".tmp";

pub struct CredentialFolder {
    path: PathBuf,
    /// What a process that was killed has left is removed once.
    swept: Once,
}

/// A credential in a file. One that is for this use alone is overwritten and removed in the end.
pub struct CredentialFile {
    path: PathBuf,
    /// Locked for readers.
    file: File,
    length: usize,
    is_temporary: bool,
}

impl CredentialFolder {
    pub fn new(ati_dir: &Path) -> Self {
        CredentialFolder {
            path: ati_dir.join(FOLDER),
            swept: Once::new(),
        }
    }

    /// A file with this value. With `lasting` it is the file of that name, which stays; one that
    /// is read under another value just now is left alone. It blocks on the disk.
    pub fn lend(&self, name: &str, value: &Secret, lasting: bool) -> io::Result<CredentialFile> {
        let _turn = self.enter()?;
        self.swept.call_once(|| self.sweep());
        let path = self.path.join(name);
        if lasting && let Some(file) = self.lasting(&path, value)? {
            return Ok(file);
        }
        let name = format!("{name}_{}", uuid::Uuid::new_v4().simple());
        let path = self.path.join(name);
        Ok(CredentialFile {
            file: write(&path, value)?,
            path,
            length: value.expose().len(),
            is_temporary: true,
        })
    }

    /// The folder, locked until the file that is returned is dropped.
    fn enter(&self) -> io::Result<File> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&self.path)?;
        let folder = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
            .open(&self.path)?;
        if folder.metadata()?.permissions().mode() & 0o077 != 0 {
            folder.set_permissions(fs::Permissions::from_mode(0o700))?;
        }
        folder.lock()?;
        Ok(folder)
    }

    /// None where a program reads the file under another value.
    fn lasting(&self, path: &Path, value: &Secret) -> io::Result<Option<CredentialFile>> {
        let length = value.expose().len();
        let lent = |file| CredentialFile {
            path: path.to_owned(),
            file,
            length,
            is_temporary: false,
        };
        if let Some(known) = open(path)? {
            if holds(&known, value)? {
                known.lock_shared()?;
                return Ok(Some(lent(known)));
            }
            match known.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(e)) => return Err(e),
            }
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let unfinished = format!(".{name}.{}{UNFINISHED}", uuid::Uuid::new_v4().simple());
        let unfinished = self.path.join(unfinished);
        let file = write(&unfinished, value)?;
        if let Err(e) = fs::rename(&unfinished, path) {
            let _ = fs::remove_file(&unfinished);
            return Err(e);
        }
        Ok(Some(lent(file)))
    }

    /// Removes what no living process uses: files of calls, and unfinished ones.
    fn sweep(&self) {
        let Ok(all) = fs::read_dir(&self.path) else {
            return;
        };
        for entry in all.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let of_a_call = name.rsplit_once('_').is_some_and(|(_, end)| {
                end.len() == 32 && end.bytes().all(|byte| byte.is_ascii_hexdigit())
            });
            let unfinished = name.starts_with('.') && name.ends_with(UNFINISHED);
            if !of_a_call && !unfinished {
                continue;
            }
            if let Ok(Some(file)) = open(&entry.path())
                && file.try_lock().is_ok()
            {
                let length = file.metadata().map_or(0, |it| it.len());
                overwrite(&entry.path(), usize::try_from(length).unwrap_or(0));
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

impl CredentialFile {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is removed in the end.
    pub fn is_temporary(&self) -> bool {
        self.is_temporary
    }
}

impl Drop for CredentialFile {
    fn drop(&mut self) {
        if self.is_temporary {
            // The supervisor of the program may have removed it already: it still has its content.
            wipe(&self.file, self.length);
            let _ = fs::remove_file(&self.path);
        }
        let _ = self.file.unlock();
    }
}

/// A new file with this value, locked for readers.
fn write(path: &Path, value: &Secret) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create_new(true).mode(0o600);
    let mut file = options.open(path)?;
    let written = file
        .write_all(value.expose())
        .and_then(|()| file.lock_shared());
    match written {
        Ok(()) => Ok(file),
        Err(e) => {
            let _ = fs::remove_file(path);
            Err(e)
        }
    }
}

/// None where there is no such file. A link is an error: it could lead anywhere.
fn open(path: &Path) -> io::Result<Option<File>> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    match opened {
        Ok(file) if file.metadata()?.is_file() => Ok(Some(file)),
        Ok(_) => Err(io::Error::other("it is no regular file")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Whether the file holds this value and only its owner can read it.
fn holds(file: &File, value: &Secret) -> io::Result<bool> {
    let value = value.expose();
    let known = file.metadata()?;
    if known.len() != value.len() as u64 || known.permissions().mode() & 0o777 != 0o600 {
        return Ok(false);
    }
    let mut content = zeroize::Zeroizing::new(Vec::with_capacity(value.len() + 1));
    file.take(value.len() as u64 + 1)
        .read_to_end(&mut content)?;
    Ok(*content == value)
}

fn overwrite(path: &Path, length: usize) {
    let opened = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    if let Ok(file) = opened {
        wipe(&file, length);
    }
}

/// Overwrites it. The zeros go to the disk before the file is removed, or the disk would keep the
/// value.
fn wipe(file: &File, length: usize) {
    let _ = file
        .write_all_at(&vec![0; length], 0)
        .and_then(|()| file.sync_data());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes()).unwrap()
    }

    fn names(folder: &CredentialFolder) -> Vec<String> {
        let all = fs::read_dir(&folder.path).unwrap().flatten();
        let mut names: Vec<String> = all
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn content(file: &CredentialFile) -> String {
        fs::read_to_string(file.path()).unwrap()
    }

    #[test]
    fn lasting_file_is_used_again_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let folder = CredentialFolder::new(dir.path());
        let inode = |file: &CredentialFile| {
            use std::os::unix::fs::MetadataExt as _;
            let about = fs::metadata(file.path()).unwrap();
            assert_eq!(about.permissions().mode() & 0o777, 0o600);
            about.ino()
        };
        let first = folder.lend("key", &secret("one"), true).unwrap();
        let second = folder.lend("key", &secret("one"), true).unwrap();
        assert_eq!(inode(&first), inode(&second));
        assert!(!first.is_temporary());
        drop((first, second));
        assert_eq!(names(&folder), ["key"]);
        let mode = fs::metadata(&folder.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let changed = folder.lend("key", &secret("two"), true).unwrap();
        assert_eq!(content(&changed), "two");
        assert_eq!(names(&folder), ["key"]);
    }

    #[test]
    fn file_in_use_is_not_replaced_by_another_value() {
        let dir = tempfile::tempdir().unwrap();
        let folder = CredentialFolder::new(dir.path());
        let old = folder.lend("key", &secret("old"), true).unwrap();
        // Another process has a folder of its own.
        let other = CredentialFolder::new(dir.path());
        let new = other.lend("key", &secret("new"), true).unwrap();
        assert_eq!((content(&old), content(&new)), ("old".into(), "new".into()));
        assert!(new.is_temporary());
        assert_eq!(names(&folder).len(), 2);
        drop((old, new));
        assert_eq!(names(&folder), ["key"]);
        let new = folder.lend("key", &secret("new"), true).unwrap();
        assert_eq!(new.path(), folder.path.join("key"));
    }

    #[test]
    fn file_for_one_use_is_gone_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = CredentialFolder::new(dir.path());
        let (one, two) = (secret("one"), secret("two"));
        let files = [&one, &two].map(|value| folder.lend("key", value, false).unwrap());
        assert_eq!(files.each_ref().map(content), ["one", "two"]);
        assert!(names(&folder).iter().all(|name| name.starts_with("key_")));
        drop(files);
        assert!(names(&folder).is_empty());
    }

    #[test]
    fn files_of_a_killed_process_are_removed_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let folder = CredentialFolder::new(dir.path());
        let used = folder.lend("key", &secret("used"), false).unwrap();
        let random = uuid::Uuid::new_v4().simple();
        for left in [format!("key_{random}"), format!(".key.{random}.tmp")] {
            fs::write(folder.path.join(left), "left").unwrap();
        }
        fs::write(folder.path.join("other_key"), "lasting").unwrap();
        let next = CredentialFolder::new(dir.path());
        let lent = next.lend("key", &secret("next"), true).unwrap();
        let used_name = used.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(names(&next), ["key", used_name, "other_key"]);
        drop((lent, used));
    }

    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = CredentialFolder::new(dir.path());
        drop(folder.lend("key", &secret("x"), true).unwrap());
        let target = dir.path().join("target");
        fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, folder.path.join("linked")).unwrap();
        assert!(folder.lend("linked", &secret("x"), true).is_err());
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    }
}
