//! `[provider.upload_destinations.<name>]`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use url::{Host, Url};

use crate::config::{Section, offer};
use crate::egress;

const KINDS: [&str; 4] = ["gcs", "fal_storage", "s3", "local"];
const PREFIX: &str = "ati-uploads";
const GCS: &str = "https://storage.googleapis.com";
const FAL: &str = "https://rest.alpha.fal.ai";
/// S3 accepts no signature that is valid for longer.
const LONGEST_PRESIGN: u64 = 7 * 86_400;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    Gcs(Gcs),
    FalStorage {
        /// Of the keyring: fal's API key.
        key: String,
        endpoint: Url,
    },
    S3(S3),
    /// A folder on ati's own machine.
    Local {
        directory: PathBuf,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gcs {
    pub bucket: String,
    pub prefix: String,
    /// Of the keyring: a service account's JSON.
    pub key: String,
    pub endpoint: Url,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3 {
    pub bucket: String,
    pub prefix: String,
    pub region: String,
    /// Without it, Amazon's.
    pub endpoint: Option<Url>,
    /// Of the keyring: the id of the access key, and its secret.
    pub access_key: String,
    pub secret_key: String,
    /// How long the answered URL opens the object; without it the URL isn't signed.
    pub presign: Option<Duration>,
}

impl Destination {
    /// None where the table has a problem, which is reported.
    pub(super) fn read(s: &mut Section<'_>) -> Option<Self> {
        let kind: String = s.take("kind").unwrap_or_default();
        match kind.as_str() {
            "gcs" => Some(Destination::Gcs(Gcs {
                bucket: needed(s, "bucket", "gcs"),
                prefix: s.take("prefix").unwrap_or_else(|| PREFIX.to_owned()),
                key: text(s, "key_ref", "gcp_credentials"),
                endpoint: confidential(s).or_else(|| Url::parse(GCS).ok())?,
            })),
            "fal_storage" => Some(Destination::FalStorage {
                key: text(s, "key_ref", "fal_api_key"),
                endpoint: confidential(s).or_else(|| Url::parse(FAL).ok())?,
            }),
            "s3" => Some(Destination::S3(S3 {
                bucket: needed(s, "bucket", "s3"),
                prefix: s.take("prefix").unwrap_or_else(|| PREFIX.to_owned()),
                region: text(s, "region", "us-east-1"),
                endpoint: endpoint(s),
                access_key: needed(s, "access_key_ref", "s3"),
                secret_key: needed(s, "secret_key_ref", "s3"),
                presign: presign(s),
            })),
            "local" => {
                let directory = PathBuf::from(needed(s, "directory", "local"));
                if directory.as_os_str() != "" && !directory.is_absolute() {
                    s.problem("directory", "expected an absolute path");
                }
                Some(Destination::Local { directory })
            }
            "" => {
                s.problem("kind", format!("it is missing; {}", offer("", &KINDS)));
                None
            }
            other => {
                let offer = offer(other, &KINDS);
                s.problem("kind", format!("unknown kind '{other}'; {offer}"));
                None
            }
        }
    }

    pub(super) fn keys(&self) -> Vec<&str> {
        match self {
            Destination::Gcs(gcs) => vec![&gcs.key],
            Destination::FalStorage { key, .. } => vec![key],
            Destination::S3(s3) => vec![&s3.access_key, &s3.secret_key],
            Destination::Local { .. } => Vec::new(),
        }
    }
}

fn text(s: &mut Section<'_>, key: &'static str, default: &str) -> String {
    let text: Option<String> = s.take(key);
    text.filter(|text| !text.is_empty())
        .unwrap_or_else(|| default.to_owned())
}

fn needed(s: &mut Section<'_>, key: &'static str, kind: &str) -> String {
    let text = text(s, key, "");
    if text.is_empty() {
        s.problem(key, format!("kind '{kind}' needs it"));
    }
    text
}

fn endpoint(s: &mut Section<'_>) -> Option<Url> {
    let text: String = s.take("endpoint")?;
    let url = Url::parse(text.trim_end_matches('/'));
    let url = url.ok().filter(egress::is_http_url);
    if url.is_none() {
        s.problem("endpoint", "expected an http:// or https:// URL");
    }
    url
}

/// For what gets a credential as it is. A signature could be read by others without harm.
fn confidential(s: &mut Section<'_>) -> Option<Url> {
    let url = endpoint(s)?;
    if is_confidential(&url) {
        return Some(url);
    }
    let message = "expected an https:// URL, or one of this machine: a credential is sent there";
    s.problem("endpoint", message);
    None
}

/// Whether what is sent to it can't be read on the way.
pub fn is_confidential(url: &Url) -> bool {
    let here = match url.host() {
        Some(Host::Ipv4(ip)) => IpAddr::from(ip).is_loopback(),
        Some(Host::Ipv6(ip)) => IpAddr::from(ip).is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    url.scheme() == "https" || here
}

fn presign(s: &mut Section<'_>) -> Option<Duration> {
    const KEY: &str = "presign_seconds";
    let seconds: u64 = s.take(KEY)?;
    if !(1..=LONGEST_PRESIGN).contains(&seconds) {
        s.problem(KEY, format!("expected 1 to {LONGEST_PRESIGN}"));
    }
    Some(Duration::from_secs(seconds))
}
