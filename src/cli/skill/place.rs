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

/// Every folder of skills, bad ones included.
pub fn all() -> Vec<Installed> {
    Registry::scan(&config::ati_dir(), &mut Vec::new())
}

/// An installed skill by its name or by that of its folder, bad ones included. Of two skills with
/// the same name it is the one that is used.
pub fn find(name: &str) -> Option<Installed> {
    let mut all = all();
    let named = |one: &Installed| one.skill.as_ref().is_ok_and(|skill| skill.name == name);
    let used = |one: &Installed| named(one) && one.shadowed_by(&all).is_none();
    let in_folder = |one: &Installed| one.folder_name() == Some(name);
    let at = all
        .iter()
        .position(used)
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

    /// Gives all skills their places, and takes other folders out of theirs. Where one can't have
    /// its place, none gets it.
    pub fn commit(self, names: &[String], replaced: &[PathBuf]) -> Result<(), Failure> {
        let folder = folder();
        let mut done: Vec<(PathBuf, PathBuf, Moved)> = Vec::new();
        // No skill's name begins with a dot.
        let aside = |at: usize| self.dir.path().join(format!(".replaced-{at}"));
        let out = replaced.iter().enumerate();
        let out = out.map(|(at, from)| (aside(at), from.clone(), Some(Moved::Out)));
        let placed = names.iter();
        let placed = placed.map(|name| (self.path(name), folder.join(name), None));
        for (staged, target, out) in out.chain(placed) {
            let moved = match out {
                Some(out) => fs::rename(&target, &staged).map(|()| out),
                None => put(&staged, &target),
            };
            match moved {
                Ok(moved) => done.push((staged, target, moved)),
                Err(e) => {
                    for (staged, target, moved) in done.into_iter().rev() {
                        let _ = match moved {
                            Moved::Exchanged => put(&staged, &target).map(|_| ()),
                            Moved::In => fs::rename(&target, &staged),
                            Moved::Out => fs::rename(&staged, &target),
                        };
                    }
                    let failed = super::super::file_failure;
                    return Err(failed(Code::ExecutionFailed, &target, e));
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

/// What was done with a folder, so that it can be undone.
enum Moved {
    /// It got its place.
    In,
    /// An older one that was there changed places with it.
    Exchanged,
    /// It left its place.
    Out,
}

/// Moves a folder to its place. An older one that is there changes places with it.
fn put(staged: &Path, target: &Path) -> io::Result<Moved> {
    match renameat_with(CWD, staged, CWD, target, RenameFlags::NOREPLACE) {
        Ok(()) => return Ok(Moved::In),
        Err(rustix::io::Errno::EXIST) => {}
        // A file system without that flag.
        Err(rustix::io::Errno::INVAL) if fs::symlink_metadata(target).is_err() => {
            fs::rename(staged, target)?;
            return Ok(Moved::In);
        }
        Err(rustix::io::Errno::INVAL) => {}
        Err(e) => return Err(e.into()),
    }
    match renameat_with(CWD, staged, CWD, target, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(Moved::Exchanged),
        Err(rustix::io::Errno::INVAL) => {
            let aside = staged.with_extension("old");
            fs::rename(target, &aside)?;
            if let Err(e) = fs::rename(staged, target) {
                let _ = fs::rename(&aside, target);
                return Err(e);
            }
            fs::rename(&aside, staged)?;
            Ok(Moved::Exchanged)
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
