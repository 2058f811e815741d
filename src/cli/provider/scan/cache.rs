//! What programs answered when they were asked, so that none is asked twice. It is ati's own file
//! next to the registry, which has no place for programs that are no ATIP tools.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::process::binary::{self, Stamp};

pub const FILE: &str = "x-ati-scan.json";
/// Bytes of the file: a machine has some thousand programs.
const LARGEST: u64 = 64 << 20;

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Cache {
    /// Programs without metadata, by path.
    silent: BTreeMap<PathBuf, Silent>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Silent {
    size: u64,
    /// Since 1970, in nanoseconds.
    modified: i128,
    hash: String,
}

impl Cache {
    pub fn read(path: &Path) -> Self {
        let text = crate::files::read_at_most(path, LARGEST).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Writes it without programs that are gone.
    pub fn write(&mut self, path: &Path) -> io::Result<()> {
        self.silent.retain(|program, _| program.is_file());
        let text = serde_json::to_string(self)?;
        crate::files::write_atomic(path, text.as_bytes(), 0o644)
    }

    /// Whether this version of the program was asked, and had no metadata. By size and time, or
    /// else by hash.
    pub fn is_silent(&mut self, program: &Path) -> bool {
        let Some(known) = self.silent.get_mut(program) else {
            return false;
        };
        let Ok(file) = program.metadata() else {
            return false;
        };
        let stamp = Stamp::of(&file);
        if known.size != stamp.size {
            return false;
        }
        if known.modified == stamp.modified {
            return true;
        }
        let same = binary::sha256(program).is_ok_and(|hash| hash == known.hash);
        if same {
            known.modified = stamp.modified;
        }
        same
    }

    pub fn add_silent(&mut self, program: &Path) {
        let (Ok(file), Ok(hash)) = (program.metadata(), binary::sha256(program)) else {
            return;
        };
        let stamp = Stamp::of(&file);
        let silent = Silent {
            size: stamp.size,
            modified: stamp.modified,
            hash,
        };
        self.silent.insert(program.to_owned(), silent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_known_by_its_content_and_not_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let (program, file) = (dir.path().join("p"), dir.path().join(FILE));
        std::fs::write(&program, "one").unwrap();
        let mut cache = Cache::default();
        assert!(!cache.is_silent(&program));
        cache.add_silent(&program);
        cache.write(&file).unwrap();
        let mut cache = Cache::read(&file);
        assert!(cache.is_silent(&program));
        // The same content, at another time.
        std::fs::write(&program, "one").unwrap();
        assert!(cache.is_silent(&program));
        std::fs::write(&program, "two").unwrap();
        assert!(!cache.is_silent(&program));
        std::fs::remove_file(&program).unwrap();
        cache.write(&file).unwrap();
        assert!(Cache::read(&file).silent.is_empty());
    }
}
