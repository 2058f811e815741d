//! What calls share and what outlives a snapshot.

use std::path::Path;
use std::sync::Arc;

use super::credentials::GeneratorRuns;
use super::{cli, mcp};
use crate::budget::Budget;
use crate::config::ToolSettings;
use crate::credential::{Attachment, CredentialError};
use crate::keyring::CredentialFolder;
use crate::runtime::{ComputePool, RateWindows, RenewingCache};
use crate::spool::Quota;

pub struct SharedState {
    pub minted: RenewingCache<Attachment, CredentialError>,
    pub generators: GeneratorRuns,
    pub rates: RateWindows,
    /// Room for programs.
    pub programs: cli::ProgramSlots,
    /// Where programs find credentials in files.
    pub credential_files: Arc<CredentialFolder>,
    pub sessions: mcp::Sessions,
    /// The disk space that bodies of calls may take together.
    pub spools: Arc<Quota>,
    /// The memory that bodies of calls may take together.
    pub memory: Arc<Budget>,
    /// Where the work on calls is done that may take long.
    pub compute: Arc<ComputePool>,
}

impl SharedState {
    pub fn new(ati_dir: &Path, limits: &ToolSettings) -> Self {
        SharedState {
            minted: RenewingCache::default(),
            generators: GeneratorRuns::new(limits.max_programs),
            rates: RateWindows::new(ati_dir),
            programs: cli::ProgramSlots::default(),
            credential_files: Arc::new(CredentialFolder::new(ati_dir)),
            sessions: mcp::Sessions::default(),
            spools: Quota::new(limits.max_spool_bytes),
            memory: Budget::new(limits.max_memory_bytes),
            compute: Arc::default(),
        }
    }
}
