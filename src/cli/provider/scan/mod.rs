//! `ati provider scan`: which programs of this machine are ATIP tools.

mod cache;
mod skip;

use std::collections::{BTreeMap, HashSet};
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use futures::StreamExt as _;
use serde_json::{Value, json};
use tracing::warn;

use super::super::{Format, file_failure, output, runtime};
use crate::catalog::atip::metadata::{Hash, Metadata};
use crate::catalog::atip::registry::{Entry, Registry, moment};
use crate::catalog::atip::{Folders, folders, probe, shim_of};
use crate::catalog::json_reader::Findings;
use crate::config;
use crate::error::{Code, Failure};
use crate::process::binary::{self, Stamp};
use cache::Cache;
use skip::SkipList;

/// Programs that are asked at the same time, for each processor. They mostly wait.
const PER_PROCESSOR: usize = 4;
const MOST_AT_A_TIME: usize = 16;

#[derive(clap::Args)]
pub struct Scan {
    /// A folder to look for programs in, in place of those of PATH; repeatable
    #[arg(long = "path", value_name = "DIR")]
    paths: Vec<PathBuf>,

    /// Run each program that isn't known with --agent, for at most 2 s
    #[arg(long)]
    probe: bool,

    /// Never run programs of this name; a * stands for any text; repeatable
    #[arg(long, value_name = "NAME")]
    skip: Vec<String>,

    /// Write a manifest for each tool in CMP's folders instead: CMP_TOOL_PATH, ~/.cmp/tools,
    /// /usr/local/share/cmp/tools
    #[arg(long, conflicts_with_all = ["paths", "probe", "skip"])]
    pub cmp: bool,
}

/// What a scan has found out.
#[derive(Default)]
struct Outcome {
    tools: BTreeMap<String, Found>,
    /// Programs and folders that aren't used, and why.
    refused: Vec<(PathBuf, String)>,
    probed: usize,
    /// Programs that are known to have no metadata.
    silent: usize,
    /// Programs of the skip list.
    skipped: usize,
    /// Programs that would be asked with `--probe`.
    unknown: usize,
}

struct Found {
    entry: Entry,
    commands: usize,
}

pub fn scan(args: &Scan, asked: Option<Format>) -> Result<u8, Failure> {
    let folders = Folders::of_environment();
    let data = folders.data.clone().ok_or_else(|| {
        let message = "neither XDG_DATA_HOME nor HOME names a folder for the registry";
        Failure::new(Code::InvalidValue, message)
    })?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |e: std::io::Error| file_failure(Code::ExecutionFailed, &path, e)
    };
    for folder in [data.clone(), data.join("tools")] {
        crate::files::create_private_dir(&folder).map_err(failed(&folder))?;
    }
    let (registry_file, cache_file) = (data.join("registry.json"), data.join(cache::FILE));
    let mut cache = Cache::read(&cache_file);
    let known = Registry::read(&registry_file);
    let mut outcome = Outcome::default();
    let programs = programs(&args.paths, &mut outcome);
    let mut scanner = Scanner {
        skip: skip_list(&args.skip),
        folders: &folders,
        known: &known,
        cache: &mut cache,
        data: &data,
        outcome: &mut outcome,
    };
    let unknown = scanner.sort(&programs);
    if args.probe {
        scanner.probe(unknown)?;
    } else {
        scanner.outcome.unknown = unknown.len();
    }
    let registry = merged(&known, &programs, &outcome, &data);
    registry
        .write(&registry_file)
        .map_err(failed(&registry_file))?;
    cache.write(&cache_file).map_err(failed(&cache_file))?;
    output::lines_or_value(
        asked,
        || print(&outcome, &registry_file),
        || to_json(&outcome, &registry_file),
    );
    Ok(0)
}

fn skip_list(added: &[String]) -> SkipList {
    let folder = config::agent_tools("XDG_CONFIG_HOME", ".config");
    let file = folder.map(|folder| folder.join(skip::FILE));
    SkipList::new(added, file.as_deref())
}

