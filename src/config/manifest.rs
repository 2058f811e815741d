//! Manifest files, as far as every handler needs them: in the order of their names, each with its
//! provider's table.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::HandlerKind;
use crate::error::{Intro, Problem};

pub struct ManifestFile {
    pub path: PathBuf,
    pub name: String,
    pub handler: HandlerKind,
    /// The `[provider]` table, name and handler included.
    pub provider: Table,
    /// The `[[tools]]`, in their order.
    pub tools: Vec<Table>,
    /// The other keys at the top level of the file.
    pub unknown: Vec<String>,
    pub origin: Origin,
    /// The OpenAPI document of a provider that has no file for it.
    pub spec: Option<String>,
}

pub const LONGEST_PROVIDER_NAME: usize = 64;

/// Whether a name can be the name of a file, and can't lead to another folder.
pub fn is_provider_name(name: &str) -> bool {
    let harmless = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !name.is_empty()
        && name.len() <= LONGEST_PROVIDER_NAME
        && !name.starts_with('.')
        && name.chars().all(harmless)
}

/// Where a provider comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Permanent,
    /// Made by `ati provider load`.
    Cached {
        remaining_seconds: u64,
    },
}

#[cfg(test)]
impl ManifestFile {
    pub fn from_text(path: &str, text: &str) -> Self {
        parse(Path::new(path), text).unwrap()
    }
}

/// `<ati_dir>/manifests/*.toml` and the cached providers. The problems of all files are reported.
pub fn read_manifests(ati_dir: &Path, problems: &mut Vec<Problem>) -> Vec<ManifestFile> {
    let mut found = Vec::new();
    for path in list(&ati_dir.join("manifests"), problems) {
        match read(&path) {
            Ok(manifest) => found.push(manifest),
            Err(problem) => problems.push(problem.file(&path)),
        }
    }
    let permanent: Vec<String> = found.iter().map(|manifest| manifest.name.clone()).collect();
    let cached = super::cached::read(ati_dir);
    found.extend(
        cached
            .into_iter()
            .filter(|manifest| !permanent.contains(&manifest.name)),
    );
    found
}

/// One file, in any folder.
pub fn read_manifest(path: &Path) -> Result<ManifestFile, Problem> {
    read(path).map_err(|problem| problem.file(path))
}

fn read(path: &Path) -> Result<ManifestFile, Problem> {
    let text = crate::files::read_text(path)
        .map_err(|e| Problem::new(e.to_string()).intro(Intro::UnparsableManifest))?;
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Result<ManifestFile, Problem> {
    let unparsable = |message: String| Problem::new(message).intro(Intro::UnparsableManifest);
    let mut table = super::parse_toml(text).map_err(unparsable)?;
    let Some(Value::Table(provider)) = table.remove("provider") else {
        return Err(unparsable("there is no [provider] table".to_owned()));
    };
    let text = |key: &str| provider.get(key).and_then(Value::as_str).map(str::to_owned);
    let name = text("name")
        .filter(|name| !name.is_empty())
        .ok_or_else(|| unparsable("[provider] has no name".to_owned()))?;
    let tools = match table.remove("tools") {
        None => Vec::new(),
        Some(tools) => tools
            .try_into()
            .map_err(|_| unparsable("tools: expected [[tools]] tables".to_owned()))?,
    };
    Ok(ManifestFile {
        path: path.to_path_buf(),
        name,
        handler: text("handler").map(HandlerKind::from).unwrap_or_default(),
        provider,
        tools,
        unknown: table.keys().cloned().collect(),
        origin: Origin::Permanent,
        spec: None,
    })
}

/// The variable that holds the token for a tool, where its provider names one. A sandbox may have
/// no manifests, or some of another deployment: files that can't be read are skipped, and files
/// that can't name a variable aren't parsed.
pub fn session_token_env(ati_dir: &Path, tool: &str) -> Option<String> {
    setting_of_tool(ati_dir, tool, "auth_session_token_env")
}

/// The variable in which the caller of a tool names another MCP server for it.
pub fn mcp_url_env(ati_dir: &Path, tool: &str) -> Option<String> {
    setting_of_tool(ati_dir, tool, "mcp_url_env")
}

fn setting_of_tool(ati_dir: &Path, tool: &str, key: &str) -> Option<String> {
    let files = list(&ati_dir.join("manifests"), &mut Vec::new());
    let texts = files.iter().filter_map(|path| {
        let text = crate::files::read_text(path).ok()?;
        text.contains(key).then_some((path, text))
    });
    for (path, text) in texts {
        let Ok(manifest) = parse(path, &text) else {
            continue;
        };
        let of_provider = tool == manifest.name
            || tool
                .strip_prefix(&manifest.name)
                .is_some_and(|rest| rest.starts_with([':', '_']));
        let listed = || {
            let mut names = manifest.tools.iter().filter_map(|tool| tool.get("name"));
            names.any(|name| name.as_str() == Some(tool))
        };
        if of_provider || listed() {
            let name = manifest.provider.get(key);
            return name.and_then(Value::as_str).map(str::to_owned);
        }
    }
    None
}

fn list(dir: &Path, problems: &mut Vec<Problem>) -> Vec<PathBuf> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(e) => {
            problems.push(Problem::new(format!("can't be read: {e}")).file(dir));
            return Vec::new();
        }
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "toml"))
        .collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_of_all_manifests_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let manifests = dir.path().join("manifests");
        std::fs::create_dir(&manifests).unwrap();
        for (name, text) in [
            ("b.toml", "[provider"),
            ("a.toml", "[provider]\nname = 'a'\nhandler = 'mcp'"),
            ("c.toml", "[provider]\n"),
            ("note.txt", "[provider"),
        ] {
            std::fs::write(manifests.join(name), text).unwrap();
        }
        let mut problems = Vec::new();
        let found = read_manifests(dir.path(), &mut problems);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].handler, HandlerKind::Mcp);
        let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let b = manifests.join("b.toml");
        assert!(
            text[0].starts_with(&format!(
                "Failed to parse manifest {}: line 1: ",
                b.display()
            )),
            "{text:?}"
        );
        assert!(
            text[1].ends_with("c.toml: [provider] has no name"),
            "{text:?}"
        );
    }

    #[test]
    fn missing_manifests_folder_is_not_a_problem() {
        let mut problems = Vec::new();
        assert!(read_manifests(Path::new("/nonexistent"), &mut problems).is_empty());
        assert!(problems.is_empty());
    }
}
