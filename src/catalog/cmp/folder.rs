//! The files of one CMP tool: `cmp/manifest.json` and `cmp/capability.json`, or the same in
//! `.cmp/`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::intent::Intent;
use crate::catalog::json_reader::{Findings, Object};
use crate::error::Problem;
use crate::files;

/// Where a tool's two files are, in its own folder: the first that is there.
pub const TOOL_FOLDERS: [&str; 2] = ["cmp", ".cmp"];
const MANIFEST: &str = "manifest.json";
const CAPABILITY: &str = "capability.json";
/// Bytes of each file.
const LARGEST: u64 = 4 << 20;
/// Characters of `summary`, by the specification.
const LONGEST_SUMMARY: usize = 100;
/// Tools of one folder, and intents of one tool. More are a mistake.
const MOST_TOOLS: usize = 2000;
const MOST_INTENTS: usize = 2000;

/// A tool that describes itself by CMP.
#[derive(Debug)]
pub struct CmpTool {
    pub folder: PathBuf,
    pub domain: String,
    pub name: String,
    pub summary: String,
    pub version: String,
    pub tags: Vec<String>,
    /// Its program, where it says so.
    pub binary: Option<String>,
    /// Programs that it needs.
    pub requires: Vec<String>,
    /// The program that it only describes.
    pub wraps: Option<String>,
    pub intents: Vec<Intent>,
}

impl CmpTool {
    /// The folder of a native tool's own programs, which come before those of PATH.
    pub fn bin(&self) -> Option<PathBuf> {
        let bin = self.folder.join("bin");
        bin.is_dir().then_some(bin)
    }
}

/// Whether the folder is that of one tool.
pub fn is_tool(folder: &Path) -> bool {
    description(folder).is_some()
}

/// The folder with the tool's two files.
fn description(folder: &Path) -> Option<PathBuf> {
    let mut all = TOOL_FOLDERS.iter().map(|name| folder.join(name));
    all.find(|folder| folder.join(MANIFEST).is_file() || folder.join(CAPABILITY).is_file())
}

/// The folders of tools at a place: itself, or those in it, in the order of their names.
pub fn find(place: &Path) -> Result<Vec<PathBuf>, Problem> {
    if is_tool(place) {
        return Ok(vec![place.to_owned()]);
    }
    let entries = std::fs::read_dir(place).map_err(|e| Problem::new(e.to_string()).file(place))?;
    let folders = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut tools: Vec<PathBuf> = folders.filter(|folder| is_tool(folder)).collect();
    tools.sort();
    tools.truncate(MOST_TOOLS);
    Ok(tools)
}

/// Reads one tool. It is None where its files can't be used at all; an intent that can't be used is
/// left out. Every problem has its file and its place.
pub fn read(folder: &Path, found: &mut Findings) -> Option<CmpTool> {
    let Some(description) = description(folder) else {
        let message = format!("there is no cmp/{MANIFEST} in it, and no .cmp/{MANIFEST}");
        found.problems.push(Problem::new(message).file(folder));
        return None;
    };
    let tool = in_file(&description.join(MANIFEST), found, |document, found| {
        about(document, folder, found)
    });
    let wraps = tool.as_ref().and_then(|tool| tool.wraps.clone());
    let intents = in_file(&description.join(CAPABILITY), found, |document, found| {
        Some(intents(document, wraps.as_deref(), found))
    });
    let mut tool = tool?;
    tool.intents = intents?;
    Some(tool)
}

/// Reads one file. What is wrong is told with the file and its line.
fn in_file<T>(
    file: &Path,
    found: &mut Findings,
    read: impl FnOnce(&Value, &mut Findings) -> Option<T>,
) -> Option<T> {
    let text = files::read_unshared(file, LARGEST);
    let text = text.map(|text| String::from_utf8_lossy(&text).into_owned());
    let parsed = match &text {
        Ok(text) => {
            serde_json::from_str(text).map_err(|e| (e.to_string(), u32::try_from(e.line()).ok()))
        }
        Err(e) => Err((e.to_string(), None)),
    };
    let document: Value = match parsed {
        Ok(document) => document,
        Err((message, line)) => {
            let mut problem = Problem::new(message).file(file);
            problem.line = line.filter(|line| *line > 0);
            found.problems.push(problem);
            return None;
        }
    };
    let mut own = Findings::default();
    let read = read(&document, &mut own);
    own.locate(file, &text.unwrap_or_default());
    found.problems.extend(own.problems);
    found.warnings.extend(own.warnings);
    read
}

fn about(document: &Value, folder: &Path, found: &mut Findings) -> Option<CmpTool> {
    let mut o = Object::open(document, "", found)?;
    // By the specification these are required; a tool without one of them still works.
    let wanted = |key: &'static str, o: &mut Object<'_>, found: &mut Findings| {
        let text = o.text(key, found);
        if text.as_deref().is_none_or(|text| text.trim().is_empty()) {
            found.warning(key, "the specification requires it");
        }
        text.unwrap_or_default()
    };
    let domain = wanted("domain", &mut o, found);
    let name = wanted("name", &mut o, found);
    let summary = wanted("summary", &mut o, found);
    let version = wanted("version", &mut o, found);
    let length = summary.chars().count();
    if length > LONGEST_SUMMARY {
        let message = format!("it has {length} characters, at most {LONGEST_SUMMARY} are allowed");
        found.warning("summary", message);
    }
    let wraps = o.text("wraps", found).filter(|it| !it.trim().is_empty());
    let is_adapter = o.flag("adapter", found).unwrap_or(false);
    if is_adapter && wraps.is_none() {
        found.warning("wraps", "an adapter names the program that it wraps");
    }
    let tool = CmpTool {
        // Without links, because those keep a confined program out.
        folder: folder.canonicalize().unwrap_or_else(|_| folder.to_owned()),
        domain,
        name,
        summary,
        version,
        tags: o.texts("tags", found),
        binary: o.text("binary", found),
        requires: o.texts("requires", found),
        wraps,
        intents: Vec::new(),
    };
    o.finish(found);
    Some(tool)
}

fn intents(document: &Value, wraps: Option<&str>, found: &mut Findings) -> Vec<Intent> {
    let Some(mut o) = Object::open(document, "", found) else {
        return Vec::new();
    };
    if o.get("intents").is_none() {
        found.problem("intents", "it is missing");
    }
    let mut all = o.objects("intents", found);
    if all.is_empty() && found.problems.is_empty() {
        found.warning("intents", "there is none, so that the tool can do nothing");
    }
    if all.len() > MOST_INTENTS {
        let message = format!("there are {}, at most {MOST_INTENTS} are read", all.len());
        found.warning("intents", message);
        all.truncate(MOST_INTENTS);
    }
    o.finish(found);
    let read = all.into_iter().map(|o| Intent::read(o, wraps, found));
    read.collect::<Vec<_>>().into_iter().flatten().collect()
}
