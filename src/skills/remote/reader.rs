//! Reads the catalogue and files, from what is kept or from the registry.

use std::sync::Arc;
use std::time::Duration;

use super::Source;
use super::access::{Access, Kept};
use super::catalogue::Catalogue;
use super::files::File;
use super::slot::{Check, Served};
use super::store::Got;
use crate::error::RemoteSkillError;
use crate::telemetry::metrics::METRICS;

/// The name under which the list of a skill's files is kept; no path has this form.
const LISTING: &str = "//listing";

pub struct Reader {
    access: Access,
    source: Arc<Source>,
    kept: Arc<Kept>,
}

impl Reader {
    pub(super) fn new(access: Access, kept: Arc<Kept>) -> Self {
        let source = Arc::new(access.source(&kept.tokens));
        Reader {
            access,
            source,
            kept,
        }
    }

    /// One request where nothing has changed, none while it is fresh.
    pub async fn catalogue(&self) -> Result<Served<Catalogue>, RemoteSkillError> {
        let source = self.source.clone();
        let make = move |old: Option<Arc<Catalogue>>| async move {
            let read = source.catalogue(old.as_deref()).await;
            METRICS.skill_registry_read(match &read {
                Ok(Some(_)) => "changed",
                Ok(None) => "unchanged",
                Err(_) => "failed",
            });
            // Without an old one, callers learn it themselves.
            if let (Err(error), true) = (&read, old.is_some()) {
                tracing::warn!(%error, "the skill registry can't be read; the old catalogue is served");
            }
            read
        };
        let slot = &self.kept.catalogue;
        slot.get(self.access.refresh, Check::InBackground, make)
            .await
    }

    pub(super) async fn file(
        &self,
        skill: &str,
        path: &str,
    ) -> Result<Served<File>, RemoteSkillError> {
        let slot = self.kept.files.slot(format!("{skill}/{path}"));
        let (source, kept) = (self.source.clone(), self.kept.clone());
        let most = self.access.cache_bytes;
        let (skill, path) = (skill.to_owned(), path.to_owned());
        let make = move |old: Option<Arc<File>>| async move {
            let _turn = kept.fetches.acquire().await;
            let known = old.as_ref().and_then(|old| old.tag.as_deref());
            let got = source.file(&skill, &path, known).await;
            Ok(match got? {
                Got::Found(object) => Some(File {
                    content: object.content,
                    tag: object.tag,
                }),
                Got::Unchanged => None,
                Got::Missing => return Err(RemoteSkillError::NoSuchPath { skill, path }),
            })
        };
        let served = slot.get(self.access.refresh, Check::First, make).await;
        if served
            .as_ref()
            .is_ok_and(|served| served.age == Duration::ZERO)
        {
            self.kept.files.trim(most);
        }
        served
    }

    /// The files of a skill, where the catalogue doesn't know them.
    pub(super) async fn listed(&self, skill: &str) -> Result<Vec<String>, RemoteSkillError> {
        let slot = self.kept.files.slot(format!("{skill}{LISTING}"));
        let (source, skill) = (self.source.clone(), skill.to_owned());
        let make = move |_| async move {
            let mut paths = source.resources(&skill).await?;
            paths.sort();
            Ok(Some(File {
                content: paths.join("\n").into_bytes(),
                tag: None,
            }))
        };
        let served = slot.get(self.access.refresh, Check::First, make).await?;
        let text = String::from_utf8_lossy(&served.value.content).into_owned();
        Ok(text.lines().map(str::to_owned).collect())
    }
}
