//! What a program gets for one call: variables, files with credentials, a folder.

use std::io;
use std::path::PathBuf;

use tokio::task::spawn_blocking;
use zeroize::Zeroizing;

use super::{CliError, Surroundings, Value};
use crate::catalog::cli::Cli;
use crate::exec::ExecContext;
use crate::files;
use crate::keyring::CredentialFile;
use crate::process;

/// The files and the folder are removed when it is dropped, which blocks on the disk.
pub struct Equipment {
    /// All variables.
    pub env: Vec<(String, Zeroizing<String>)>,
    files: Vec<CredentialFile>,
    /// The call's own.
    own_folder: Option<OwnFolder>,
    /// The manifest's.
    given_folder: Option<PathBuf>,
}

impl Equipment {
    pub async fn prepare(
        cli: &Cli,
        env: &[(String, Value)],
        context: ExecContext<'_>,
    ) -> Result<Self, CliError> {
        let mut equipment = Equipment {
            env: process::program_environment(),
            files: Vec::new(),
            own_folder: None,
            given_folder: cli.folder.clone(),
        };
        for (name, value) in env {
            let value = match value {
                Value::Text(text) => text.clone(),
                Value::File {
                    key,
                    credential,
                    lasting,
                } => {
                    let folder = context.runtime.credential_files.clone();
                    let (file, credential, lasting) = (key.clone(), credential.clone(), *lasting);
                    let lent = blocking(move || folder.lend(&file, &credential, lasting)).await;
                    let file = lent.map_err(|e| CliError::CredentialFile {
                        key: key.clone(),
                        why: e.to_string(),
                    })?;
                    let path = file.path().to_string_lossy().into_owned();
                    equipment.files.push(file);
                    Zeroizing::new(path)
                }
            };
            equipment.env.push((name.clone(), value));
        }
        if context.surroundings == Surroundings::Isolated && equipment.given_folder.is_none() {
            let made = blocking(OwnFolder::make).await;
            let made = made.map_err(|e| CliError::Folder(e.to_string()))?;
            equipment.own_folder = Some(made);
        }
        Ok(equipment)
    }

    /// Drops it where that may wait for the disk.
    pub async fn remove(self) {
        let _ = spawn_blocking(move || drop(self)).await;
    }

    /// Where the program starts; None for this process's own folder.
    pub fn folder(&self) -> Option<PathBuf> {
        self.given_folder.clone().or_else(|| self.own_folder())
    }

    pub fn own_folder(&self) -> Option<PathBuf> {
        Some(self.own_folder.as_ref()?.0.clone())
    }

    /// The files with credentials.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.files.iter().map(|file| file.path().to_owned())
    }

    /// What is removed when the program is gone, even if ati is killed.
    pub fn temporary(&self) -> impl Iterator<Item = PathBuf> {
        let files = self.files.iter().filter(|file| file.is_temporary());
        let files = files.map(|file| file.path().to_owned());
        files.chain(self.own_folder())
    }
}

/// A temporary folder that only its owner may enter. It is removed when it is dropped.
struct OwnFolder(PathBuf);

impl OwnFolder {
    fn make() -> io::Result<Self> {
        files::private_temporary_dir("ati-call-").map(OwnFolder)
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // The supervisor of the program has mostly done so.
        let _ = files::remove_tree(&self.0);
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(io::Error::other(e)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn folder_of_a_call_is_open_to_its_owner_only() {
        let folder = OwnFolder::make().unwrap();
        let mode = folder.0.metadata().unwrap().mode();
        assert_eq!(mode & 0o7777, 0o700);
    }
}
