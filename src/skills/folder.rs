//! The files of a skill's folder. Nothing outside of the folder is read, wherever links lead.

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::document::{Fault, Skill};
use super::{DOCUMENT, METADATA, REFERENCES};
use crate::files;

/// Bytes of a document; agents read them whole.
const LONGEST_DOCUMENT: u64 = 1 << 20;
const LONGEST_METADATA: u64 = 1 << 20;
/// Bytes of all files of a skill.
pub const LARGEST: u64 = 32 << 20;
const MOST_FILES: usize = 5_000;
const DEEPEST: usize = 32;

/// A regular file of a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillFile {
    /// Below the folder, with slashes.
    pub path: String,
    pub executable: bool,
}

/// The content of a skill's files, by their paths.
#[derive(Debug, PartialEq)]
pub struct Bundled {
    pub files: Map<String, Value>,
    pub bytes: u64,
}

/// Why the files of a skill can't be given out.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    #[error("its folder is gone")]
    Gone,
    #[error("it has more than {} MiB of files", LARGEST >> 20)]
    TooLarge,
    #[error("it has more than {MOST_FILES} files")]
    TooMany,
    #[error("{path}: {error}")]
    File { path: String, error: io::Error },
}

impl BundleError {
    fn file(path: &str, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::FileTooLarge => BundleError::TooLarge,
            io::ErrorKind::NotFound if path.is_empty() => BundleError::Gone,
            _ => BundleError::File {
                path: path.to_owned(),
                error,
            },
        }
    }
}

/// The skill in a folder.
pub fn read(folder: &Path) -> Result<Skill, Fault> {
    let document = optional(folder, DOCUMENT, LONGEST_DOCUMENT)?;
    let metadata = match optional(folder, METADATA, LONGEST_METADATA)? {
        None => None,
        Some(bytes) => {
            let text = String::from_utf8(bytes);
            Some(text.map_err(|_| Fault::Metadata("it is not UTF-8".to_owned()))?)
        }
    };
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let skill = Skill::parse(&name, document.as_deref(), metadata.as_deref())?;
    Ok(Skill {
        folder: folder.to_path_buf(),
        ..skill
    })
}

fn optional(folder: &Path, name: &str, limit: u64) -> Result<Option<Vec<u8>>, Fault> {
    match files::read_beneath(folder, Path::new(name), limit) {
        Ok(content) => Ok(Some(content)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Fault::Unreadable(format!("{name}: {e}"))),
    }
}

/// Whether a folder has one of the files of a skill.
pub fn is_skill(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).symlink_metadata().is_ok();
    has(DOCUMENT) || has(METADATA)
}

/// All files, in the order of their paths. A link counts where it leads to a file of the same
/// folder, as mounted configuration has it. What git keeps about itself is left out.
pub fn list(folder: &Path) -> Result<Vec<SkillFile>, BundleError> {
    let mut found = Vec::new();
    let mut left = VecDeque::from([(PathBuf::new(), 0)]);
    while let Some((below, depth)) = left.pop_front() {
        let shown = below.to_string_lossy().into_owned();
        let failed = |e| BundleError::file(&shown, e);
        for entry in std::fs::read_dir(folder.join(&below)).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            // A name that isn't text can't be a key of JSON.
            let Some(name) = name.to_str().filter(|name| !is_left_out(name)) else {
                continue;
            };
            let path = below.join(name);
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() {
                if depth < DEEPEST {
                    left.push_back((path, depth + 1));
                }
                continue;
            }
            let opened = match kind.is_file() || kind.is_symlink() {
                true => files::open_beneath(folder, &path),
                false => continue,
            };
            let Ok(metadata) = opened.and_then(|file| file.metadata()) else {
                continue;
            };
            found.push(SkillFile {
                path: path.to_string_lossy().into_owned(),
                executable: metadata.permissions().mode() & 0o100 != 0,
            });
            if found.len() > MOST_FILES {
                return Err(BundleError::TooMany);
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn is_left_out(name: &str) -> bool {
    name == ".git" || name.starts_with("..")
}

/// The content of one file, of at most `room` bytes.
pub fn content(folder: &Path, path: &str, room: u64) -> Result<Vec<u8>, BundleError> {
    files::read_beneath(folder, Path::new(path), room).map_err(|e| BundleError::file(path, e))
}

/// Every file with its content: text as it is, anything else as base64.
pub fn bundle(folder: &Path) -> Result<Bundled, BundleError> {
    let mut bundled = Bundled {
        files: Map::new(),
        bytes: 0,
    };
    for file in list(folder)? {
        let content = content(folder, &file.path, LARGEST - bundled.bytes)?;
        bundled.bytes += content.len() as u64;
        let value = match String::from_utf8(content) {
            Ok(text) => Value::String(text),
            Err(e) => json!({"base64": STANDARD.encode(e.as_bytes())}),
        };
        bundled.files.insert(file.path, value);
    }
    Ok(bundled)
}

/// The names of the documents below `references/`.
pub fn references(folder: &Path) -> Vec<String> {
    let below = format!("{REFERENCES}/");
    let files = list(folder).unwrap_or_default().into_iter();
    files
        .filter_map(|file| Some(file.path.strip_prefix(&below)?.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_out_of_the_folder_are_no_files_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("skill/references/deep")).unwrap();
        fs::create_dir_all(at("skill/.git")).unwrap();
        fs::write(at("secret"), "secret").unwrap();
        fs::write(at("skill/SKILL.md"), "text").unwrap();
        fs::write(at("skill/.git/config"), "").unwrap();
        fs::write(at("skill/references/deep/a.md"), "a").unwrap();
        fs::write(at("skill/blob"), [0xff, 0]).unwrap();
        symlink(at("secret"), at("skill/absolute")).unwrap();
        symlink("../secret", at("skill/relative")).unwrap();
        symlink("..", at("skill/folder")).unwrap();
        symlink("SKILL.md", at("skill/inside")).unwrap();
        symlink("loop", at("skill/loop")).unwrap();
        let bundled = bundle(&at("skill")).unwrap();
        assert_eq!(
            Value::Object(bundled.files),
            json!({
                "SKILL.md": "text",
                "blob": {"base64": "/wA="},
                "inside": "text",
                "references/deep/a.md": "a",
            })
        );
        assert_eq!(references(&at("skill")), ["deep/a.md"]);
        for path in [
            "absolute",
            "relative",
            "../secret",
            "/etc/passwd",
            "folder/secret",
        ] {
            assert!(content(&at("skill"), path, 100).is_err(), "{path}");
        }
        assert!(matches!(bundle(&at("absent")), Err(BundleError::Gone)));
    }

    #[test]
    fn document_that_is_a_link_out_of_the_folder_is_a_fault() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("skill")).unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        symlink("../secret", dir.path().join("skill/SKILL.md")).unwrap();
        let fault = read(&dir.path().join("skill")).unwrap_err();
        assert!(matches!(fault, Fault::Unreadable(_)), "{fault}");
    }
}
