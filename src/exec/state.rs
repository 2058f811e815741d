//! What calls share and what outlives a snapshot.

use std::path::Path;

use super::mcp::McpError;
use crate::credential::{Attachment, CredentialError};
use crate::runtime::{Fresh, Pool, Windows};

pub struct SharedState {
    pub minted: Fresh<Attachment, CredentialError>,
    pub rates: Windows,
    pub sessions: Pool<McpError>,
}

impl SharedState {
    pub fn new(ati_dir: &Path) -> Self {
        SharedState {
            minted: Fresh::default(),
            rates: Windows::new(ati_dir),
            sessions: Pool::default(),
        }
    }
}
