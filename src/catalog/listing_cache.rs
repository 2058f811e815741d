//! The listing cache: each MCP server's last list of tools, on disk. It serves while the server
//! can't be asked, and commands that must not wait for a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::mcp::{Listing, Listings, Mcp};
use super::{Catalog, Provider};
use crate::derived_key::KeyBuilder;
use crate::files;

/// A larger list is not cached.
const LARGEST: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
struct CachedListing {
    /// Identifies the server. The entry is ignored once the manifest names another one.
    server: String,
    listing: Listing,
}

/// Tells two servers apart by how they are reached, whatever the credential.
pub fn server_id(mcp: &Mcp) -> String {
    let key = KeyBuilder::new("mcp server").with(&mcp.transport);
    hex::encode(&key.finish()[..16])
}

fn path(ati_dir: &Path, provider: &str) -> PathBuf {
    ati_dir.join("cache/tools").join(format!("{provider}.json"))
}

pub fn store(ati_dir: &Path, provider: &Provider, listing: &Listing) -> std::io::Result<()> {
    let Some(mcp) = provider.mcp() else {
        return Ok(());
    };
    let path = path(ati_dir, &provider.name);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let text = serde_json::to_vec(&CachedListing {
        server: server_id(mcp),
        listing: listing.clone(),
    })?;
    if text.len() as u64 > LARGEST {
        return Err(std::io::Error::other("it is too large"));
    }
    files::write_atomic(&path, &text, 0o600)
}

/// The server's last list, where there is one.
pub fn load(ati_dir: &Path, provider: &Provider) -> Option<Arc<Listing>> {
    let mcp = provider.mcp()?;
    let path = path(ati_dir, &provider.name);
    let text = crate::files::read_at_most(&path, LARGEST).ok()?;
    let cached: CachedListing = serde_json::from_slice(&text).ok()?;
    (cached.server == server_id(mcp)).then(|| Arc::new(cached.listing))
}

pub fn load_all(ati_dir: &Path, catalog: &Catalog) -> Listings {
    let providers = catalog.providers().iter();
    let known = providers.filter_map(|one| Some((one.name.clone(), load(ati_dir, one)?)));
    known.collect()
}
