//! The OpenAPI documents that manifests name: files below `specs/`, and no others.

use std::path::Path;

use super::openapi::{Document, LARGEST, Survey};
use super::provider::{OpenApi, Provider};

/// Where documents are, and which of them are read.
pub struct Specs<'a> {
    dir: Option<&'a Path>,
    /// The one tool that a command wants: documents of other providers are not read.
    only: Option<&'a str>,
}

impl<'a> Specs<'a> {
    pub fn below(dir: &'a Path) -> Self {
        Specs {
            dir: Some(dir),
            only: None,
        }
    }

    pub fn only_for(self, tool: &'a str) -> Self {
        Specs {
            only: Some(tool),
            ..self
        }
    }

    #[cfg(test)]
    pub fn none() -> Self {
        Specs {
            dir: None,
            only: None,
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
        let Some(dir) = self.dir else {
            return Err("there is no folder for specs".to_owned());
        };
        let path = dir.join(name);
        let text = crate::files::read_at_most(&path, LARGEST as u64)
            .map_err(|e| format!("{}: {e}", path.display()))?;
        let text =
            String::from_utf8(text).map_err(|_| format!("{}: it is not UTF-8", path.display()))?;
        Document::parse(&text).map_err(|e| format!("{}: {e}", path.display()))
    }
}
