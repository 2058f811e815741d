//! The sealed keyring on disk: written, replaced and put back under a lock.

use std::path::{Path, PathBuf};

use tracing::debug;

use super::super::{file_failure, problem_failure};
use super::{as_json, fingerprint};
use crate::error::{Code, Failure};
use crate::files;
use crate::keyring::{self, Entries, SealError, SessionKey};

/// `keyring.enc` and the session key that opens it. The folder is locked for as long as this value
/// lives.
pub struct KeyringFolder {
    dir: PathBuf,
    key: SessionKey,
    _lock: std::fs::File,
}

impl KeyringFolder {
    /// Open the folder, and create it and a session key where they are missing. An existing session
    /// key stays.
    pub fn create(dir: PathBuf) -> Result<Self, Failure> {
        files::create_private_dir(&dir).map_err(|e| failed(&dir, e))?;
        let lock = lock(&dir)?;
        let path = dir.join(".keyring-key");
        let key = match std::fs::read(&path) {
            Ok(text) => parse(&path, &text)?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let key = SessionKey::generate().map_err(sealing)?;
                let text = key.to_base64();
                files::write_atomic(&path, text.as_bytes(), 0o600).map_err(|e| failed(&path, e))?;
                key
            }
            Err(e) => return Err(failed(&path, e)),
        };
        Ok(KeyringFolder {
            dir,
            key,
            _lock: lock,
        })
    }

    /// Open a folder that was bootstrapped before.
    pub fn open(dir: PathBuf) -> Result<Self, Failure> {
        let path = dir.join(".keyring-key");
        for needed in [&path, &dir.join("keyring.enc")] {
            if !needed.exists() {
                return Err(Failure::new(
                    Code::MissingKey,
                    format!(
                        "{} is not there: run 'ati edge bootstrap-keyring' first",
                        needed.display()
                    ),
                ));
            }
        }
        let lock = lock(&dir)?;
        let text = std::fs::read(&path).map_err(|e| failed(&path, e))?;
        Ok(KeyringFolder {
            key: parse(&path, &text)?,
            dir,
            _lock: lock,
        })
    }

    pub fn keyring(&self) -> PathBuf {
        self.dir.join("keyring.enc")
    }

    pub fn session_key(&self) -> PathBuf {
        self.dir.join(".keyring-key")
    }

    pub fn sealed(&self) -> Result<Vec<u8>, Failure> {
        // A roll-back writes this content to a file of the folder's owner, so it must not come from
        // a hard link to a file that only this process may read.
        files::read_unlinked(&self.keyring()).map_err(|e| failed(&self.keyring(), e))
    }

    /// The entries of `keyring.enc`, which the session key of this folder must open.
    pub fn entries(&self) -> Result<Entries, Failure> {
        let opened = keyring::open_with(&self.keyring(), &self.sealed()?, &self.key);
        let keyring = opened.map_err(|problem| problem_failure(Code::MissingKey, &problem))?;
        Ok(keyring.to_entries())
    }

    /// Seal the entries and replace `keyring.enc` atomically. Returns its size in bytes.
    pub fn write(&self, entries: &Entries) -> Result<usize, Failure> {
        let sealed = self.key.seal(&as_json(entries)).map_err(sealing)?;
        self.restore(&sealed)?;
        Ok(sealed.len())
    }

    pub fn restore(&self, sealed: &[u8]) -> Result<(), Failure> {
        let path = self.keyring();
        files::write_atomic(&path, sealed, 0o600).map_err(|e| failed(&path, e))
    }

    pub fn fingerprint(&self, entries: &Entries) -> Result<String, Failure> {
        let entries = entries
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()));
        Ok(fingerprint(&self.key, entries))
    }
}

/// Lock the folder, and remove the temporary files of a command that was killed: under the lock no
/// other command is writing them.
fn lock(dir: &Path) -> Result<std::fs::File, Failure> {
    let path = dir.join(".keyring.lock");
    let lock = files::lock(&path).map_err(|e| failed(&path, e))?;
    let entries = std::fs::read_dir(dir).map_err(|e| failed(dir, e))?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let temporary = name.starts_with(".keyring.enc.") || name.starts_with("..keyring-key.");
        if temporary && name.ends_with(".tmp") {
            debug!("removed {name}, left behind by a command that was killed");
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(lock)
}

fn parse(path: &Path, text: &[u8]) -> Result<SessionKey, Failure> {
    SessionKey::from_base64(text).ok_or_else(|| {
        Failure::new(
            Code::MissingKey,
            format!("{}: not a session key (base64 of 32 bytes)", path.display()),
        )
    })
}

fn failed(path: &Path, error: std::io::Error) -> Failure {
    file_failure(Code::ExecutionFailed, path, error)
}

fn sealing(e: SealError) -> Failure {
    Failure::new(Code::ExecutionFailed, "the keyring can't be sealed").because(e)
}
