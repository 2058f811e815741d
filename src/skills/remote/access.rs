//! What a request to the registry needs, and what is kept between requests.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::catalogue::Catalogue;
use super::files::Files;
use super::proxy::Proxy;
use super::registry::Registry;
use super::slot::Slot;
use super::source::Report;
use super::store::{ACCESS_KEY, Folder, GCS_KEY, Gcs, S3, SECRET_KEY, Store, TokenCache, Web};
use super::{Reader, Source};
use crate::config::SkillRegistrySettings;
use crate::derived_key::{Key, KeyBuilder};
use crate::egress::Clients;
use crate::error::RemoteSkillError;
use crate::keyring::Secret;

/// The registry of the settings, with its credentials.
pub struct Access {
    registry: Registry,
    credentials: Credentials,
    clients: Arc<Clients>,
    index_objects: Vec<String>,
    pub(super) refresh: Duration,
    pub(super) cache_bytes: usize,
    report: Report,
}

enum Credentials {
    None,
    Gcs(Secret),
    S3 { access: Secret, secret: Secret },
}

impl Access {
    /// `find` looks a name of the keyring up.
    pub fn new(
        settings: &SkillRegistrySettings,
        clients: &Arc<Clients>,
        find: impl Fn(&str) -> Option<Secret>,
    ) -> Result<Self, RemoteSkillError> {
        let url = settings.url.as_deref();
        let url = url.ok_or(RemoteSkillError::NotConfigured)?;
        let registry = Registry::parse(url, settings.proxy.as_deref())?;
        let find = |name: &'static str, missing: fn(&'static str) -> RemoteSkillError| {
            let found = find(name).filter(|secret| !secret.is_empty());
            found.ok_or_else(|| missing(name))
        };
        let credentials = match &registry {
            Registry::Gcs { .. } => {
                Credentials::Gcs(find(GCS_KEY, RemoteSkillError::NoGcsCredentials)?)
            }
            Registry::S3 { .. } => Credentials::S3 {
                access: find(ACCESS_KEY, RemoteSkillError::NoS3Credentials)?,
                secret: find(SECRET_KEY, RemoteSkillError::NoS3Credentials)?,
            },
            Registry::Folder(_) | Registry::Web(_) | Registry::Proxy(_) => Credentials::None,
        };
        Ok(Access {
            registry,
            credentials,
            clients: clients.clone(),
            index_objects: settings.index_objects.clone(),
            refresh: settings.refresh,
            cache_bytes: settings.cache_bytes,
            report: Report::Operator,
        })
    }

    /// For a command, which is silent where it succeeds.
    pub fn for_command(self) -> Self {
        Access {
            report: Report::Verbose,
            ..self
        }
    }

    /// Whether a registry wants credentials of the keyring.
    pub fn needs_keys(settings: &SkillRegistrySettings) -> bool {
        let url = settings.url.as_deref().unwrap_or_default();
        let registry = Registry::parse(url, settings.proxy.as_deref());
        matches!(registry, Ok(Registry::Gcs { .. } | Registry::S3 { .. }))
    }

    /// What is kept depends on it: another registry, or other credentials, begin anew.
    fn key(&self) -> Key {
        let mut key = KeyBuilder::new("skill registry");
        key.add((&self.registry, &self.index_objects));
        match &self.credentials {
            Credentials::None => {}
            Credentials::Gcs(account) => key.add(account.expose()),
            Credentials::S3 { access, secret } => key.add((access.expose(), secret.expose())),
        }
        key.finish()
    }

    pub(super) fn source(&self, tokens: &Arc<TokenCache>) -> Source {
        let clients = self.clients.clone();
        let store = match (&self.registry, &self.credentials) {
            (Registry::Proxy(base), _) => {
                let base = base.clone();
                return Source::Proxy(Proxy { base, clients });
            }
            (Registry::Gcs { bucket, endpoint }, Credentials::Gcs(account)) => {
                let (bucket, endpoint) = (bucket.clone(), endpoint.clone());
                let account = account.clone();
                Store::Gcs(Gcs::new(bucket, endpoint, account, tokens.clone(), clients))
            }
            (
                Registry::S3 {
                    bucket,
                    region,
                    endpoint,
                },
                Credentials::S3 { access, secret },
            ) => Store::S3(S3 {
                bucket: bucket.clone(),
                region: region.clone(),
                endpoint: endpoint.clone(),
                access_key: access.clone(),
                secret_key: secret.clone(),
                clients,
            }),
            (Registry::Web(base), _) => Store::Web(Web {
                base: base.clone(),
                clients,
            }),
            (Registry::Folder(root), _) => Store::Folder(Folder { root: root.clone() }),
            // `new` gives these two their credentials.
            (Registry::Gcs { .. } | Registry::S3 { .. }, _) => Store::Folder(Folder {
                root: "/nonexistent".into(),
            }),
        };
        Source::Store {
            store,
            index_objects: self.index_objects.clone(),
            report: self.report,
        }
    }
}

/// What the registry answered, kept for as long as the registry is the same. Outlives snapshots.
#[derive(Default)]
pub struct RemoteSkills {
    current: Mutex<Option<(Key, Arc<Kept>)>>,
}

pub(super) struct Kept {
    pub(super) catalogue: Arc<Slot<Catalogue>>,
    pub(super) files: Files,
    pub(super) tokens: Arc<TokenCache>,
    /// Files that are fetched at the same time: each is in memory while it comes in.
    pub(super) fetches: tokio::sync::Semaphore,
}

/// Files that are fetched at the same time.
const CONCURRENT_FETCHES: usize = 32;

impl RemoteSkills {
    pub fn reader(&self, access: Access) -> Reader {
        let key = access.key();
        let mut current = self.current.lock();
        let kept = match &*current {
            Some((known, kept)) if *known == key => kept.clone(),
            _ => {
                let kept = Arc::new(Kept {
                    catalogue: Arc::default(),
                    files: Files::default(),
                    tokens: Arc::default(),
                    fetches: tokio::sync::Semaphore::new(CONCURRENT_FETCHES),
                });
                *current = Some((key, kept.clone()));
                kept
            }
        };
        Reader::new(access, kept)
    }
}
