//! The OpenAPI documents that manifests name: files in `specs/`, then in `manifests/specs/`, and no
//! others.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::atip::Folders;
use super::openapi::{Document, LARGEST, Survey};
use super::provider::{OpenApi, Provider};

/// Where documents are, and which of them are read.
pub struct Specs<'a> {
    /// The first folder that has a file of the name is the one.
    dirs: Vec<PathBuf>,
    /// The one tool that a command wants: documents of other providers are not read.
    only: Option<&'a str>,
    /// Where ATIP's files are.
    pub(super) agent_tools: Folders,
    /// Whether programs may be asked for their metadata.
    pub(super) may_run: bool,
}

impl<'a> Specs<'a> {
    /// Of an ATI folder.
    pub fn of(ati_dir: &Path) -> Self {
        Specs {
            dirs: ["specs", "manifests/specs"]
                .map(|it| ati_dir.join(it))
                .to_vec(),
            only: None,
            agent_tools: Folders::of_environment(),
            may_run: true,
        }
    }

    pub fn only_for(self, tool: &'a str) -> Self {
        Specs {
            only: Some(tool),
            ..self
        }
    }

    /// Without running programs.
    pub fn only_files(self) -> Self {
        Specs {
            may_run: false,
            ..self
        }
    }

    #[cfg(test)]
    pub fn none() -> Self {
        Specs {
            dirs: Vec::new(),
            only: None,
            agent_tools: Folders::default(),
            may_run: false,
        }
    }

    /// Tools of a document are named `provider:operation`; aliases have `_` for the colon.
    pub(super) fn wants(&self, provider: &str) -> bool {
        self.only.is_none_or(|tool| {
            tool.strip_prefix(provider)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '_']))
        })
    }

    /// `inline` is the document of a provider of the provider cache, which has no file.
    pub(super) fn survey(
        &self,
        provider: &Provider,
        openapi: &OpenApi,
        inline: Option<String>,
    ) -> Result<Survey, String> {
        let document = match inline {
            Some(text) => Document::parse(&text).map_err(|e| e.to_string())?,
            None => self.read(&openapi.spec)?,
        };
        let survey = document.survey(&provider.name, &openapi.base_url.text);
        Ok(survey.select(&openapi.selection))
    }

    fn read(&self, name: &str) -> Result<Document, String> {
        if name.is_empty() {
            return Err("it is not set".to_owned());
        }
        if name.contains("://") {
            return Err(
                "URL specs must be downloaded first with ati provider import-openapi".to_owned(),
            );
        }
        // A file's name, no path: `../x` would leave the folder.
        if name.contains(['/', '\\', '\0']) || name.starts_with('.') {
            return Err(format!("'{name}' is not the name of a file in specs/"));
        }
        let path = self.find(name)?;
        let text = crate::files::read_at_most(&path, LARGEST as u64)
            .map_err(|e| format!("{}: {e}", path.display()))?;
        let text =
            String::from_utf8(text).map_err(|_| format!("{}: it is not UTF-8", path.display()))?;
        Document::parse(&text).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// A file that is there and can't be read is an error: the next folder may have another
    /// document of the same name.
    fn find(&self, name: &str) -> Result<PathBuf, String> {
        let absent = |path: &PathBuf| {
            let found = std::fs::metadata(path);
            found.is_err_and(|e| e.kind() == ErrorKind::NotFound)
        };
        let mut candidates = self.dirs.iter().map(|dir| dir.join(name));
        candidates.find(|path| !absent(path)).ok_or_else(|| {
            let dirs: Vec<_> = self
                .dirs
                .iter()
                .map(|dir| dir.display().to_string())
                .collect();
            format!("there is no '{name}' in {}", dirs.join(" or "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_is_looked_for_in_specs_before_manifests_specs() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("specs"), dir.path().join("manifests/specs"));
        std::fs::create_dir_all(&first).unwrap();
        std::fs::create_dir_all(&second).unwrap();
        let specs = Specs::of(dir.path());
        let missing = specs.find("a.json").unwrap_err();
        assert!(
            missing.contains("/specs or ") && missing.ends_with("/manifests/specs"),
            "{missing}"
        );
        std::fs::write(second.join("a.json"), "{}").unwrap();
        assert_eq!(specs.find("a.json").unwrap(), second.join("a.json"));
        std::fs::write(first.join("a.json"), "{}").unwrap();
        assert_eq!(specs.find("a.json").unwrap(), first.join("a.json"));
    }
}
