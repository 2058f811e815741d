//! What is known about where an installed skill came from, and digests of its files:
//! `[ati.integrity]` in its `skill.toml`.

use std::collections::BTreeMap;
use std::path::Path;

use sha2::{Digest, Sha256};
use toml::{Table, Value};

use super::folder::{self, BundleError};
use super::{DOCUMENT, METADATA};

/// What the section of the file begins with.
const SECTION: &str = "[ati.integrity";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Integrity {
    /// SHA-256 of `SKILL.md`, in hex.
    pub content_hash: Option<String>,
    pub source_url: Option<String>,
    pub pinned_sha: Option<String>,
    /// SHA-256 of each file. Of `skill.toml`, of the part that the skill itself brought.
    pub files: BTreeMap<String, String>,
}

/// How a file differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Added,
    Modified,
    Removed,
}

impl Change {
    pub fn letter(self) -> char {
        match self {
            Change::Added => 'A',
            Change::Modified => 'M',
            Change::Removed => 'D',
        }
    }
}

impl Integrity {
    pub fn of(table: &Table) -> Self {
        let section = table.get("ati").and_then(|ati| ati.get("integrity"));
        let text = |key: &str| {
            let value = section.and_then(|section| section.get(key));
            value.and_then(Value::as_str).map(str::to_owned)
        };
        let files = section.and_then(|section| section.get("files"));
        let files = files.and_then(Value::as_table).into_iter().flatten();
        Integrity {
            content_hash: text("content_hash"),
            source_url: text("source_url"),
            pinned_sha: text("pinned_sha"),
            files: files
                .filter_map(|(path, hash)| Some((path.clone(), hash.as_str()?.to_owned())))
                .collect(),
        }
    }

    /// The digests of what is in a folder now.
    pub fn measure(folder: &Path) -> Result<Self, BundleError> {
        let mut files = BTreeMap::new();
        let mut room = folder::LARGEST;
        for file in folder::list(folder)? {
            let mut content = folder::content(folder, &file.path, room)?;
            room -= content.len() as u64;
            if file.path == METADATA {
                let own = without_section(&String::from_utf8_lossy(&content));
                if own.trim().is_empty() {
                    continue;
                }
                content = own.into_bytes();
            }
            files.insert(file.path, sha256(&content));
        }
        Ok(Integrity {
            content_hash: files.get(DOCUMENT).cloned(),
            files,
            ..Integrity::default()
        })
    }

    /// The text of a `skill.toml` with this section in the place of one that it has.
    pub fn write_into(&self, text: &str) -> String {
        let mut own = without_section(text);
        if !own.is_empty() && !own.ends_with('\n') {
            own.push('\n');
        }
        let mut lines = vec!["[ati.integrity]".to_owned()];
        for (key, value) in [
            ("content_hash", &self.content_hash),
            ("source_url", &self.source_url),
            ("pinned_sha", &self.pinned_sha),
        ] {
            if let Some(value) = value {
                lines.push(format!("{key} = {}", Value::String(value.clone())));
            }
        }
        if !self.files.is_empty() {
            lines.push("\n[ati.integrity.files]".to_owned());
            for (path, hash) in &self.files {
                lines.push(format!("{} = \"{hash}\"", Value::String(path.clone())));
            }
        }
        let section = lines.join("\n");
        match own.as_str() {
            "" => format!("{section}\n"),
            own => format!("{own}\n{section}\n"),
        }
    }

    /// What differs in `now`. Where only the document was recorded, only that is compared.
    pub fn changes(&self, now: &Integrity) -> Vec<(Change, String)> {
        if self.files.is_empty() {
            let same = self.content_hash.is_none() || self.content_hash == now.content_hash;
            let change = match now.content_hash {
                Some(_) => Change::Modified,
                None => Change::Removed,
            };
            return match same {
                true => Vec::new(),
                false => vec![(change, DOCUMENT.to_owned())],
            };
        }
        let mut changes = Vec::new();
        for (path, hash) in &self.files {
            match now.files.get(path) {
                None => changes.push((Change::Removed, path.clone())),
                Some(other) if other != hash => changes.push((Change::Modified, path.clone())),
                Some(_) => {}
            }
        }
        let added = now
            .files
            .keys()
            .filter(|path| !self.files.contains_key(*path));
        changes.extend(added.map(|path| (Change::Added, path.clone())));
        changes.sort_by(|a, b| a.1.cmp(&b.1));
        changes
    }
}

/// The part of a `skill.toml` that isn't `[ati.integrity]`.
pub fn without_section(text: &str) -> String {
    let mut own = String::new();
    let mut inside = false;
    for line in text.split_inclusive('\n') {
        let start = line.trim_start();
        if start.starts_with('[') {
            inside = start.starts_with(SECTION);
        }
        if !inside {
            own.push_str(line);
        }
    }
    let end = own.trim_end_matches(['\n', '\r']).len();
    // The line break in front of the section is the section's.
    match own.len() - end {
        0 => own,
        _ => format!("{}\n", &own[..end]),
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_is_replaced_and_the_rest_stays_as_it_is() {
        let own = "# mine\n[skill]\nname = 'x' # why\ntools = [\n 'a',\n]\n";
        let first = Integrity {
            content_hash: Some("aa".into()),
            source_url: Some("https://h/\"x".into()),
            pinned_sha: None,
            files: [("scripts/a b.sh".to_owned(), "bb".to_owned())].into(),
        };
        let written = first.write_into(own);
        assert!(written.starts_with(own), "{written}");
        assert_eq!(Integrity::of(&written.parse().unwrap()), first);
        assert_eq!(without_section(&written), own);
        let second = Integrity {
            content_hash: Some("cc".into()),
            ..Integrity::default()
        };
        let again = second.write_into(&written);
        assert_eq!(Integrity::of(&again.parse().unwrap()), second);
        assert_eq!(without_section(&again), own);
        assert_eq!(
            Integrity::of(&second.write_into("").parse().unwrap()),
            second
        );
    }

    #[test]
    fn one_changed_byte_of_any_file_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("SKILL.md", "text");
        write("a.sh", "echo a");
        write("skill.toml", "[skill]\nname = 'x'\n");
        let before = Integrity::measure(dir.path()).unwrap();
        write("skill.toml", &before.write_into("[skill]\nname = 'x'\n"));
        let changes = || before.changes(&Integrity::measure(dir.path()).unwrap());
        assert_eq!(changes(), []);
        write("a.sh", "echo b");
        assert_eq!(changes(), [(Change::Modified, "a.sh".to_owned())]);
        write("new", "");
        std::fs::remove_file(dir.path().join("SKILL.md")).unwrap();
        write("skill.toml", &before.write_into("[skill]\nname = 'y'\n"));
        let letters: Vec<char> = changes()
            .iter()
            .map(|(change, _)| change.letter())
            .collect();
        assert_eq!(letters, ['D', 'M', 'A', 'M']);
    }

    #[test]
    fn skill_of_an_older_ati_is_compared_by_its_document_alone() {
        let old = Integrity {
            content_hash: Some(sha256(b"text")),
            ..Integrity::default()
        };
        let now = |text: &[u8]| Integrity {
            content_hash: Some(sha256(text)),
            files: [("x".to_owned(), "y".to_owned())].into(),
            ..Integrity::default()
        };
        assert_eq!(old.changes(&now(b"text")), []);
        assert_eq!(
            old.changes(&now(b"Text")),
            [(Change::Modified, "SKILL.md".to_owned())]
        );
    }
}
