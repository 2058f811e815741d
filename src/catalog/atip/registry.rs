//! `registry.json`: the tools that were found. Both of its shapes are read, version 2 is written.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::metadata::Hash;
use crate::process::binary::{self, Stamp};

#[derive(Debug, Clone, Default)]
pub struct Registry {
    /// By name.
    pub tools: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub path: PathBuf,
    pub hash: Option<Hash>,
    /// `native` or `shim`, and what others write.
    pub source: String,
    pub version: Option<String>,
    pub size: Option<u64>,
    /// RFC 3339.
    pub modified: Option<String>,
    pub last_checked: Option<String>,
}

impl Registry {
    /// Empty where the file is missing or no registry: it is only a cache.
    pub fn read(path: &Path) -> Self {
        let text = super::folders::read(path).unwrap_or_default();
        let document: Value = serde_json::from_str(&text).unwrap_or_default();
        let mut registry = Registry::default();
        match &document["tools"] {
            Value::Object(tools) => {
                for (name, value) in tools {
                    registry.insert(name, value);
                }
            }
            Value::Array(tools) => {
                for value in tools {
                    registry.insert(value["name"].as_str().unwrap_or_default(), value);
                }
            }
            _ => {}
        }
        registry
    }

    fn insert(&mut self, name: &str, value: &Value) {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let Some(path) = text("path").map(PathBuf::from) else {
            return;
        };
        if name.is_empty() || !path.is_absolute() {
            return;
        }
        let entry = Entry {
            path,
            hash: value["hash"].as_str().and_then(Hash::parse),
            source: text("source").unwrap_or_default(),
            version: text("version"),
            size: value["size"].as_u64(),
            modified: text("modTime"),
            last_checked: text("lastChecked").or_else(|| text("lastVerified")),
        };
        self.tools.insert(name.to_owned(), entry);
    }

    /// Adds the tools that it doesn't have.
    pub fn add(&mut self, other: Registry) {
        for (name, entry) in other.tools {
            self.tools.entry(name).or_insert(entry);
        }
    }

    pub fn write(&self, path: &Path) -> io::Result<()> {
        let tools: Map<String, Value> = self
            .tools
            .iter()
            .map(|(name, entry)| (name.clone(), entry.to_json()))
            .collect();
        let document = json!({"version": "2", "tools": tools});
        let text = serde_json::to_string_pretty(&document)?;
        crate::files::write_atomic(path, text.as_bytes(), 0o644)
    }
}

impl Entry {
    fn to_json(&self) -> Value {
        let all = [
            ("path", Some(json!(self.path))),
            ("hash", self.hash.as_ref().map(|hash| json!(hash.text()))),
            ("source", Some(json!(self.source))),
            ("version", self.version.as_ref().map(|it| json!(it))),
            ("size", self.size.map(|it| json!(it))),
            ("modTime", self.modified.as_ref().map(|it| json!(it))),
            (
                "lastChecked",
                self.last_checked.as_ref().map(|it| json!(it)),
            ),
        ];
        let there = all
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)));
        Value::Object(there.collect())
    }

    /// Whether the program on disk is the one that was looked at: by size and time, or else by
    /// hash.
    pub fn is_current(&self, program: &Path) -> bool {
        let same = |one: &Path, other: &Path| {
            one == other || one.canonicalize().ok() == other.canonicalize().ok()
        };
        let Ok(file) = program.metadata() else {
            return false;
        };
        if !same(&self.path, program) {
            return false;
        }
        let stamp = Stamp::of(&file);
        let unchanged = self.size == Some(stamp.size)
            && self.modified.is_some()
            && self.modified == moment(stamp.modified);
        unchanged || {
            let hash = self.hash.as_ref();
            hash.is_some_and(|hash| binary::sha256(program).is_ok_and(|now| now == hash.0))
        }
    }
}

/// RFC 3339, of nanoseconds since 1970.
pub fn moment(nanoseconds: i128) -> Option<String> {
    let moment = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).ok()?;
    moment.format(&Rfc3339).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_shapes_are_read_and_the_second_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old.json"), dir.path().join("new.json"));
        let first = json!({"version": "1", "tools": [
            {"name": "gh", "version": "2.45.0", "path": "/usr/bin/gh", "source": "native",
             "discoveredAt": "2026-01-01T00:00:00Z", "lastVerified": "2026-01-02T00:00:00Z",
             "modTime": "2026-01-01T00:00:00Z"},
            {"name": "relative", "path": "bin/x"}, {"path": "/nameless"}, 5,
        ]});
        std::fs::write(&old, first.to_string()).unwrap();
        let registry = Registry::read(&old);
        assert_eq!(registry.tools.keys().collect::<Vec<_>>(), ["gh"]);
        let gh = &registry.tools["gh"];
        assert_eq!(gh.last_checked.as_deref(), Some("2026-01-02T00:00:00Z"));
        registry.write(&new).unwrap();
        assert_eq!(Registry::read(&new).tools, registry.tools);
        let written: Value = serde_json::from_slice(&std::fs::read(&new).unwrap()).unwrap();
        assert_eq!(written["version"], "2");
        assert_eq!(written["tools"]["gh"]["path"], "/usr/bin/gh");
        for broken in ["", "[]", "{\"tools\": 5}", "{"] {
            std::fs::write(&old, broken).unwrap();
            assert!(Registry::read(&old).tools.is_empty());
        }
    }

    #[test]
    fn entry_is_current_while_its_program_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("p");
        std::fs::write(&program, "one").unwrap();
        let stamp = Stamp::of(&program.metadata().unwrap());
        let entry = Entry {
            path: program.clone(),
            hash: Some(Hash(binary::sha256(&program).unwrap())),
            source: "native".into(),
            version: None,
            size: Some(stamp.size),
            modified: moment(stamp.modified),
            last_checked: None,
        };
        assert!(entry.is_current(&program));
        // Another time, the same content.
        let older = Entry {
            modified: None,
            ..entry.clone()
        };
        assert!(older.is_current(&program));
        std::fs::write(&program, "other").unwrap();
        assert!(!entry.is_current(&program) && !older.is_current(&program));
        assert!(!entry.is_current(Path::new("/nonexistent")));
    }
}