/// Executable files by name: the first in PATH, as a shell would find it.
fn programs(paths: &[PathBuf], outcome: &mut Outcome) -> BTreeMap<String, PathBuf> {
    let variable = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = match paths {
        [] => std::env::split_paths(&variable).collect(),
        paths => paths.to_vec(),
    };
    let mut seen = HashSet::new();
    let mut programs = BTreeMap::new();
    for folder in folders {
        // "." in PATH is whatever folder one is in.
        let absolute = match paths.is_empty() {
            true => Some(folder.clone()).filter(|folder| folder.is_absolute()),
            false => std::path::absolute(&folder).ok(),
        };
        let real = absolute.as_ref().and_then(|it| it.canonicalize().ok());
        let (Some(absolute), Some(real)) = (absolute, real) else {
            if !paths.is_empty() {
                outcome.refused.push((folder, "no such folder".to_owned()));
            }
            continue;
        };
        if !seen.insert(real) {
            continue;
        }
        if mode(&absolute).is_some_and(|mode| mode & 0o002 != 0) {
            let why = "every user may write this folder";
            outcome.refused.push((absolute, why.to_owned()));
            continue;
        }
        for entry in std::fs::read_dir(&absolute).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name().into_string();
            let is_program = path.is_file() && mode(&path).is_some_and(|mode| mode & 0o111 != 0);
            if let (Ok(name), true) = (name, is_program) {
                programs.entry(name).or_insert(path);
            }
        }
    }
    programs
}

fn mode(path: &Path) -> Option<u32> {
    path.metadata().ok().map(|file| file.permissions().mode())
}

struct Scanner<'a> {
    skip: SkipList,
    folders: &'a Folders,
    known: &'a Registry,
    cache: &'a mut Cache,
    data: &'a Path,
    outcome: &'a mut Outcome,
}

impl Scanner<'_> {
    /// Takes up what is known without running anything, and gives the programs that aren't known.
    fn sort<'p>(&mut self, programs: &'p BTreeMap<String, PathBuf>) -> Vec<(&'p str, &'p Path)> {
        let mut unknown = Vec::new();
        for (name, path) in programs {
            if let Some(why) = binary::distrust(path) {
                self.refuse(path, why);
                continue;
            }
            let known = self.known.tools.get(name);
            let is_current = known.is_some_and(|entry| entry.is_current(path));
            let is_native = known.is_some_and(|entry| entry.source == "native");
            if is_current && is_native && self.add_file(name, path, self.data_file(name), "native")
            {
                continue;
            }
            // The file of a program that has changed describes what it was.
            let of_package = self.folders.tool(name).filter(|_| !is_native);
            let shim = of_package.or_else(|| shim_of(name, Some(path), self.folders));
            if let Some(shim) = shim {
                self.add_file(name, path, shim, "shim");
            } else if self.cache.is_silent(path) {
                self.outcome.silent += 1;
            } else if self.skip.has(name) {
                self.outcome.skipped += 1;
            } else {
                unknown.push((name.as_str(), path.as_path()));
            }
        }
        unknown
    }

    fn data_file(&self, name: &str) -> PathBuf {
        self.data.join("tools").join(format!("{name}.json"))
    }

    /// Runs programs with `--agent`, several at a time.
    fn probe(&mut self, unknown: Vec<(&str, &Path)>) -> Result<(), Failure> {
        let total = unknown.len();
        let shown = std::io::stderr().is_terminal() && total > 0;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let at_a_time = (processors * PER_PROCESSOR).min(MOST_AT_A_TIME);
        runtime()?.block_on(async {
            let asking = futures::stream::iter(unknown).map(async |(name, path)| {
                let answer = probe::ask(path).await;
                (name, path, answer)
            });
            let mut answers = std::pin::pin!(asking.buffer_unordered(at_a_time));
            while let Some((name, path, answer)) = answers.next().await {
                self.outcome.probed += 1;
                if shown {
                    let done = self.outcome.probed;
                    let _ = write!(std::io::stderr(), "\rasked {done} of {total} programs ");
                }
                self.answered(name, path, answer);
            }
        });
        if shown {
            let _ = write!(std::io::stderr(), "\r{:40}\r", "");
        }
        Ok(())
    }

    fn answered(&mut self, name: &str, path: &Path, answer: Option<String>) {
        let Some(text) = answer else {
            self.cache.add_silent(path);
            self.outcome.silent += 1;
            return;
        };
        let mut found = Findings::default();
        let Some(metadata) = Metadata::parse(&text, &mut found) else {
            self.cache.add_silent(path);
            let why = found.problems.first().map(ToString::to_string);
            let why = format!("its metadata can't be used: {}", why.unwrap_or_default());
            return self.refuse(path, &why);
        };
        let file = self.data_file(name);
        match crate::files::write_atomic(&file, text.as_bytes(), 0o644) {
            Ok(()) => self.add(name, path, &metadata, "native"),
            Err(e) => self.refuse(path, &format!("{}: {e}", file.display())),
        }
    }

    /// Whether the file is metadata of this program.
    fn add_file(&mut self, name: &str, path: &Path, file: PathBuf, source: &str) -> bool {
        let mut found = Findings::default();
        let text = folders::read(&file);
        let metadata = text
            .ok()
            .and_then(|text| Metadata::parse(&text, &mut found));
        let Some(metadata) = metadata else {
            if source != "native" {
                self.refuse(&file, "it is no ATIP metadata: see 'ati provider validate'");
            }
            return false;
        };
        if let Some(hash) = &metadata.hash
            && binary::sha256(path).ok().as_ref() != Some(&hash.0)
        {
            let why = format!("its SHA-256 is not the one that {} is for", file.display());
            self.refuse(path, &why);
            return false;
        }
        self.add(name, path, &metadata, source);
        true
    }

    fn add(&mut self, name: &str, path: &Path, metadata: &Metadata, source: &str) {
        if metadata.name != name {
            let (path, own) = (path.display(), &metadata.name);
            warn!("{path}: it calls itself '{own}'");
        }
        let stamp = path.metadata().ok().map(|file| Stamp::of(&file));
        let now = i128::from(crate::clock::unix_now()) * 1_000_000_000;
        let entry = Entry {
            path: path.to_owned(),
            hash: binary::sha256(path).ok().map(Hash),
            source: source.to_owned(),
            version: Some(metadata.version.clone()),
            size: stamp.map(|stamp| stamp.size),
            modified: stamp.and_then(|stamp| moment(stamp.modified)),
            last_checked: moment(now),
        };
        let commands = metadata.commands.len();
        self.outcome
            .tools
            .insert(name.to_owned(), Found { entry, commands });
    }

    fn refuse(&mut self, path: &Path, why: &str) {
        self.outcome.refused.push((path.to_owned(), why.to_owned()));
    }
}

