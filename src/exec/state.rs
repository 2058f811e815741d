//! What calls share and what outlives a snapshot.

use std::path::Path;
use std::sync::Arc;

use super::mcp::McpError;
use crate::config::ToolSettings;
use crate::credential::{Attachment, CredentialError};
use crate::runtime::{Fresh, Pool, Windows};
use crate::spool::Quota;

pub struct SharedState {
    pub minted: Fresh<Attachment, CredentialError>,
    pub rates: Windows,
    pub sessions: Pool<McpError>,
    /// The disk space that bodies of calls may take together.
    pub spools: Arc<Quota>,
}

impl SharedState {
    pub fn new(ati_dir: &Path, limits: &ToolSettings) -> Self {
        SharedState {
            minted: Fresh::default(),
            rates: Windows::new(ati_dir),
            sessions: Pool::default(),
            spools: Quota::new(limits.max_spool_bytes),
        }
    }
}
