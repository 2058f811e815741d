//! Another proxy's `/skillati`, with the token of this process.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use url::Url;

use super::catalogue::{Catalogue, Origin, read_index};
use super::store::{Got, Object, failed, get_json, object, segment, send, unless};
use crate::auth::session::{self, SESSION_TOKEN};
use crate::auth::{sandbox, signature};
use crate::clock::unix_now;
use crate::egress::Clients;
use crate::error::RemoteSkillError;
use crate::skills::DOCUMENT;

const LARGEST_CATALOGUE: usize = 64 << 20;

pub struct Proxy {
    pub base: Url,
    pub clients: Arc<Clients>,
}

#[derive(Deserialize)]
struct Activation {
    content: String,
}

#[derive(Deserialize)]
struct File {
    content: String,
    encoding: Option<String>,
}

#[derive(Deserialize)]
struct Resources {
    resources: Vec<String>,
}

impl Proxy {
    pub async fn catalogue(
        &self,
        old: Option<&Catalogue>,
    ) -> Result<Option<Catalogue>, RemoteSkillError> {
        let known = match old.map(|old| &old.origin) {
            Some(Origin::Index { tag, .. }) => tag.as_deref(),
            _ => None,
        };
        let response = self.ask("catalog", "", known).await?;
        let got = object(response, LARGEST_CATALOGUE).await?;
        match got.map_err(super::store::answered)? {
            Got::Unchanged => Ok(None),
            Got::Missing => Err(failed("it has no /skillati/catalog")),
            Got::Found(Object { content, tag }) => {
                let (skills, _) = read_index(&content).map_err(failed)?;
                let object = "catalog".to_owned();
                Ok(Some(Catalogue::new(skills, Origin::Index { object, tag })))
            }
        }
    }

    /// SKILL.md is what the other proxy gives to who activates the skill.
    pub async fn file(&self, skill: &str, path: &str) -> Result<Got, RemoteSkillError> {
        let skill = segment(skill);
        let (place, query) = match path {
            DOCUMENT => (skill, String::new()),
            path => (format!("{skill}/file"), format!("path={}", segment(path))),
        };
        let response = self.ask(&place, &query, None).await?;
        if response.status() == 404 {
            return Ok(Got::Missing);
        }
        let content = if query.is_empty() {
            get_json::<Activation>(response).await?.content.into_bytes()
        } else {
            let file: File = get_json(response).await?;
            match file.encoding.as_deref() {
                Some("base64") => STANDARD
                    .decode(&file.content)
                    .map_err(|_| failed("its base64 can't be read"))?,
                _ => file.content.into_bytes(),
            }
        };
        Ok(Got::Found(Object { content, tag: None }))
    }

    pub async fn resources(&self, skill: &str) -> Result<Vec<String>, RemoteSkillError> {
        let place = format!("{}/resources", segment(skill));
        let response = self.ask(&place, "", None).await?;
        if response.status() == 404 {
            return Err(RemoteSkillError::NoSuchSkill(skill.to_owned()));
        }
        Ok(get_json::<Resources>(response).await?.resources)
    }

    async fn ask(
        &self,
        place: &str,
        query: &str,
        known: Option<&str>,
    ) -> Result<reqwest::Response, RemoteSkillError> {
        let mut url = self.base.clone();
        let base = self.base.path().trim_end_matches('/');
        url.set_path(&format!("{base}/skillati/{place}"));
        url.set_query(Some(query).filter(|query| !query.is_empty()));
        // Both may be in files that are replaced from time to time.
        let secrets = tokio::task::spawn_blocking(|| {
            let token = session::resolve(SESSION_TOKEN).ok().flatten();
            (token, sandbox::resolve().ok().flatten())
        });
        let (token, signing) = secrets.await.unwrap_or_default();
        let headers = || {
            let mut headers: HeaderMap = unless(known);
            let mut insert = |name: HeaderName, value: String| {
                let value = HeaderValue::from_str(&value);
                let mut value = value.map_err(|_| failed(format!("{name} can't be sent")))?;
                value.set_sensitive(true);
                headers.insert(name, value);
                Ok::<_, RemoteSkillError>(())
            };
            if let Some(token) = &token {
                insert(AUTHORIZATION, session::authorization(token))?;
            }
            if let Some(signing) = &signing {
                let signed = signing
                    .key
                    .sign(unix_now(), Method::GET.as_str(), url.path());
                insert(signature::HEADER, signed)?;
            }
            Ok(headers)
        };
        send(&self.clients, &url, headers).await
    }
}
