//! Files behind a URL: a bucket that is public, a static site. Nothing can be listed there, so it
//! needs an index.

use std::sync::Arc;

use url::Url;

use super::request::{answered, object, object_path, send, unless};
use super::{Got, failed};
use crate::egress::Clients;
use crate::error::RemoteSkillError;

pub struct Web {
    pub base: Url,
    pub clients: Arc<Clients>,
}

impl Web {
    pub async fn get(
        &self,
        name: &str,
        known: Option<&str>,
        most: usize,
    ) -> Result<Got, RemoteSkillError> {
        let base = self.base.as_str().trim_end_matches('/');
        let url = Url::parse(&format!("{base}/{}", object_path(name)));
        let url = url.map_err(|_| failed("its URL can't be used"))?;
        let response = send(&self.clients, &url, || Ok(unless(known))).await?;
        object(response, most).await?.map_err(answered)
    }
}
