//! Google Cloud Storage: its JSON API, with a token of a service account.

use std::sync::Arc;

use http::HeaderMap;
use serde::Deserialize;
use url::Url;

use super::request::{answered, get_json, object, segment, send, unless};
use super::{Got, Listed, MOST_LISTED, failed};
use crate::credential::{Attachment, CredentialError};
use crate::derived_key::KeyBuilder;
use crate::egress::Clients;
use crate::error::RemoteSkillError;
use crate::exec::credentials::ServiceAccountRecipe;
use crate::keyring::Secret;
use crate::runtime::{Key, RenewingCache};
use crate::skills::remote::registry::Bucket;

/// The name of the service account's key in the keyring.
pub const KEY: &str = "gcp_credentials";
const SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_only";

pub type TokenCache = RenewingCache<Attachment, CredentialError>;

pub struct Gcs {
    bucket: Bucket,
    endpoint: Url,
    recipe: ServiceAccountRecipe,
    key: Key,
    tokens: Arc<TokenCache>,
    clients: Arc<Clients>,
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    items: Vec<Item>,
    #[serde(rename = "nextPageToken")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Item {
    name: String,
    etag: Option<String>,
}

impl Gcs {
    pub fn new(
        bucket: Bucket,
        endpoint: Url,
        account: Secret,
        tokens: Arc<TokenCache>,
        clients: Arc<Clients>,
    ) -> Self {
        let key = KeyBuilder::new("skill registry token").with((account.expose(), SCOPE));
        Gcs {
            bucket,
            endpoint,
            key: key.finish(),
            recipe: ServiceAccountRecipe {
                account,
                scope: SCOPE,
            },
            tokens,
            clients,
        }
    }

    pub async fn get(
        &self,
        name: &str,
        known: Option<&str>,
        most: usize,
    ) -> Result<Got, RemoteSkillError> {
        let name = format!("{}{name}", self.bucket.prefix);
        let url = self.url(&format!("/{}?alt=media", segment(&name)))?;
        let response = self.ask(&url, known).await?;
        object(response, most).await?.map_err(answered)
    }

    pub async fn list(&self, prefix: &str) -> Result<Vec<Listed>, RemoteSkillError> {
        let whole = format!("{}{prefix}", self.bucket.prefix);
        let query = format!(
            "?prefix={}&maxResults=1000&fields=nextPageToken%2Citems(name%2Cetag)",
            segment(&whole)
        );
        let (mut found, mut page_token) = (Vec::new(), None::<String>);
        loop {
            let page = page_token.iter().map(|token| segment(token));
            let page: String = page.map(|token| format!("&pageToken={token}")).collect();
            let url = self.url(&format!("{query}{page}"))?;
            let page: Page = get_json(self.ask(&url, None).await?).await?;
            found.extend(page.items.into_iter().filter_map(|item| {
                let name = item.name.strip_prefix(&self.bucket.prefix)?.to_owned();
                let tag = item.etag;
                Some(Listed { name, tag })
            }));
            if found.len() > MOST_LISTED {
                return Err(failed("it lists too many objects; an index would help"));
            }
            match page.next.filter(|token| !token.is_empty()) {
                Some(token) if page_token.as_ref() != Some(&token) => page_token = Some(token),
                _ => return Ok(found),
            }
        }
    }

    fn url(&self, rest: &str) -> Result<Url, RemoteSkillError> {
        let base = self.endpoint.as_str().trim_end_matches('/');
        let bucket = segment(&self.bucket.name);
        let url = Url::parse(&format!("{base}/storage/v1/b/{bucket}/o{rest}"));
        url.map_err(|_| failed("its URL can't be used"))
    }

    /// With a new token, once, where the old one is refused: it may have been revoked.
    async fn ask(
        &self,
        url: &Url,
        known: Option<&str>,
    ) -> Result<reqwest::Response, RemoteSkillError> {
        let token = self.token().await?;
        let response = self.ask_with(&token, url, known).await?;
        let refused = response.status() == 401;
        if refused && self.tokens.invalidate(self.key, &token) {
            let token = self.token().await?;
            return self.ask_with(&token, url, known).await;
        }
        Ok(response)
    }

    async fn ask_with(
        &self,
        token: &Attachment,
        url: &Url,
        known: Option<&str>,
    ) -> Result<reqwest::Response, RemoteSkillError> {
        let headers = || {
            let mut headers: HeaderMap = unless(known);
            let _ = token.attach(true, |name, value| {
                headers.insert(name, value);
                Ok::<_, std::convert::Infallible>(())
            });
            Ok(headers)
        };
        let response = send(&self.clients, url, headers).await?;
        token.observe(response.status().as_u16());
        Ok(response)
    }

    async fn token(&self) -> Result<Arc<Attachment>, RemoteSkillError> {
        let mint = async || self.recipe.bearer(KEY, None, &self.clients).await;
        let token = self.tokens.get(self.key, mint).await;
        token.map_err(|error| failed(error.to_string()))
    }
}
