//! What providers there are. So far only passthrough is served; the tools of other handlers are absent.

use std::path::PathBuf;

use crate::config::ManifestFile;
use crate::error::Problem;

/// Handlers that this build serves.
const BUILT: [&str; 1] = ["passthrough"];

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
    pub fn new(manifests: &[ManifestFile]) -> Self {
        let providers = manifests.iter().map(|manifest| Provider {
            name: manifest.name.clone(),
            handler: manifest.handler.clone(),
            file: manifest.path.clone(),
        });
        Catalog {
            providers: providers.collect(),
        }
    }

    pub fn providers(&self) -> &[Provider] {
        &self.providers
    }

    pub fn has(&self, name: &str) -> bool {
        self.providers.iter().any(|provider| provider.name == name)
    }

    /// Providers whose handler this build doesn't have.
    pub fn warnings(&self) -> Vec<Problem> {
        self.providers
            .iter()
            .filter(|provider| !BUILT.contains(&provider.handler.as_str()))
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
