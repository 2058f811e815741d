//! The folder of installed skills. A skill appears in it whole, or not at all.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::TempDir;

use crate::config;
use crate::error::{Code, Failure};
use crate::files;
use crate::skills::{FOLDER, Installed, Registry, is_skill_name};

/// Folders of installations in progress begin like this.
const STAGING: &str = ".install-";
const LOCK: &str = ".skills.lock";

pub fn folder() -> PathBuf {
    config::ati_dir().join(FOLDER)
}

/// Refuses a name that can't be the name of a folder.
pub fn check_name(name: &str) -> Result<&str, Failure> {
    match is_skill_name(name) {
        true => Ok(name),
        false => Err(Failure::invalid(format!(
            "'{name}' is no name for a skill: lower-case letters, digits and single hyphens \
             between them, at most 64 characters"
        ))),
    }
}

/// An installed skill by its name or by that of its folder, bad ones included.
pub fn find(name: &str) -> Option<Installed> {
    let mut all = Registry::scan(&config::ati_dir(), &mut Vec::new());
    let named = |one: &Installed| one.skill.as_ref().is_ok_and(|skill| skill.name == name);
    let in_folder = |one: &Installed| one.path.file_name().is_some_and(|own| own == name);
    let at = all
        .iter()
        .position(named)
        .or_else(|| all.iter().position(in_folder))?;
    Some(all.swap_remove(at))
}

/// New skills on their way to their places. What isn't committed is removed when this is dropped.
pub struct Staging {
    dir: TempDir,
    /// Held to the end: one command changes the folder at a time.
    _lock: File,
}

impl Staging {
    pub fn open() -> Result<Self, Failure> {
        let folder = folder();
        let failed = |e| super::super::file_failure(Code::ExecutionFailed, &folder, e);
        files::create_private_dir(&folder).map_err(failed)?;
        let lock = files::lock(&config::ati_dir().join(LOCK)).map_err(failed)?;
        sweep(&folder);
        let dir = tempfile::Builder::new().prefix(STAGING).tempdir_in(&folder);
        Ok(Staging {
            dir: dir.map_err(failed)?,
            _lock: lock,
        })
    }

    /// Where a skill is written to before it gets its place.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Gives all skills their places. Where one can't have it, none gets it.
    pub fn commit(self, names: &[String]) -> Result<(), Failure> {
        let folder = folder();
        let mut done: Vec<(&str, bool)> = Vec::new();
        for name in names {
            let (staged, target) = (self.path(name), folder.join(name));
            match put(&staged, &target) {
                Ok(replaced) => done.push((name, replaced)),
                Err(e) => {
                    for (name, replaced) in done.into_iter().rev() {
                        let (staged, target) = (self.path(name), folder.join(name));
                        let _ = match replaced {
                            true => put(&staged, &target).map(|_| ()),
                            false => fs::rename(&target, &staged),
                        };
                    }
                    return Err(super::super::file_failure(
                        Code::ExecutionFailed,
                        &target,
                        e,
                    ));
                }
            }
        }
        Ok(())
    }

    /// Takes an installed skill out of its place; it is removed with this.
    pub fn take(&self, target: &Path) -> io::Result<()> {
        fs::rename(target, self.dir.path().join("removed"))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Folders that are closed to their owner too.
        let _ = files::remove_tree(self.dir.path());
    }
}

/// Moves a folder to its place. An older one that is there changes places with it: true.
fn put(staged: &Path, target: &Path) -> io::Result<bool> {
    match renameat_with(CWD, staged, CWD, target, RenameFlags::NOREPLACE) {
        Ok(()) => return Ok(false),
        Err(rustix::io::Errno::EXIST) => {}
        // A file system without that flag.
        Err(rustix::io::Errno::INVAL) if fs::symlink_metadata(target).is_err() => {
            fs::rename(staged, target)?;
            return Ok(false);
        }
        Err(rustix::io::Errno::INVAL) => {}
        Err(e) => return Err(e.into()),
    }
    match renameat_with(CWD, staged, CWD, target, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::INVAL) => {
            let aside = staged.with_extension("old");
            fs::rename(target, &aside)?;
            if let Err(e) = fs::rename(staged, target) {
                let _ = fs::rename(&aside, target);
                return Err(e);
            }
            fs::rename(&aside, staged)?;
            Ok(true)
        }
        Err(e) => Err(e.into()),
    }
}

/// Removes what a command left that was killed. The lock is held: none is in progress.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(STAGING.as_bytes())
        {
            let _ = files::remove_tree(&entry.path());
        }
    }
}
