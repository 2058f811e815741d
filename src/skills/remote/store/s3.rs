//! Any storage that speaks S3, with signed requests.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::request::{answered, get_text, object, object_path, segment, send, unless};
use super::{Got, Listed, MOST_LISTED, failed};
use crate::egress::Clients;
use crate::error::RemoteSkillError;
use crate::exec::sigv4::{Signer, host};
use crate::keyring::Secret;
use crate::skills::remote::registry::Bucket;

/// The names of the access key's two parts in the keyring.
pub const ACCESS_KEY: &str = "s3_access_key";
pub const SECRET_KEY: &str = "s3_secret_key";

pub struct S3 {
    pub bucket: Bucket,
    pub region: String,
    pub endpoint: Option<Url>,
    pub access_key: Secret,
    pub secret_key: Secret,
    pub clients: Arc<Clients>,
}

impl S3 {
    pub async fn get(
        &self,
        name: &str,
        known: Option<&str>,
        most: usize,
    ) -> Result<Got, RemoteSkillError> {
        let name = format!("{}{name}", self.bucket.prefix);
        let url = self.url(&object_path(&name))?;
        let response = self.ask(&url, known).await?;
        object(response, most).await?.map_err(explained)
    }

    pub async fn list(&self, prefix: &str) -> Result<Vec<Listed>, RemoteSkillError> {
        let whole = segment(&format!("{}{prefix}", self.bucket.prefix));
        let (mut found, mut token) = (Vec::new(), None::<String>);
        loop {
            // In the order of the alphabet, as signatures want it.
            let page = token.iter().map(|token| segment(token));
            let page: String = page.map(|t| format!("continuation-token={t}&")).collect();
            let query = format!("?{page}encoding-type=url&list-type=2&prefix={whole}");
            let response = self.ask(&self.url(&query)?, None).await?;
            let text = match response.status().as_u16() {
                200 => get_text(response).await?,
                status => return Err(explained(status)),
            };
            found.extend(listed(&text, &self.bucket.prefix));
            if found.len() > MOST_LISTED {
                return Err(failed("it lists too many objects; an index would help"));
            }
            match element(&text, "NextContinuationToken").map(unescape) {
                Some(next) if token.as_ref() != Some(&next) => token = Some(next),
                _ => return Ok(found),
            }
        }
    }

    /// With an endpoint of one's own, the bucket is part of the path. Amazon's has a name for each
    /// bucket, except for those with a dot, which no certificate covers.
    fn url(&self, rest: &str) -> Result<Url, RemoteSkillError> {
        let (bucket, region) = (segment(&self.bucket.name), &self.region);
        let text = match &self.endpoint {
            Some(endpoint) => {
                let base = endpoint.as_str().trim_end_matches('/');
                format!("{base}/{bucket}/{rest}")
            }
            None if bucket.contains('.') => {
                format!("https://s3.{region}.amazonaws.com/{bucket}/{rest}")
            }
            None => format!("https://{bucket}.s3.{region}.amazonaws.com/{rest}"),
        };
        Url::parse(&text).map_err(|_| failed("its URL can't be used"))
    }

    async fn ask(
        &self,
        url: &Url,
        known: Option<&str>,
    ) -> Result<reqwest::Response, RemoteSkillError> {
        let response = send(&self.clients, url, || self.signed(url, known)).await?;
        Ok(response)
    }

    fn signed(&self, url: &Url, known: Option<&str>) -> Result<HeaderMap, RemoteSkillError> {
        let unusable = || failed(format!("the value of '{ACCESS_KEY}' can't be sent"));
        let id = std::str::from_utf8(self.access_key.expose()).map_err(|_| unusable())?;
        let signer = Signer::now(id.trim(), &self.secret_key, &self.region);
        let nothing = hex::encode(Sha256::digest(b""));
        let signed = [
            ("host", host(url)),
            ("x-amz-content-sha256", nothing.clone()),
            ("x-amz-date", signer.timestamp().to_owned()),
        ];
        let authorization = signer.authorization("GET", url, &signed, &nothing);
        let mut headers = unless(known);
        // The client writes the host from the URL.
        for (name, value) in &signed[1..] {
            let value = HeaderValue::from_str(value).map_err(|_| unusable())?;
            headers.insert(HeaderName::from_static(name), value);
        }
        let mut value = HeaderValue::from_str(&authorization).map_err(|_| unusable())?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
        Ok(headers)
    }
}

/// S3 hides what may not be listed behind 403.
fn explained(status: u16) -> RemoteSkillError {
    match status {
        403 => failed(format!(
            "it answered 403 (Forbidden): '{ACCESS_KEY}' may not read it, or the region is another"
        )),
        other => answered(other),
    }
}

/// The objects of one page. Their names are percent-encoded, so that they need no XML parser.
fn listed<'t>(text: &'t str, prefix: &'t str) -> impl Iterator<Item = Listed> + 't {
    text.split("<Contents>").skip(1).filter_map(move |object| {
        let object = object.split("</Contents>").next()?;
        let name = percent_decode_str(element(object, "Key")?)
            .decode_utf8()
            .ok()?;
        Some(Listed {
            name: name.strip_prefix(prefix)?.to_owned(),
            tag: element(object, "ETag").map(unescape),
        })
    })
}

fn element<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (value, _) = rest.split_once(&format!("</{name}>"))?;
    Some(value)
}

fn unescape(text: &str) -> String {
    let named = [
        ("&quot;", "\""),
        ("&#34;", "\""),
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&apos;", "'"),
        ("&amp;", "&"),
    ];
    named
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listing_gives_names_and_tags_of_objects() {
        let text = "<?xml version=\"1.0\"?><ListBucketResult><Prefix>p/</Prefix>\
            <IsTruncated>true</IsTruncated>\
            <NextContinuationToken>a&amp;b=</NextContinuationToken>\
            <Contents><Key>p/foo/SKILL.md</Key><ETag>&quot;1&quot;</ETag><Size>1</Size></Contents>\
            <Contents><Key>p/foo/references/a%20b%26.md</Key><ETag>\"2\"</ETag></Contents>\
            <Contents><Key>other</Key></Contents></ListBucketResult>";
        let found: Vec<_> = listed(text, "p/").map(|one| (one.name, one.tag)).collect();
        let expected = [
            ("foo/SKILL.md".to_owned(), Some("\"1\"".to_owned())),
            (
                "foo/references/a b&.md".to_owned(),
                Some("\"2\"".to_owned()),
            ),
        ];
        assert_eq!(found, expected);
        let token = element(text, "NextContinuationToken").map(unescape);
        assert_eq!(token.as_deref(), Some("a&b="));
    }
}
