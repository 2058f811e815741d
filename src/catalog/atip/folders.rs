//! Where ATIP's files are: `agent-tools` in the user's data and configuration folders, and the
//! system's own.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::metadata::{Hash, LARGEST, is_pattern, read_patterns};
use super::registry::Registry;
use crate::catalog::json_reader::{Findings, Object};
use crate::config;

/// What has documents in such a folder.
pub const PARTS: [&str; 3] = ["tools", "shims", "patterns"];
/// Metadata that packages bring.
const SYSTEM: &str = "/usr/share/agent-tools";
/// Files of one folder that are looked at.
const MOST_FILES: usize = 10_000;

/// The folders, those first whose files come before others of the same name.
#[derive(Debug, Clone, Default)]
pub struct Folders {
    /// Where a scan writes what it has found.
    pub data: Option<PathBuf>,
    all: Vec<PathBuf>,
}

impl Folders {
    pub fn of_environment() -> Self {
        let data = config::agent_tools("XDG_DATA_HOME", ".local/share");
        let own = config::agent_tools("XDG_CONFIG_HOME", ".config");
        let all = data.clone().into_iter().chain(own);
        Folders {
            all: all.chain([SYSTEM.into()]).collect(),
            data,
        }
    }

    /// Programs that other scans have found.
    pub fn registry(&self) -> Registry {
        let mut whole = Registry::default();
        for folder in &self.all {
            whole.add(Registry::read(&folder.join("registry.json")));
        }
        whole
    }

    /// Metadata of a tool that a scan has kept, or that a package brings.
    pub fn tool(&self, name: &str) -> Option<PathBuf> {
        self.find("tools", name)
    }

    /// Metadata that was written for a tool which has none.
    pub fn shim(&self, name: &str) -> Option<PathBuf> {
        self.find("shims", name)
    }

    /// As [`Folders::shim`], for one version of a program.
    pub fn shim_by_hash(&self, hash: &Hash) -> Option<PathBuf> {
        self.find("shims/sha256", &hash.0)
    }

    /// Whether there is any shim for one version of a program: only then programs are hashed.
    pub fn has_hashed_shims(&self) -> bool {
        let filled = |folder: &PathBuf| entries(&folder.join("shims/sha256")).next().is_some();
        self.all.iter().any(filled)
    }

    /// Patterns that mention a tool, of all folders. Of two with the same name the first counts.
    pub fn patterns_of(&self, tool: &str) -> Vec<Value> {
        let mut patterns: Vec<Value> = Vec::new();
        for folder in &self.all {
            let mut files: Vec<PathBuf> = json_files(&folder.join("patterns")).collect();
            files.sort();
            for pattern in files.iter().flat_map(|file| patterns_in(file)) {
                let known = patterns.iter().any(|one| one["name"] == pattern["name"]);
                if !known && mentions(&pattern, tool) {
                    patterns.push(pattern);
                }
            }
        }
        patterns
    }

    fn find(&self, part: &str, name: &str) -> Option<PathBuf> {
        if name.is_empty() || name.contains(['/', '\0']) || name.starts_with('.') {
            return None;
        }
        let file = |folder: &PathBuf| folder.join(part).join(format!("{name}.json"));
        self.all.iter().map(file).find(|path| path.is_file())
    }
}

/// The text of a document. Others must not be able to write it.
pub fn read(path: &Path) -> io::Result<String> {
    let text = crate::files::read_unshared(path, LARGEST)?;
    String::from_utf8(text)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

/// Every document in a folder `agent-tools`.
pub fn documents(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let parts = PARTS.iter().map(|part| folder.join(part));
    let parts = parts.chain([folder.join("shims/sha256")]);
    parts.flat_map(|part| json_files(&part))
}

fn json_files(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let is_json = |path: &PathBuf| path.extension().is_some_and(|it| it == "json");
    entries(folder).filter(move |path| is_json(path) && path.is_file())
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.take(MOST_FILES).flatten().map(|entry| entry.path())
}

/// A document with `patterns`, a list of patterns, or one pattern.
pub fn read_pattern_file(document: &Value, found: &mut Findings) -> Vec<Value> {
    match document {
        Value::Array(items) => {
            let each = items.iter().enumerate();
            each.filter(|(index, item)| is_pattern(item, &format!("[{index}]"), found))
                .map(|(_, item)| item.clone())
                .collect()
        }
        Value::Object(members) if members.contains_key("patterns") => {
            let o = Object::open(document, "", found);
            o.map_or_else(Vec::new, |mut o| read_patterns(&mut o, found))
        }
        one => match is_pattern(one, "", found) {
            true => vec![one.clone()],
            false => Vec::new(),
        },
    }
}

fn patterns_in(file: &Path) -> Vec<Value> {
    let document = read(file)
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok());
    let mut found = Findings::default();
    document.map_or_else(Vec::new, |document: Value| {
        read_pattern_file(&document, &mut found)
    })
}

/// Whether a step begins with the tool's name.
fn mentions(pattern: &Value, tool: &str) -> bool {
    let steps = pattern["steps"].as_array().into_iter().flatten();
    let mut commands = steps.filter_map(|step| step["command"].as_str());
    commands.any(|command| command.split_whitespace().next() == Some(tool))
}
