//! What calls share and what outlives a snapshot.

use std::path::Path;

use super::mcp;
use crate::credential::{Attachment, CredentialError};
use crate::runtime::{RateWindows, RenewingCache};

pub struct SharedState {
    pub minted: RenewingCache<Attachment, CredentialError>,
    pub rates: RateWindows,
    pub sessions: mcp::Sessions,
}

impl SharedState {
    pub fn new(ati_dir: &Path) -> Self {
        SharedState {
            minted: RenewingCache::default(),
            rates: RateWindows::new(ati_dir),
            sessions: mcp::Sessions::default(),
        }
    }
}
