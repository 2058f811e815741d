//! Which Runfile is meant.

use std::path::{Path, PathBuf};

use crate::catalog::runfile::FILE;
use crate::config::{self, HandlerKind, ManifestFile, Origin};
use crate::error::{Code, Failure};

/// What a command line says about the Runfile.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// A file or its folder; None: the nearest one.
    pub path: Option<PathBuf>,
    pub readonly: bool,
}

/// The Runfile, and the user's own next to it.
#[derive(Debug, PartialEq)]
pub struct Found {
    pub path: PathBuf,
    pub global: Option<PathBuf>,
}

/// Keeps ~/.runfile out.
const NO_GLOBAL: &str = "RUN_NO_GLOBAL_MERGE";

impl Choice {
    pub fn find(&self) -> Result<Found, Failure> {
        let failed = |message: String| Failure::new(Code::InvalidValue, message);
        if let Some(path) = &self.path {
            let path = match path.is_dir() {
                true => path.join(FILE),
                false => path.clone(),
            };
            if !path.is_file() {
                return Err(failed(format!("{}: there is no such file", path.display())));
            }
            let path = std::path::absolute(&path).unwrap_or(path);
            return Ok(Found { path, global: None });
        }
        let home = config::with_home("~/.runfile");
        let home = Some(home).filter(|path| path.is_absolute() && path.is_file());
        let here = std::env::current_dir()
            .map_err(|e| failed("the current folder".to_owned()).because(e))?;
        let merges = std::env::var_os(NO_GLOBAL).is_none_or(|value| value.is_empty());
        match (nearest(&here), home) {
            (Some(path), home) => Ok(Found {
                path,
                global: home.filter(|_| merges),
            }),
            (None, Some(path)) => Ok(Found { path, global: None }),
            (None, None) => {
                let message = format!("no {FILE} in {}, nor in a folder above", here.display());
                Err(failed(message).hint("ati runfile inspect PATH names one"))
            }
        }
    }

    /// A manifest for it, which no folder holds. The Runfile stands for the manifest's file.
    pub fn manifest(&self) -> Result<ManifestFile, Failure> {
        let found = self.find()?;
        let mut provider = toml::Table::new();
        let text = |path: &Path| toml::Value::String(path.to_string_lossy().into_owned());
        provider.insert("runfile".to_owned(), text(&found.path));
        if let Some(global) = &found.global {
            provider.insert("runfile_global".to_owned(), text(global));
        }
        provider.insert("runfile_readonly".to_owned(), self.readonly.into());
        Ok(ManifestFile {
            path: found.path,
            name: "runfile".to_owned(),
            handler: HandlerKind::Runfile,
            provider,
            tools: Vec::new(),
            unknown: Vec::new(),
            origin: Origin::Permanent,
            spec: None,
        })
    }
}

/// In this folder or in one above.
fn nearest(folder: &Path) -> Option<PathBuf> {
    let mut all = folder.ancestors().map(|folder| folder.join(FILE));
    all.find(|path| path.is_file())
}
