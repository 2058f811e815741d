//! The files of a skill with their digests: what clients of MCP verify, and what an index tells.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::document::{Skill, front_matter_of};
use super::{DOCUMENT, folder};
use crate::files;

/// Every client takes a skill with so many files.
const MOST_FILES: usize = 512;
/// And with so many bytes.
pub const MOST_BYTES: u64 = 16 << 20;
/// Manifests that are kept.
const MOST_KEPT: usize = 20_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SkillFiles {
    /// The front-matter of SKILL.md, as it is written there.
    pub frontmatter: Map<String, Value>,
    /// Every file, by its path.
    pub digests: BTreeMap<String, FileDigest>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDigest {
    pub sha256: String,
    pub size: u64,
}

impl FileDigest {
    pub fn of(content: &[u8]) -> Self {
        FileDigest {
            sha256: hex::encode(Sha256::digest(content)),
            size: content.len() as u64,
        }
    }
}

impl SkillFiles {
    /// Whether clients of MCP can load it: a front-matter with the two members that it must have, a
    /// document, and no more than every client takes.
    pub fn is_loadable(&self, name: &str) -> bool {
        let text = |key: &str| self.frontmatter.get(key).and_then(Value::as_str);
        let sizes = self.digests.values().map(|file| file.size);
        text("name") == Some(name)
            && text("description").is_some_and(|text| !text.trim().is_empty())
            && self.digests.contains_key(DOCUMENT)
            && self.digests.len() <= MOST_FILES
            && sizes.fold(0, u64::saturating_add) <= MOST_BYTES
    }
}

/// Manifests of installed skills, made again when a file has changed.
#[derive(Default)]
pub struct Manifests {
    by_folder: Mutex<HashMap<PathBuf, Kept>>,
}

struct Kept {
    stamp: Stamp,
    files: Option<Arc<SkillFiles>>,
}

/// Paths, sizes and times of change.
type Stamp = Vec<(String, u64, Option<SystemTime>)>;

impl Manifests {
    /// The files of a skill. None: clients couldn't load it. Reads files, so it is for threads that
    /// may block.
    pub fn of(&self, skill: &Skill) -> Option<Arc<SkillFiles>> {
        let stamp = stamp(&skill.folder)?;
        if let Some(kept) = self.by_folder.lock().get(&skill.folder)
            && kept.stamp == stamp
        {
            return kept.files.clone();
        }
        let files = read(skill, &stamp).filter(|files| files.is_loadable(&skill.name));
        let files = files.map(Arc::new);
        let mut kept = self.by_folder.lock();
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        let files_of = files.clone();
        kept.insert(
            skill.folder.clone(),
            Kept {
                stamp,
                files: files_of,
            },
        );
        files
    }
}

fn stamp(folder: &Path) -> Option<Stamp> {
    let listed = folder::list(folder).ok()?;
    let mut stamp = Vec::with_capacity(listed.len());
    for file in listed {
        let opened = files::open_beneath(folder, Path::new(&file.path)).ok()?;
        let metadata = opened.metadata().ok()?;
        stamp.push((file.path, metadata.len(), metadata.modified().ok()));
    }
    Some(stamp)
}

fn read(skill: &Skill, stamp: &Stamp) -> Option<SkillFiles> {
    let total = stamp.iter().map(|(_, size, _)| size);
    if stamp.len() > MOST_FILES || total.sum::<u64>() > MOST_BYTES {
        return None;
    }
    let mut digests = BTreeMap::new();
    let mut frontmatter = None;
    for (path, ..) in stamp {
        let content = folder::content(&skill.folder, path, MOST_BYTES).ok()?;
        if path == DOCUMENT {
            frontmatter = front_matter_of(std::str::from_utf8(&content).ok()?);
        }
        digests.insert(path.clone(), FileDigest::of(&content));
    }
    Some(SkillFiles {
        frontmatter: frontmatter?,
        digests,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_follows_the_files_and_a_skill_without_front_matter_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let load = |name: &str| folder::read(&dir.path().join(name)).unwrap();
        write(
            "foo/SKILL.md",
            "---\nname: foo\ndescription: d\nx: [1]\n---\n",
        );
        write("foo/references/r.md", "r");
        write("bare/SKILL.md", "text");
        let (manifests, foo) = (Manifests::default(), load("foo"));
        let first = manifests.of(&foo).unwrap();
        assert_eq!(first.frontmatter["x"], serde_json::json!([1]));
        assert_eq!(first.digests["references/r.md"], FileDigest::of(b"r"));
        assert!(Arc::ptr_eq(&first, &manifests.of(&foo).unwrap()));
        write("foo/references/r.md", "changed");
        let second = manifests.of(&foo).unwrap();
        assert_eq!(
            second.digests["references/r.md"],
            FileDigest::of(b"changed")
        );
        assert!(manifests.of(&load("bare")).is_none());
        std::fs::write(dir.path().join("foo/big"), vec![0; 17 << 20]).unwrap();
        assert!(manifests.of(&foo).is_none());
    }
}
