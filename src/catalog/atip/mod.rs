//! `handler = "atip"`: tools that describe themselves with `--agent`, by the Agent Tool
//! Introspection Protocol, and tools that a shim describes.

mod argv;
pub mod folders;
mod load;
pub mod metadata;
pub mod parameter;
pub mod probe;
pub mod registry;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::cli::{Cli, ProgramKeys};
use super::json_reader::Findings;
use crate::config::Section;
use crate::error::Problem;
pub use argv::{Argv, Unsendable};
pub use folders::Folders;
pub(super) use load::load;
pub use load::shim_of;
pub use metadata::{Authentication, Hash, Metadata};

/// The fields of `handler = "atip"`.
#[derive(Debug)]
pub struct Atip {
    pub cli: Cli,
    /// A document in place of what the tool says itself.
    pub metadata: Option<PathBuf>,
    /// The MCP provider that executes those commands which it has as tools.
    pub mcp: Option<String>,
}

/// A leaf command as a tool.
#[derive(Debug, Clone)]
pub struct AtipInvocation {
    /// The provider's program, with the time that this command has.
    pub cli: Cli,
    pub argv: Argv,
    /// The command's words, for listings.
    pub command: String,
    /// Its name without the provider's.
    pub own_name: String,
    /// The only version of the program that may run.
    pub hash: Option<Hash>,
    /// Why it can't be called by a program.
    pub refusal: Option<&'static str>,
    /// The MCP provider that executes it, if it has a tool of the same name.
    pub mcp: Option<String>,
    pub about: Arc<About>,
}

/// What all commands of a tool share.
#[derive(Debug, Default)]
pub struct About {
    /// How the tool is used: its own patterns, and those of the folders for them.
    pub patterns: Vec<Value>,
    pub authentication: Option<Authentication>,
}

impl Atip {
    const KEYS: ProgramKeys = ProgramKeys {
        command: "atip_command",
        env: "atip_env",
    };

    pub(super) fn read(s: &mut Section<'_>) -> Self {
        Atip {
            cli: Cli::read(s, Self::KEYS),
            metadata: s.take("atip_metadata"),
            mcp: s.take("atip_mcp"),
        }
    }

    /// What the tool calls itself: the program's name without its folder.
    pub fn name(&self) -> &str {
        let command = &self.cli.command;
        command.rsplit('/').next().unwrap_or(command)
    }
}

/// Checks a document for `ati provider validate`: metadata, a shim or patterns.
pub fn check(path: &Path, text: &str) -> Findings {
    let mut found = Findings::default();
    match serde_json::from_str::<Value>(text) {
        Ok(document) if is_pattern_file(path, &document) => {
            folders::read_pattern_file(&document, &mut found);
        }
        Ok(document) => {
            let metadata = Metadata::read(&document, &mut found);
            if let Some(metadata) = metadata {
                check_names(path, &metadata, &mut found);
            }
        }
        Err(error) => {
            let problem = Problem::new(format!("it is no JSON: {error}"));
            found.problems.push(problem.file(path));
            return found;
        }
    }
    found.locate(path, text);
    found
}

fn is_pattern_file(path: &Path, document: &Value) -> bool {
    let folder = path.parent().and_then(Path::file_name);
    document.get("atip").is_none()
        && (folder.is_some_and(|it| it == "patterns") || document.get("patterns").is_some())
}

/// A file's name says what it is found by.
fn check_names(path: &Path, metadata: &Metadata, found: &mut Findings) {
    let stem = path
        .file_stem()
        .and_then(|it| it.to_str())
        .unwrap_or_default();
    let folder = path.parent().and_then(Path::file_name);
    let folder = folder.and_then(|it| it.to_str()).unwrap_or_default();
    match folder {
        "sha256" if metadata.hash.as_ref().is_none_or(|hash| hash.0 != stem) => {
            let message = "it has to be 'sha256:' and the file's name: the shim is never used";
            found.problem("binary.hash", message);
        }
        "shims" | "tools" if metadata.name != stem => {
            let message = format!("the file is found as '{stem}', so this name is never used");
            found.warning("name", message);
        }
        _ => {}
    }
}
