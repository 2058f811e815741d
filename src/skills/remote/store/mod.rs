//! Where files of skills are kept: objects with names like `<skill>/<path>`.

mod folder;
mod gcs;
mod request;
mod s3;
mod web;

use crate::error::RemoteSkillError;

pub use folder::Folder;
pub use gcs::{Gcs, KEY as GCS_KEY, TokenCache};
pub use request::{answered, get_json, object, segment, send, unless};
pub use s3::{ACCESS_KEY, S3, SECRET_KEY};
pub use web::Web;

/// One object.
pub struct Object {
    pub content: Vec<u8>,
    /// Changes with the content: an ETag.
    pub tag: Option<String>,
}

/// What came of a request for an object.
pub enum Got {
    Found(Object),
    /// It is still the one with the tag that the request named.
    Unchanged,
    Missing,
}

/// An object in a listing.
pub struct Listed {
    pub name: String,
    pub tag: Option<String>,
}

/// Objects in one listing.
const MOST_LISTED: usize = 500_000;

pub enum Store {
    Gcs(Gcs),
    S3(S3),
    Folder(Folder),
    Web(Web),
}

impl Store {
    /// An object of at most `most` bytes. `known` is the tag of the one that the caller has.
    pub async fn get(
        &self,
        name: &str,
        known: Option<&str>,
        most: usize,
    ) -> Result<Got, RemoteSkillError> {
        match self {
            Store::Gcs(gcs) => gcs.get(name, known, most).await,
            Store::S3(s3) => s3.get(name, known, most).await,
            Store::Folder(folder) => folder.get(name, known, most).await,
            Store::Web(web) => web.get(name, known, most).await,
        }
    }

    /// Every object whose name begins so. None: this store can't be listed.
    pub async fn list(&self, prefix: &str) -> Result<Option<Vec<Listed>>, RemoteSkillError> {
        match self {
            Store::Gcs(gcs) => gcs.list(prefix).await.map(Some),
            Store::S3(s3) => s3.list(prefix).await.map(Some),
            Store::Folder(folder) => folder.list(prefix).await.map(Some),
            Store::Web(_) => Ok(None),
        }
    }
}

pub fn failed(what: impl Into<String>) -> RemoteSkillError {
    RemoteSkillError::Upstream(what.into())
}