/// What was found, and what was known of other folders. Programs that are gone, have changed or
/// must not be used any more are left out, with the metadata that was kept of them.
fn merged(
    known: &Registry,
    programs: &BTreeMap<String, PathBuf>,
    outcome: &Outcome,
    data: &Path,
) -> Registry {
    let found = outcome.tools.iter();
    let mut registry = Registry {
        tools: found
            .map(|(name, found)| (name.clone(), found.entry.clone()))
            .collect(),
    };
    for (name, entry) in &known.tools {
        if registry.tools.contains_key(name) {
            continue;
        }
        let looked_at = programs.get(name).is_some_and(|path| *path == entry.path);
        if !looked_at && entry.path.is_file() && binary::distrust(&entry.path).is_none() {
            registry.tools.insert(name.clone(), entry.clone());
        } else if entry.source == "native" && !name.contains('/') {
            let _ = std::fs::remove_file(data.join("tools").join(format!("{name}.json")));
        }
    }
    registry
}

fn to_json(outcome: &Outcome, registry: &Path) -> Value {
    let tools: Vec<Value> = outcome
        .tools
        .iter()
        .map(|(name, Found { entry, commands })| {
            json!({
                "name": name,
                "path": entry.path,
                "version": entry.version,
                "source": entry.source,
                "hash": entry.hash.as_ref().map(Hash::text),
                "commands": commands,
            })
        })
        .collect();
    let refused = outcome.refused.iter();
    let refused: Vec<Value> = refused
        .map(|(path, why)| json!({"path": path, "why": why}))
        .collect();
    json!({
        "registry": registry,
        "tools": tools,
        "refused": refused,
        "probed": outcome.probed,
        "without_metadata": outcome.silent,
        "skipped": outcome.skipped,
        "not_probed": outcome.unknown,
    })
}

fn print(outcome: &Outcome, registry: &Path) {
    let rows = outcome
        .tools
        .iter()
        .map(|(name, Found { entry, commands })| {
            vec![
                name.clone(),
                entry.version.clone().unwrap_or_default(),
                entry.source.clone(),
                commands.to_string(),
                entry.path.display().to_string(),
            ]
        });
    if !outcome.tools.is_empty() {
        output::table(&["TOOL", "VERSION", "SOURCE", "COMMANDS", "PATH"], rows);
    }
    for (path, why) in &outcome.refused {
        output::line(&format!("not used: {}: {why}", path.display()));
    }
    let Outcome {
        probed,
        silent,
        skipped,
        unknown,
        tools,
        ..
    } = outcome;
    output::line(&format!(
        "{} tools; {probed} programs asked, {silent} without metadata, {skipped} in the skip list",
        tools.len(),
    ));
    if *unknown > 0 {
        output::line(&format!(
            "{unknown} programs are not known: --probe asks them"
        ));
    }
    output::line(&format!("registry: {}", registry.display()));
}
