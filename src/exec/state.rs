//! What calls share and what outlives a snapshot.

use std::path::Path;
use std::sync::Arc;

use super::credentials::GeneratorRuns;
use super::mcp;
use crate::config::ToolSettings;
use crate::credential::{Attachment, CredentialError};
use crate::runtime::{RateWindows, RenewingCache};
use crate::spool::Quota;

pub struct SharedState {
    pub minted: RenewingCache<Attachment, CredentialError>,
    pub generators: GeneratorRuns,
    pub rates: RateWindows,
    pub sessions: mcp::Sessions,
    /// The disk space that bodies of calls may take together.
    pub spools: Arc<Quota>,
}

impl SharedState {
    pub fn new(ati_dir: &Path, limits: &ToolSettings) -> Self {
        SharedState {
            minted: RenewingCache::default(),
            generators: GeneratorRuns::new(limits.max_programs),
            rates: RateWindows::new(ati_dir),
            sessions: mcp::Sessions::default(),
            spools: Quota::new(limits.max_spool_bytes),
        }
    }
}
