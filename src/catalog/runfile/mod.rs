//! `handler = "runfile"`: functions of a Runfile as tools. A Runfile is a text with functions in a
//! shell, in Python and in other languages; comments above a function say what it does and what it
//! takes.

mod attributes;
mod block;
mod evaluated;
mod evaluated_text;
mod function;
mod load;
mod parse;
mod quote;
mod script;
mod signature;
mod tools;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

pub use attributes::os_allows;
pub use function::{Evaluated, Function, Interpreter, Kind, Parameter};
pub use load::{FILE, load, merged};
pub use parse::{Item, Parsed, parse};
pub use script::{Command, Unfit};
pub use tools::{RunfileInvocation, schema, tools};

use super::cli::{Cli, ProgramKeys};
use crate::config::{self, Section};

/// A function names its interpreter itself.
const KEYS: ProgramKeys = ProgramKeys {
    command: "runfile",
    env: "cli_env",
};

/// What only this handler has.
#[derive(Debug)]
pub struct RunfileProvider {
    pub path: Option<PathBuf>,
    /// Another one, whose functions are there too.
    pub global: Option<PathBuf>,
    /// Offers only functions with `# @safe`.
    pub readonly: bool,
    /// How its functions run.
    pub program: Cli,
    /// What the file says to agents about all of its functions, once it is read.
    pub instructions: OnceLock<String>,
}

impl RunfileProvider {
    pub(super) fn read(s: &mut Section<'_>, manifest: &Path) -> Self {
        let path: Option<String> = s.take("runfile");
        let path = path.filter(|path| !path.trim().is_empty());
        let global: Option<String> = s.take("runfile_global");
        let global = global.filter(|path| !path.trim().is_empty());
        RunfileProvider {
            global: global.map(|path| config::expanded_path(&path, manifest)),
            path: path.map(|path| config::expanded_path(&path, manifest)),
            readonly: s.take("runfile_readonly").unwrap_or(false),
            program: Cli::read(s, KEYS),
            instructions: OnceLock::new(),
        }
    }
}

/// The functions of a Runfile, with those of the files that it names.
#[derive(Debug, Default)]
pub struct Runfile {
    /// In their order; of two with the same name, the later one.
    pub functions: Vec<Arc<Function>>,
    /// Assignments outside of functions, as they are written: every shell function sees them.
    pub assignments: Vec<String>,
    /// `@instructions`: for the agent, about the whole file.
    pub instructions: Vec<String>,
}

impl Runfile {
    pub fn function(&self, name: &str) -> Option<&Arc<Function>> {
        self.functions.iter().find(|one| one.name == name)
    }

    /// Takes over what another file has. Its functions replace those of the same name.
    fn add(&mut self, other: Runfile) {
        for function in other.functions {
            match self
                .functions
                .iter_mut()
                .find(|one| one.name == function.name)
            {
                Some(known) => *known = function,
                None => self.functions.push(function),
            }
        }
        self.assignments.extend(other.assignments);
        self.instructions.extend(other.instructions);
    }
}
