//! A Runfile with the files that it names by `source`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::parse::{Item, parse};
use super::{Function, Runfile};
use crate::catalog::json_reader::Findings;
use crate::config;
use crate::error::Problem;
use crate::files;

/// Bytes of one file, and files of one Runfile.
const LARGEST: u64 = 1 << 20;
const MOST_FILES: usize = 100;
/// Functions in a row that need each other.
const DEEPEST: usize = 100;
/// The name of a Runfile in its folder.
pub const FILE: &str = "Runfile";

/// Reads a Runfile, or the one of a folder. A function that can't be used is left out, and told.
pub fn load(path: &Path, found: &mut Findings) -> Runfile {
    let path = match path.is_dir() {
        true => path.join(FILE),
        false => path.to_owned(),
    };
    let path = std::path::absolute(&path).unwrap_or(path);
    let mut loader = Loader {
        seen: HashSet::new(),
        found,
    };
    let mut runfile = loader.read(&path, None);
    check_dependencies(&mut runfile, &path, found);
    runfile
}

/// The functions of both; those of `project` win.
pub fn merged(home: Runfile, project: Runfile) -> Runfile {
    let mut all = home;
    all.add(project);
    all
}

struct Loader<'a> {
    seen: HashSet<PathBuf>,
    found: &'a mut Findings,
}

impl Loader<'_> {
    /// `from` is the line that names the file, if one does.
    fn read(&mut self, path: &Path, from: Option<(&Path, u32)>) -> Runfile {
        let mut runfile = Runfile::default();
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        // A file that names itself, in whatever way, is read once.
        if self.seen.len() >= MOST_FILES || !self.seen.insert(real) {
            return runfile;
        }
        let text = files::read_unshared(path, LARGEST)
            .and_then(|text| String::from_utf8(text).map_err(|_| not_utf8()));
        let text = match text {
            Ok(text) => text,
            Err(e) => {
                match from {
                    None => self
                        .found
                        .problems
                        .push(Problem::new(e.to_string()).file(path)),
                    Some((file, line)) => {
                        let message = format!("{}: {e}", path.display());
                        self.found.warnings.push(at(file, line, message));
                    }
                }
                return runfile;
            }
        };
        // Without links, because those keep a confined program out.
        let folder = path.parent().unwrap_or(Path::new("/"));
        let folder = &folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let parsed = parse(&text, folder);
        let told = |(line, message): (u32, String)| at(path, line, message);
        self.found
            .problems
            .extend(parsed.problems.into_iter().map(told));
        self.found
            .warnings
            .extend(parsed.warnings.into_iter().map(told));
        let mut names = HashSet::new();
        for item in parsed.items {
            match item {
                Item::Function(function) => {
                    if !names.insert(function.name.clone()) {
                        let message =
                            format!("'{}' is there twice: this one counts", function.name);
                        self.found.warnings.push(at(path, function.line, message));
                    }
                    runfile.add(Runfile {
                        functions: vec![Arc::new(function)],
                        ..Runfile::default()
                    });
                }
                Item::Assignment(text) => runfile.assignments.push(text),
                Item::Instructions(text) => runfile.instructions.push(text),
                Item::Source { path: named, line } => {
                    let other = folder.join(config::with_home(&named));
                    runfile.add(self.read(&other, Some((path, line))));
                }
            }
        }
        runfile
    }
}

fn not_utf8() -> std::io::Error {
    std::io::Error::other("it is not UTF-8")
}

fn at(file: &Path, line: u32, message: String) -> Problem {
    let mut problem = Problem::new(message).file(file);
    problem.line = Some(line);
    problem
}

/// Leaves out functions whose `@depends` can't be followed.
fn check_dependencies(runfile: &mut Runfile, path: &Path, found: &mut Findings) {
    let faults: Vec<(String, u32, String)> = runfile
        .functions
        .iter()
        .filter_map(|function| {
            let why = order(runfile, function).err()?;
            Some((function.name.clone(), function.line, why))
        })
        .collect();
    for (name, line, why) in faults {
        found
            .problems
            .push(at(path, line, format!("{name}: {why}")));
        runfile.functions.retain(|function| function.name != name);
    }
}

/// The functions that run before this one, each once, those that others need first.
pub(super) fn order<'r>(
    runfile: &'r Runfile,
    function: &'r Function,
) -> Result<Vec<&'r Arc<Function>>, String> {
    fn visit<'r>(
        runfile: &'r Runfile,
        function: &'r Function,
        path: &mut Vec<&'r str>,
        done: &mut Vec<&'r Arc<Function>>,
    ) -> Result<(), String> {
        path.push(&function.name);
        if path.len() > DEEPEST {
            return Err(format!("@depends goes deeper than {DEEPEST}"));
        }
        for name in &function.depends {
            if path.contains(&name.as_str()) {
                return Err(format!("@depends leads back to '{name}'"));
            }
            if done.iter().any(|one| one.name == *name) {
                continue;
            }
            let unknown = || format!("@depends names '{name}', which isn't there");
            let needed = runfile.function(name).ok_or_else(unknown)?;
            visit(runfile, needed, path, done)?;
            done.push(needed);
        }
        path.pop();
        Ok(())
    }
    let mut done = Vec::new();
    visit(runfile, function, &mut Vec::new(), &mut done)?;
    Ok(done)
}
