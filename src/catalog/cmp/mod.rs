//! `handler = "cmp"`: programs that describe themselves by the Capability Manifest Protocol. Each
//! intent of a tool's `cmp/capability.json` becomes a tool.

mod folder;
mod intent;
mod template;
mod tools;

use std::path::{Path, PathBuf};

pub use folder::{CmpTool, TOOL_FOLDERS, find, is_tool, read};
pub use intent::{Intent, Kind, Parameter};
pub use template::{Template, is_placeholder_name};
pub use tools::{CmpInvocation, own_name, tools};

use super::cli::{Cli, ProgramKeys};
use crate::config::{self, Section};

/// An intent names its program itself.
const KEYS: ProgramKeys = ProgramKeys {
    command: "cmp_path",
    env: "cmp_env",
};

/// What only this handler has.
#[derive(Debug)]
pub struct Cmp {
    /// One tool's folder, or a folder of such folders. Empty: the folders that CMP names.
    path: Option<PathBuf>,
    /// How its programs run.
    pub program: Cli,
}

impl Cmp {
    pub(super) fn read(s: &mut Section<'_>, manifest: &Path) -> Self {
        let path: Option<String> = s.take("cmp_path");
        let path = path.filter(|path| !path.trim().is_empty());
        Cmp {
            path: path.map(|path| config::expanded_path(&path, manifest)),
            program: Cli::read(s, KEYS),
        }
    }

    /// Where its tools are looked for.
    pub fn places(&self) -> Vec<PathBuf> {
        match &self.path {
            Some(path) => vec![path.clone()],
            None => config::cmp_folders(),
        }
    }

    /// Whether the manifest names the place: then its absence is a mistake.
    pub fn is_named(&self) -> bool {
        self.path.is_some()
    }
}
