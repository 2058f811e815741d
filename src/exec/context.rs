use std::sync::Arc;

use super::{SharedState, Watcher};
use crate::config::{FileSettings, ToolSettings};
use crate::credential::UsedSecrets;
use crate::egress::Clients;
use crate::request_id::RequestId;
use crate::telemetry::trail::CallTrail;

/// What every executor works with. Credentials are not part of it: each call brings its own.
#[derive(Clone, Copy)]
pub struct ExecContext<'a> {
    pub clients: &'a Arc<Clients>,
    pub runtime: &'a SharedState,
    pub limits: &'a ToolSettings,
    pub file_limits: &'a FileSettings,
    /// Is shown the progress of a call, where its handler reports any.
    pub watcher: Option<Watcher<'a>>,
    /// Goes to the tool's upstream, so that its records can be joined with ours.
    pub request_id: RequestId,
    /// What the executor does, for the access line.
    pub trail: &'a CallTrail,
    /// Executors add what they send.
    pub secrets: &'a UsedSecrets,
}
