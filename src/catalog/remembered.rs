//! Lists of tools on disk: what a server said last, for the time when it says nothing, and for commands that are to be quick.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::mcp::{Listing, Listings, Mcp};
use super::{Catalog, Provider};
use crate::files;

/// A list that is larger is not kept.
const LARGEST: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
struct Remembered {
    /// Which server that was. A manifest that names another has no use for it.
    server: String,
    listing: Listing,
}

/// What tells two servers apart, without what is presented to them.
pub fn identity(mcp: &Mcp) -> String {
    let text = format!("{:?} {}", mcp.transport, mcp.http.base_url);
    hex::encode(&digest(&SHA256, text.as_bytes()).as_ref()[..16])
}

fn path(ati_dir: &Path, provider: &str) -> PathBuf {
    ati_dir.join("cache/tools").join(format!("{provider}.json"))
}

pub fn remember(ati_dir: &Path, provider: &Provider, listing: &Listing) -> std::io::Result<()> {
    let Some(mcp) = provider.mcp() else {
        return Ok(());
    };
    let path = path(ati_dir, &provider.name);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let text = serde_json::to_vec(&Remembered {
        server: identity(mcp),
        listing: listing.clone(),
    })?;
    if text.len() as u64 > LARGEST {
        return Err(std::io::Error::other("it is too large"));
    }
    files::write_atomic(&path, &text, 0o600)
}

/// What this one said last, where that is known.
pub fn recall(ati_dir: &Path, provider: &Provider) -> Option<Arc<Listing>> {
    let mcp = provider.mcp()?;
    let path = path(ati_dir, &provider.name);
    if std::fs::metadata(&path).ok()?.len() > LARGEST {
        return None;
    }
    let remembered: Remembered = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    (remembered.server == identity(mcp)).then(|| Arc::new(remembered.listing))
}

pub fn recall_all(ati_dir: &Path, catalog: &Catalog) -> Listings {
    let providers = catalog.providers().iter();
    let known = providers.filter_map(|one| Some((one.name.clone(), recall(ati_dir, one)?)));
    known.collect()
}
