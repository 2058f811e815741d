//! Providers of `ati provider load`: `<ati_dir>/cache/providers/<name>.json`, each with a lifetime.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use toml::Table;
use tracing::debug;

use super::HandlerKind;
use super::manifest::{ManifestFile, Origin, is_provider_name};
use crate::clock::unix_now;

/// The file's format. Every field that isn't in [`NOT_IN_MANIFESTS`] is a field of `[provider]` of
/// the same name.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CachedProvider {
    pub name: String,
    pub provider_type: HandlerKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_key_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_header_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_query_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_secret_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oauth2_token_url: Option<String>,
    /// The OpenAPI document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_transport: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_args: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_env: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cli_command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cli_default_args: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cli_env: Option<BTreeMap<String, String>>,
    /// RFC 3339.
    pub created_at: String,
    pub ttl_seconds: u64,
}

const NOT_IN_MANIFESTS: [&str; 4] = ["provider_type", "spec_content", "created_at", "ttl_seconds"];

/// Why a file gives no provider.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("it can't be read: {0}")]
    Unreadable(#[from] std::io::Error),
    #[error("it isn't a cached provider: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("its name isn't its file's name")]
    WrongName,
    #[error("a provider of type '{0}' can't be loaded")]
    WrongType(String),
    #[error("it can't be a manifest: {0}")]
    NoManifest(#[from] toml::ser::Error),
    #[error("its lifetime is over")]
    Expired,
}

/// The file of the provider with this name.
pub fn path(ati_dir: &Path, name: &str) -> PathBuf {
    folder(ati_dir).join(format!("{name}.json"))
}

/// Bytes of a cached provider: it may hold an OpenAPI document of 64 MiB, escaped.
const LARGEST: u64 = 160 << 20;

fn folder(ati_dir: &Path) -> PathBuf {
    ati_dir.join("cache").join("providers")
}

/// The providers whose lifetime isn't over; the files of the others are removed. An unusable file
/// is only logged, because it must not stop a command or the server.
pub fn read(ati_dir: &Path) -> Vec<ManifestFile> {
    let Ok(entries) = std::fs::read_dir(folder(ati_dir)) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
        .collect();
    files.sort();
    files
        .iter()
        .filter_map(|path| match read_one(path) {
            Ok(manifest) => Some(manifest),
            Err(error) => {
                // At debug level, because commands are silent where they succeed.
                debug!(file = %path.display(), error = %error, "cached provider not loaded");
                if let Unusable::Expired = error {
                    // Another process may have removed it first.
                    let _ = std::fs::remove_file(path);
                }
                None
            }
        })
        .collect()
}

fn read_one(path: &Path) -> Result<ManifestFile, Unusable> {
    let text = crate::files::read_at_most(path, LARGEST)?;
    let cached: CachedProvider = serde_json::from_slice(&text)?;
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    if stem != Some(&cached.name) || !is_provider_name(&cached.name) {
        return Err(Unusable::WrongName);
    }
    let handler = cached.provider_type.clone();
    if !matches!(handler, HandlerKind::OpenApi | HandlerKind::Mcp) {
        return Err(Unusable::WrongType(handler.name().to_owned()));
    }
    let remaining_seconds = cached.remaining_seconds().ok_or(Unusable::Expired)?;
    Ok(ManifestFile {
        path: path.to_path_buf(),
        provider: cached.provider_table()?,
        name: cached.name,
        handler,
        tools: Vec::new(),
        unknown: Vec::new(),
        origin: Origin::Cached { remaining_seconds },
        spec: cached.spec_content.filter(|spec| !spec.is_empty()),
    })
}

impl CachedProvider {
    /// None where its lifetime is over.
    fn remaining_seconds(&self) -> Option<u64> {
        let created = OffsetDateTime::parse(&self.created_at, &Rfc3339).ok()?;
        let end = u64::try_from(created.unix_timestamp())
            .ok()?
            .saturating_add(self.ttl_seconds);
        end.checked_sub(unix_now()).filter(|left| *left > 0)
    }

    /// `[provider]` of the manifest that it stands for.
    fn provider_table(&self) -> Result<Table, toml::ser::Error> {
        let mut table = Table::try_from(self)?;
        for key in NOT_IN_MANIFESTS {
            table.remove(key);
        }
        table.insert("handler".to_owned(), self.provider_type.name().into());
        let description = format!("{} (loaded for a while)", self.name);
        table.insert("description".to_owned(), description.into());
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fields;

    fn cached() -> CachedProvider {
        let text = || Some("x".to_owned());
        let list = || Some(vec!["x".to_owned()]);
        let map = || Some(BTreeMap::from([("x".to_owned(), "x".to_owned())]));
        CachedProvider {
            name: "p".to_owned(),
            provider_type: HandlerKind::Mcp,
            base_url: text(),
            auth_type: text(),
            auth_key_name: text(),
            auth_header_name: text(),
            auth_query_name: text(),
            auth_secret_name: text(),
            oauth2_token_url: text(),
            spec_content: text(),
            mcp_transport: text(),
            mcp_url: text(),
            mcp_command: text(),
            mcp_args: list(),
            mcp_env: map(),
            cli_command: text(),
            cli_default_args: list(),
            cli_env: map(),
            created_at: "2020-01-01T00:00:00.000000+00:00".to_owned(),
            ttl_seconds: 60,
        }
    }

    #[test]
    fn cached_provider_becomes_a_table_of_known_fields() {
        let table = cached().provider_table().unwrap();
        let known: Vec<&str> = fields::names("provider").collect();
        for key in table.keys() {
            assert!(known.contains(&key.as_str()), "{key}");
        }
        assert_eq!(table["handler"].as_str(), Some("mcp"));
        assert_eq!(table.len(), 18);
    }

    #[test]
    fn cached_provider_is_read_as_it_is_written() {
        let text = serde_json::to_string(&cached()).unwrap();
        assert!(text.starts_with(r#"{"name":"p","provider_type":"mcp","base_url":"x","#));
        let read: CachedProvider = serde_json::from_str(&text).unwrap();
        assert_eq!(read, cached());
        // Absent and null are the same, and unknown fields are ignored.
        let read: CachedProvider =
            serde_json::from_str(r#"{"name":"p","mcp_url":null,"skills":[],"auth":{}}"#).unwrap();
        assert_eq!(read.mcp_url, None);
        assert_eq!(read.remaining_seconds(), None);
    }
}
