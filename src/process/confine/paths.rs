//! What a confined program may open, as Landlock rules. Landlock only allows: what must stay closed
//! below an open folder makes that folder be opened entry by entry.

use std::fs::{Metadata, OpenOptions, read_dir};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use landlock::{
    Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::super::sandbox::Confinement;
use super::kernel::{LEAST, NEWEST};

/// Programs, libraries, and what the kernel tells about itself. Another process's `environ`, `mem`
/// and `fd` below /proc stay closed: for those Landlock asks whether the other one is confined
/// alike.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/proc",
    "/sys",
];
/// Opened but for what only some users may read.
const SETTINGS: &str = "/etc";
const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];

/// How the names of what ati makes for calls in the folder for temporary files begin.
const OF_CALLS: &[&str] = &["ati-", ".ati-"];

pub struct Rules {
    ruleset: RulesetCreated,
    closed: Vec<PathBuf>,
    /// The folder in which the folders of other calls are closed, now and later.
    temporary: Option<PathBuf>,
}

/// What the program may open, as rules that aren't in force yet.
pub fn rules(program: &Path, confinement: &Confinement) -> Result<Rules, String> {
    let read = AccessFs::from_read(NEWEST);
    let all = AccessFs::from_all(NEWEST);
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(LEAST))
        .map(|rules| rules.set_compatibility(CompatLevel::BestEffort))
        .and_then(|rules| rules.handle_access(all))
        // Signals to ati, and sockets without a file.
        .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .map_err(|e| format!("Landlock: {e}"))?;
    let mut rules = Rules {
        ruleset,
        closed: confinement.closed.clone(),
        temporary: confinement.temporary.clone(),
    };
    let sandbox = &confinement.sandbox;
    for path in SYSTEM.iter().map(Path::new) {
        rules.open_if_there(path, read)?;
    }
    rules.open_settings(Path::new(SETTINGS))?;
    for path in DEVICES.iter().map(Path::new) {
        rules.open_if_there(path, all)?;
    }
    let written = sandbox.write.iter().map(|path| (path, all));
    for (path, access) in sandbox.read.iter().map(|path| (path, read)).chain(written) {
        if access == all {
            // Opened entry by entry, it could not be written.
            rules.temporary = None;
        }
        let found = find(path)?;
        // A program that may write there could have put a link to anything in its place.
        if found.path != *path {
            let (path, real) = (path.display(), found.path.display());
            return Err(format!("{path} leads through a link to {real}"));
        }
        rules.open_tree(found, access)?;
    }
    // What ati itself has made or found is open wherever it lies.
    rules.closed = Vec::new();
    rules.temporary = None;
    rules.open_tree(find(program)?, read)?;
    for path in &confinement.read {
        rules.open_tree(find(path)?, read)?;
    }
    for path in &confinement.write {
        rules.open_tree(find(path)?, all)?;
    }
    Ok(rules)
}

impl Rules {
    /// From now on this process can open nothing else.
    pub fn enforce(self) -> Result<(), String> {
        let status = self.ruleset.restrict_self();
        let status = status.map_err(|e| format!("Landlock: {e}"))?;
        match status.ruleset {
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
            RulesetStatus::NotEnforced => Err("Landlock: the rules are not in force".to_owned()),
        }
    }

    fn open_if_there(&mut self, path: &Path, access: BitFlags<AccessFs>) -> Result<(), String> {
        match open(path) {
            Ok(found) => self.open_tree(found, access),
            Err(_) => Ok(()),
        }
    }

    /// Allows access to a file, or to a folder and all below it but what is closed.
    fn open_tree(&mut self, found: Found, access: BitFlags<AccessFs>) -> Result<(), String> {
        if self
            .closed
            .iter()
            .any(|closed| found.path.starts_with(closed))
            || self.is_of_a_call(&found.path)
        {
            return Ok(());
        }
        if !self
            .closed
            .iter()
            .chain(&self.temporary)
            .any(|closed| closed.starts_with(&found.path))
        {
            return self.add(&found, access);
        }
        for path in entries(&found.path) {
            // A link leads to what is opened where it lies.
            if path.symlink_metadata().is_ok_and(|it| !it.is_symlink()) {
                self.open_if_there(&path, access)?;
            }
        }
        Ok(())
    }

    fn is_of_a_call(&self, path: &Path) -> bool {
        let Some(temporary) = &self.temporary else {
            return false;
        };
        let below = path.strip_prefix(temporary).ok();
        let name = below.and_then(|below| below.iter().next()?.to_str());
        name.is_some_and(|name| OF_CALLS.iter().any(|start| name.starts_with(start)))
    }

    /// `/etc`: root's program could read root's files there.
    fn open_settings(&mut self, folder: &Path) -> Result<(), String> {
        let mut open_entries = Vec::new();
        if !self.is_public(folder, &mut open_entries) {
            for path in open_entries {
                self.open_if_there(&path, AccessFs::from_read(NEWEST))?;
            }
        } else {
            self.open_if_there(folder, AccessFs::from_read(NEWEST))?;
        }
        // A link out of it, as /etc/resolv.conf may be.
        for path in entries(folder) {
            let is_link = path.symlink_metadata().is_ok_and(|it| it.is_symlink());
            let public_file = |it: Metadata| it.is_file() && is_readable_by_all(&it);
            if is_link && path.metadata().is_ok_and(public_file) {
                self.open_if_there(&path, AccessFs::from_read(NEWEST))?;
            }
        }
        Ok(())
    }

    /// Whether all in this folder may be read by every user, and none of it is closed. Otherwise
    /// adds those of its entries that are like this.
    fn is_public(&self, folder: &Path, open: &mut Vec<PathBuf>) -> bool {
        let mut whole = true;
        let mut own = Vec::new();
        for entry in read_dir(folder).into_iter().flatten().flatten() {
            // Of a link, the link's own.
            let Ok(found) = entry.metadata() else {
                continue;
            };
            let path = entry.path();
            let public = match () {
                () if found.is_symlink() => continue,
                () if self.closed.contains(&path) || !is_readable_by_all(&found) => false,
                () if found.is_dir() => self.is_public(&path, open),
                () => true,
            };
            whole &= public;
            if public {
                own.push(path);
            }
        }
        if !whole {
            open.extend(own);
        }
        whole
    }

    fn add(&mut self, found: &Found, access: BitFlags<AccessFs>) -> Result<(), String> {
        let access = if found.is_folder {
            access
        } else {
            access & AccessFs::from_file(NEWEST)
        };
        let rule = PathBeneath::new(&found.descriptor, access);
        let added = (&mut self.ruleset).add_rule(rule);
        added
            .map(drop)
            .map_err(|e| format!("Landlock, {}: {e}", found.path.display()))
    }
}

/// A file or folder that was found, and can't become another one.
struct Found {
    descriptor: OwnedFd,
    /// Without links.
    path: PathBuf,
    is_folder: bool,
}

/// A path of the manifest or of the call: it has to be there.
fn find(path: &Path) -> Result<Found, String> {
    open(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn open(path: &Path) -> io::Result<Found> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)?;
    Ok(Found {
        path: std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()))?,
        is_folder: opened.metadata()?.is_dir(),
        descriptor: opened.into(),
    })
}

/// Of a folder that can't be read, none.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

fn is_readable_by_all(entry: &Metadata) -> bool {
    let needed = if entry.is_dir() { 0o005 } else { 0o004 };
    entry.mode() & needed == needed
}
