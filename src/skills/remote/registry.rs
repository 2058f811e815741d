//! Where the catalogue is: the URL of `ATI_SKILL_REGISTRY`, read.

use std::path::PathBuf;

use url::Url;

use crate::catalog::files::is_confidential;
use crate::error::RemoteSkillError;

const GCS_ENDPOINT: &str = "https://storage.googleapis.com";
const DEFAULT_REGION: &str = "us-east-1";

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Registry {
    Gcs {
        bucket: Bucket,
        endpoint: Url,
    },
    S3 {
        bucket: Bucket,
        region: String,
        /// None: Amazon's.
        endpoint: Option<Url>,
    },
    Folder(PathBuf),
    Web(Url),
    /// `/skillati` of another proxy.
    Proxy(Url),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Bucket {
    pub name: String,
    /// Empty, or the folder that skills are in, with a slash at its end.
    pub prefix: String,
}

impl Registry {
    /// `proxy` is `ATI_PROXY_URL`.
    pub fn parse(text: &str, proxy: Option<&str>) -> Result<Self, RemoteSkillError> {
        if text == "proxy" {
            let proxy = proxy.ok_or(RemoteSkillError::NoProxyUrl)?;
            let url = Url::parse(proxy).ok().filter(crate::egress::is_http_url);
            return url.map(Registry::Proxy).ok_or(RemoteSkillError::NoProxyUrl);
        }
        let url = Url::parse(text).ok();
        url.as_ref()
            .and_then(read)
            .ok_or_else(|| RemoteSkillError::Unsupported(shown(text, url)))
    }
}

fn read(url: &Url) -> Option<Registry> {
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return None;
    }
    match url.scheme() {
        "gcs" | "gs" => {
            let endpoint = match option(url, "endpoint")? {
                Some(endpoint) => server(&endpoint).filter(is_confidential)?,
                None => Url::parse(GCS_ENDPOINT).ok()?,
            };
            only(url, &["endpoint"])?;
            Some(Registry::Gcs {
                bucket: bucket(url)?,
                endpoint,
            })
        }
        "s3" => {
            let endpoint = match option(url, "endpoint")? {
                Some(endpoint) => Some(server(&endpoint)?),
                None => None,
            };
            only(url, &["endpoint", "region"])?;
            let region = option(url, "region")?.unwrap_or_else(|| DEFAULT_REGION.to_owned());
            Some(Registry::S3 {
                bucket: bucket(url)?,
                region: Some(region).filter(|region| is_name(region))?,
                endpoint,
            })
        }
        "file" => url.to_file_path().ok().map(Registry::Folder),
        "https" | "http" if is_confidential(url) && url.query().is_none() => {
            Some(Registry::Web(url.clone()))
        }
        _ => None,
    }
}

fn bucket(url: &Url) -> Option<Bucket> {
    let name = url.host_str().filter(|name| is_name(name))?.to_owned();
    let folder = url.path().trim_matches('/');
    let is_plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('%');
    if !folder.is_empty() && !folder.split('/').all(is_plain) {
        return None;
    }
    let prefix = match folder {
        "" => String::new(),
        folder => format!("{folder}/"),
    };
    Some(Bucket { name, prefix })
}

fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.chars().all(is_part)
}

/// A parameter of the query. None: it is there twice.
fn option(url: &Url, name: &str) -> Option<Option<String>> {
    let mut values = url.query_pairs().filter(|(key, _)| key == name);
    let first = values.next().map(|(_, value)| value.into_owned());
    values.next().is_none().then_some(first)
}

/// A typo must not make a registry of defaults.
fn only(url: &Url, known: &[&str]) -> Option<()> {
    let mut names = url.query_pairs();
    names
        .all(|(name, _)| known.contains(&name.as_ref()))
        .then_some(())
}

fn server(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok().filter(crate::egress::is_http_url)?;
    (url.query().is_none() && url.username().is_empty()).then_some(url)
}

/// The URL for a message, without a password that it may have.
fn shown(text: &str, url: Option<Url>) -> String {
    let Some(mut url) = url else {
        let end = text.floor_char_boundary(100);
        return match text.contains('@') {
            true => "(not shown: it may hold a password)".to_owned(),
            false => text[..end].to_owned(),
        };
    };
    if url.username().is_empty() && url.password().is_none() {
        return text.to_owned();
    }
    if url.set_username("").is_err() || url.set_password(None).is_err() {
        return format!("{}://…", url.scheme());
    }
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_of_every_kind_are_read() {
        let parse = |text| Registry::parse(text, None).unwrap();
        let Registry::Gcs { bucket, endpoint } = parse("gcs://my_Skills.example") else {
            panic!("no bucket");
        };
        assert_eq!(bucket.name, "my_Skills.example");
        assert_eq!(bucket.prefix, "");
        assert_eq!(endpoint.as_str(), "https://storage.googleapis.com/");
        let text = "s3://b/team/a/?region=eu-west-1&endpoint=http%3A%2F%2F10.0.0.1%3A9000";
        let Registry::S3 {
            bucket,
            region,
            endpoint,
        } = parse(text)
        else {
            panic!("no bucket");
        };
        assert_eq!(
            (bucket.prefix.as_str(), region.as_str()),
            ("team/a/", "eu-west-1")
        );
        assert_eq!(endpoint.unwrap().as_str(), "http://10.0.0.1:9000/");
        assert_eq!(
            parse("file:///srv/skills"),
            Registry::Folder("/srv/skills".into())
        );
        assert!(matches!(parse("https://h/skills"), Registry::Web(_)));
        assert!(matches!(parse("http://127.0.0.1:1/x"), Registry::Web(_)));
        let proxy = Registry::parse("proxy", Some("http://p:8090")).unwrap();
        assert!(matches!(proxy, Registry::Proxy(_)));
        let none = Registry::parse("proxy", None);
        assert_eq!(none, Err(RemoteSkillError::NoProxyUrl));
    }

    #[test]
    fn registry_that_is_none_is_refused_without_its_password() {
        for text in [
            "ftp://bucket",
            "gcs://",
            "gcs:///x",
            "bucket",
            "gcs://b?endpont=http://127.0.0.1",
            "gcs://b?endpoint=http://10.0.0.1",
            "s3://b?region=a/b",
            "s3://b/../c%2e",
            "http://example.com/skills",
            "file://host/x",
            "PROXY",
        ] {
            let refused = Registry::parse(text, None).unwrap_err();
            let expected = format!("Unsupported skill registry URL: {text}");
            assert_eq!(refused.to_string(), expected);
        }
        for text in [
            "https://u:planted-pw@h/x",
            "s3://u:planted-pw@b",
            "planted-pw@x y",
        ] {
            let refused = Registry::parse(text, None).unwrap_err().to_string();
            assert!(!refused.contains("planted-pw"), "{refused}");
        }
    }
}
