//! `[provider.cli_sandbox]`: what a confined program may reach, and what it takes of the kernel.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// What one provider's programs may reach. Reading the system's own folders is always allowed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sandbox {
    /// Files, and folders with all that is below them. Absolute.
    pub read: Vec<PathBuf>,
    /// As `read`, and these may be written too.
    pub write: Vec<PathBuf>,
    /// Whether it may open sockets.
    pub net: bool,
    /// Of processor time, for each process.
    pub cpu_seconds: Option<u64>,
    /// Of address space, for each process.
    pub memory_bytes: Option<u64>,
    /// At a time, the program itself included.
    pub processes: Option<u64>,
    /// The longest file that it may write.
    pub file_bytes: Option<u64>,
}

impl Default for Sandbox {
    fn default() -> Self {
        Sandbox {
            read: Vec::new(),
            write: Vec::new(),
            net: true,
            cpu_seconds: None,
            memory_bytes: None,
            processes: None,
            file_bytes: None,
        }
    }
}

impl Sandbox {
    /// Why this path must not be opened to a program, if it must not.
    pub fn fault_of(&self, path: &Path) -> Option<&'static str> {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let closed = closed();
        if closed.iter().any(|closed| real.starts_with(closed)) {
            return Some("it holds ati's own settings and keys, which no program may read");
        }
        let written = self.write.iter().any(|written| written == path);
        if written && closed.iter().any(|closed| closed.starts_with(&real)) {
            return Some("ati's own settings and keys are below it, which no program may write");
        }
        None
    }
}

/// A sandbox with what one call adds to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Confinement {
    pub sandbox: Sandbox,
    /// What the call itself made for the program: its working folder, files with credentials. Open
    /// even where they lie in a closed folder.
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
    /// Never open, wherever they are.
    pub closed: Vec<PathBuf>,
    /// ati's folder for temporary files, without links.
    pub temporary: Option<PathBuf>,
}

impl Confinement {
    pub fn new(sandbox: Sandbox, read: Vec<PathBuf>, write: Vec<PathBuf>) -> Self {
        Confinement {
            sandbox,
            read,
            write,
            closed: closed(),
            temporary: std::env::temp_dir().canonicalize().ok(),
        }
    }
}

/// Where packages put the settings of a server.
const ALWAYS_CLOSED: &[&str] = &["/etc/ati", "/run/ati"];

/// Paths that confined programs never reach. It only grows: what once held a key stays closed.
static CLOSED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Closes these files and folders to confined programs, from now on.
pub fn close_to_programs(paths: impl IntoIterator<Item = PathBuf>) {
    let absolute = paths
        .into_iter()
        .filter_map(|path| std::path::absolute(path).ok());
    CLOSED.lock().extend(absolute);
}

/// As they are named and as they are once links are followed.
fn closed() -> Vec<PathBuf> {
    let named: BTreeSet<PathBuf> = CLOSED.lock().clone();
    let always = ALWAYS_CLOSED.iter().map(PathBuf::from);
    let mut all: BTreeSet<PathBuf> = named.into_iter().chain(always).collect();
    let real: Vec<PathBuf> = all.iter().filter_map(|it| it.canonicalize().ok()).collect();
    all.extend(real);
    all.into_iter().collect()
}
