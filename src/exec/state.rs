//! What calls share and what outlives a snapshot.

use std::path::Path;
use std::sync::Arc;

use super::credentials::GeneratorRuns;
use super::files::StoredFile;
use super::{cli, mcp};
use crate::budget::Budget;
use crate::config::{FileSettings, ToolSettings};
use crate::credential::{Attachment, CredentialError};
use crate::keyring::CredentialFolder;
use crate::runtime::{
    ComputePool, Confirmations, RateWindows, RenewingCache, SharedLimits, StoredFiles,
};
use crate::spool::Quota;
use crate::store::{Engine, Store};

pub struct SharedState {
    pub minted: RenewingCache<Attachment, CredentialError>,
    pub generators: GeneratorRuns,
    pub rates: RateWindows,
    /// None where this process alone counts calls.
    pub shared_limits: Option<SharedLimits>,
    /// Calls that wait for a confirmation.
    pub confirmations: Confirmations,
    /// Room for programs.
    pub programs: cli::ProgramSlots,
    /// Where programs find credentials in files.
    pub credential_files: Arc<CredentialFolder>,
    pub sessions: mcp::Sessions,
    /// The disk space that bodies of calls may take together.
    pub spools: Arc<Quota>,
    /// The disk space that files of `file_manager` and of programs may take together.
    pub file_spools: Arc<Quota>,
    /// Files that wait for the next request of their caller.
    pub files: Arc<StoredFiles<StoredFile>>,
    /// The memory that bodies of calls may take together.
    pub memory: Arc<Budget>,
    /// Where the work on calls is done that may take long.
    pub compute: Arc<ComputePool>,
}

impl SharedState {
    pub fn new(ati_dir: &Path, limits: &ToolSettings, files: &FileSettings) -> Self {
        SharedState {
            minted: RenewingCache::default(),
            generators: GeneratorRuns::new(limits.max_programs),
            rates: RateWindows::new(ati_dir),
            shared_limits: None,
            confirmations: Confirmations::new(ati_dir),
            programs: cli::ProgramSlots::default(),
            credential_files: Arc::new(CredentialFolder::new(ati_dir)),
            sessions: mcp::Sessions::default(),
            spools: Quota::new(limits.max_spool_bytes),
            file_spools: Quota::new(files.spool_bytes),
            files: Arc::default(),
            memory: Budget::new(limits.max_memory_bytes),
            compute: Arc::default(),
        }
    }
    /// Limits and confirmations hold for every process that uses this database. SQLite has one
    /// edge, whose own counters are exact.
    pub fn share(&mut self, store: &Arc<Store>) {
        self.confirmations = Confirmations::in_database(store.clone());
        if store.engine() == Engine::Postgres {
            self.shared_limits = Some(SharedLimits::start(store.clone()));
        }
    }
}
