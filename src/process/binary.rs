//! The file of a program: which version of it is there, and its SHA-256.

use std::collections::HashMap;
use std::fs::Metadata;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

/// Hashes that are kept. A server has a few programs; a scan hashes each file once.
const MOST_KEPT: usize = 1000;

/// Tells one version of a file from another one without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub size: u64,
    /// Since 1970, in nanoseconds.
    pub modified: i128,
    changed: i128,
    device: u64,
    inode: u64,
}

impl Stamp {
    pub fn of(file: &Metadata) -> Self {
        let nanoseconds =
            |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        Stamp {
            size: file.size(),
            modified: nanoseconds(file.mtime(), file.mtime_nsec()),
            changed: nanoseconds(file.ctime(), file.ctime_nsec()),
            device: file.dev(),
            inode: file.ino(),
        }
    }
}

static KEPT: LazyLock<Mutex<HashMap<PathBuf, (Stamp, String)>>> = LazyLock::new(Mutex::default);

/// The SHA-256 of a file, in hexadecimal. A file is read once for each of its versions, whatever
/// its size: to be called where waiting for the disk does no harm.
pub fn sha256(path: &Path) -> io::Result<String> {
    let mut file = crate::files::open(path)?;
    let stamp = Stamp::of(&file.metadata()?);
    if let Some((known, hash)) = KEPT.lock().get(path)
        && *known == stamp
    {
        return Ok(hash.clone());
    }
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => digest.update(&buffer[..read]),
        }
    }
    let hash = hex::encode(digest.finalize());
    // A file that was written to meanwhile has no hash that could be kept.
    if Stamp::of(&file.metadata()?) == stamp {
        let mut kept = KEPT.lock();
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(path.to_owned(), (stamp, hash.clone()));
    }
    Ok(hash)
}

/// Why a program must not be run unasked, if it must not: another user could have put it there, or
/// it would run with other rights.
pub fn distrust(path: &Path) -> Option<&'static str> {
    const EVERYONE: u32 = 0o002;
    const SET_ID: u32 = 0o6000;
    let real = path.canonicalize().ok()?;
    let mode = |path: &Path| path.metadata().ok().map(|file| file.permissions().mode());
    let own = mode(&real)?;
    if own & EVERYONE != 0 {
        return Some("every user may write it");
    }
    if own & SET_ID != 0 {
        return Some("it runs with the rights of another user or group");
    }
    let folders = [path.parent(), real.parent()];
    let open = |folder: &Path| mode(folder).is_some_and(|mode| mode & EVERYONE != 0);
    if folders.into_iter().flatten().any(open) {
        return Some("every user may write its folder");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn hash_is_that_of_the_version_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p");
        fs::write(&file, "abc").unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&file).unwrap(), abc);
        assert_eq!(sha256(&file).unwrap(), abc);
        fs::write(&file, "abd").unwrap();
        assert_ne!(sha256(&file).unwrap(), abc);
        assert!(sha256(dir.path()).is_err());
    }

    #[test]
    fn program_that_others_may_write_is_distrusted() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p");
        fs::write(&file, "").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        for (own, folder, expected) in [
            (0o755, 0o755, false),
            (0o757, 0o755, true),
            (0o4755, 0o755, true),
            (0o755, 0o777, true),
            (0o755, 0o1777, true),
        ] {
            set(&file, own).unwrap();
            set(dir.path(), folder).unwrap();
            assert_eq!(distrust(&file).is_some(), expected, "{own:o} {folder:o}");
        }
    }
}
