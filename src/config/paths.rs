//! Folders that variables name, and paths that begin with `~`.

use std::path::{Path, PathBuf};

/// `ATI_DIR`, then `~/.ati`, then `.ati`.
pub fn ati_dir() -> PathBuf {
    if let Some(dir) = filled("ATI_DIR") {
        return dir.into();
    }
    filled("HOME").map_or_else(
        || PathBuf::from(".ati"),
        |home| PathBuf::from(home).join(".ati"),
    )
}

/// A path in which `~` stands for the home folder.
pub fn with_home(path: &str) -> PathBuf {
    let below = match path {
        "~" => Some(""),
        path => path.strip_prefix("~/"),
    };
    match (below, filled("HOME")) {
        (Some(below), Some(home)) => PathBuf::from(home).join(below),
        _ => PathBuf::from(path),
    }
}

/// A path of a manifest: `~` is the home folder, and a relative one begins at the manifest's.
pub fn expanded_path(path: &str, manifest: &Path) -> PathBuf {
    let folder = manifest.parent().unwrap_or(Path::new(""));
    let path = folder.join(with_home(path.trim()));
    std::path::absolute(&path).unwrap_or(path)
}

/// Where tools that describe themselves by CMP are: `CMP_TOOL_PATH`, the user's, the machine's.
pub fn cmp_folders() -> Vec<PathBuf> {
    let named = filled("CMP_TOOL_PATH").unwrap_or_default();
    let named = named.split(':').filter(|path| !path.is_empty());
    let usual = ["~/.cmp/tools", "/usr/local/share/cmp/tools"];
    let mut folders: Vec<PathBuf> = Vec::new();
    for path in named.chain(usual).map(with_home) {
        if path.is_absolute() && !folders.contains(&path) {
            folders.push(path);
        }
    }
    folders
}

/// `agent-tools` in a folder of the XDG Base Directory Specification: the variable's, or else the
/// one below the home folder. Relative paths don't count.
pub fn agent_tools(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |path: PathBuf| Some(path).filter(|path| path.is_absolute());
    let named = filled(variable).map(PathBuf::from).and_then(absolute);
    let usual = || filled("HOME").map(|home| PathBuf::from(home).join(below_home));
    let folder = named.or_else(|| usual().and_then(absolute))?;
    Some(folder.join("agent-tools"))
}

/// The variable, unless it is blank.
pub(super) fn filled(name: &str) -> Option<String> {
    std::env::var(name)
        .ok()
        .filter(|value| !value.trim().is_empty())
}
