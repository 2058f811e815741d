//! What providers there are. So far their manifests are read for name and handler; no handler is built yet.

use std::path::{Path, PathBuf};

use crate::config::read_toml;
use crate::error::Problem;

/// The providers of one snapshot.
#[derive(Debug, Default)]
pub struct Catalog {
    providers: Vec<Provider>,
}

#[derive(Debug)]
pub struct Provider {
    pub name: String,
    pub handler: String,
    pub file: PathBuf,
}

impl Catalog {
    /// Read `<dir>/manifests/*.toml` in the order of their names.
    pub fn load(ati_dir: &Path, problems: &mut Vec<Problem>) -> Self {
        let mut catalog = Catalog::default();
        for file in manifest_files(&ati_dir.join("manifests"), problems) {
            let Some(table) = read_toml(&file, problems) else {
                continue;
            };
            let provider = table.get("provider").and_then(toml::Value::as_table);
            let text = |key: &str| provider?.get(key)?.as_str().map(str::to_owned);
            let Some(name) = text("name") else {
                let problem = Problem::new("a manifest needs a [provider] with a name");
                problems.push(problem.file(&file).key("provider.name"));
                continue;
            };
            catalog.providers.push(Provider {
                name,
                handler: text("handler").unwrap_or_else(|| "http".to_owned()),
                file,
            });
        }
        catalog
    }

    pub fn providers(&self) -> &[Provider] {
        &self.providers
    }

    /// Providers whose handler this build doesn't have.
    pub fn warnings(&self) -> Vec<Problem> {
        self.providers
            .iter()
            .map(|provider| {
                Problem::new(format!(
                    "handler '{}' is not part of this build; its tools are absent",
                    provider.handler
                ))
                .file(&provider.file)
                .key("provider.handler")
            })
            .collect()
    }
}

fn manifest_files(dir: &Path, problems: &mut Vec<Problem>) -> Vec<PathBuf> {
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
    fn one_bad_manifest_is_reported_with_the_others() {
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
        let catalog = Catalog::load(dir.path(), &mut problems);
        assert_eq!(catalog.providers().len(), 1);
        assert_eq!(problems.len(), 2);
        assert!(catalog.warnings()[0].to_string().contains("handler 'mcp'"));
    }

    #[test]
    fn no_manifests_are_no_problem() {
        let mut problems = Vec::new();
        let catalog = Catalog::load(Path::new("/nonexistent"), &mut problems);
        assert!(catalog.providers().is_empty() && problems.is_empty());
    }
}
