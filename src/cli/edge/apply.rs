use std::path::PathBuf;

use tracing::debug;

use super::{as_json, fingerprint};
use crate::error::{Code, Failure};
use crate::files;
use crate::keyring::{Entries, SealError, SessionKey};

/// `keyring.enc` and the key that opens it, in a folder that nobody else changes meanwhile.
pub struct Vault {
    dir: PathBuf,
    key: SessionKey,
    _lock: std::fs::File,
}

impl Vault {
    /// For the first time, or again: a session key that is there stays.
    pub fn create(dir: PathBuf) -> Result<Self, Failure> {
        files::create_private_dir(&dir).map_err(|e| failed(&dir, &e))?;
        let lock = lock(&dir)?;
        let path = dir.join(".keyring-key");
        let key = match std::fs::read(&path) {
            Ok(text) => parse(&path, &text)?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let key = SessionKey::generate().map_err(sealing)?;
                let text = key.to_base64();
                files::write_atomic(&path, text.as_bytes(), 0o600)
                    .map_err(|e| failed(&path, &e))?;
                key
            }
            Err(e) => return Err(failed(&path, &e)),
        };
        Ok(Vault {
            dir,
            key,
            _lock: lock,
        })
    }

    /// One that is there.
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
        let text = std::fs::read(&path).map_err(|e| failed(&path, &e))?;
        Ok(Vault {
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
        // It may be written back, and then it belongs to the folder's owner: it must be no file that only we can read.
        files::read_unlinked(&self.keyring()).map_err(|e| failed(&self.keyring(), &e))
    }

    /// Seal and replace, whole. Says how large it is.
    pub fn write(&self, entries: &Entries) -> Result<usize, Failure> {
        let sealed = self.key.seal(&as_json(entries)).map_err(sealing)?;
        self.restore(&sealed)?;
        Ok(sealed.len())
    }

    pub fn restore(&self, sealed: &[u8]) -> Result<(), Failure> {
        let path = self.keyring();
        files::write_atomic(&path, sealed, 0o600).map_err(|e| failed(&path, &e))
    }

    pub fn fingerprint(&self, entries: &Entries) -> Result<String, Failure> {
        let entries = entries
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()));
        Ok(fingerprint(&self.key, entries))
    }
}

/// Whoever was killed before may have left something behind; nobody else is at work now.
fn lock(dir: &std::path::Path) -> Result<std::fs::File, Failure> {
    let path = dir.join(".keyring.lock");
    let lock = files::lock(&path).map_err(|e| failed(&path, &e))?;
    let entries = std::fs::read_dir(dir).map_err(|e| failed(dir, &e))?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let ours = name.starts_with(".keyring.enc.") || name.starts_with("..keyring-key.");
        if ours && name.ends_with(".tmp") {
            debug!("removed {name}, which somebody left behind");
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(lock)
}

fn parse(path: &std::path::Path, text: &[u8]) -> Result<SessionKey, Failure> {
    SessionKey::from_base64(text).ok_or_else(|| {
        Failure::new(
            Code::MissingKey,
            format!("{}: not a session key (base64 of 32 bytes)", path.display()),
        )
    })
}

fn failed(path: &std::path::Path, e: &std::io::Error) -> Failure {
    Failure::new(Code::ExecutionFailed, format!("{}: {e}", path.display()))
}

fn sealing(e: SealError) -> Failure {
    Failure::new(
        Code::ExecutionFailed,
        format!("the keyring can't be sealed: {e}"),
    )
}
