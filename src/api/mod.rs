//! The built-in endpoints: what they answer. How it gets onto the wire is gateway's.

mod call;
mod health;
mod jwks;
mod tools;

use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;
use tokio::sync::watch;

use crate::call::{Context, Counting};
use crate::error::Refusal;
use crate::exec::SharedState;
use crate::filters::Admitted;
use crate::request_id::RequestId;
use crate::route::Builtin;
use crate::snapshot::Snapshot;
use crate::telemetry::audit::Audit;

/// What outlives the snapshot that a request is judged by.
pub struct Services {
    pub runtime: SharedState,
    pub audit: Audit,
    /// True once calls that are still under way have to be given up.
    pub abandon: watch::Sender<bool>,
}

/// What calls are made with, by whoever serves them.
pub fn context<'a>(snapshot: &'a Snapshot, services: &'a Services) -> Context<'a> {
    Context {
        catalog: &snapshot.catalog,
        keyring: &snapshot.keyring,
        credentials: &snapshot.credentials,
        clients: &snapshot.clients,
        limits: &snapshot.settings.tools,
        runtime: &services.runtime,
        audit: &services.audit,
        counting: Counting::InMemory,
        watcher: None,
    }
}

/// What a request says besides who sends it.
pub struct Asked<'a> {
    pub request_id: RequestId,
    pub path: &'a str,
    pub query: Option<&'a str>,
    pub body: Bytes,
    /// `X-Ati-Upstream-Url`.
    pub upstream_url: Option<&'a str>,
}

/// How much of a body an endpoint reads; the others read none.
pub fn body_limit(builtin: Builtin, snapshot: &Snapshot) -> Option<usize> {
    match builtin {
        Builtin::Call => Some(snapshot.settings.tools.max_call_bytes),
        _ => None,
    }
}

#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub content_type: &'static str,
    pub body: Bytes,
}

impl Reply {
    pub fn json(value: &impl Serialize) -> Result<Self, Refusal> {
        let body = serde_json::to_vec(value).map_err(|_| Refusal::Internal)?;
        Ok(Reply::from_json(body.into()))
    }

    fn from_json(body: Bytes) -> Self {
        Reply {
            status: StatusCode::OK,
            content_type: "application/json",
            body,
        }
    }
}

/// The pass shows that whoever asks may.
pub async fn answer(
    builtin: Builtin,
    pass: &Admitted,
    asked: Asked<'_>,
    snapshot: &Snapshot,
    services: &Services,
) -> Result<Reply, Refusal> {
    let identity = || pass.identity().ok_or(Refusal::Internal);
    match builtin {
        Builtin::Call => call::answer(asked, identity()?, snapshot, services).await,
        Builtin::Tools => tools::list(&asked, identity()?, snapshot),
        Builtin::Tool => tools::one(&asked, identity()?, snapshot),
        Builtin::Health => health::answer(snapshot),
        Builtin::Jwks => jwks::answer(snapshot),
        Builtin::AdminKeys
        | Builtin::AdminKeysIssue
        | Builtin::AdminKeysBulkRevoke
        | Builtin::AdminKey => Err(Refusal::AdminStoreMissing),
        Builtin::Help if !snapshot.catalog.has("_llm") => Err(Refusal::HelpNotConfigured),
        Builtin::Mcp
        | Builtin::Help
        | Builtin::Skills
        | Builtin::SkillsResolve
        | Builtin::SkillsBundle
        | Builtin::Skill
        | Builtin::SkillBundle
        | Builtin::RemoteCatalog
        | Builtin::RemoteSkill
        | Builtin::RemoteResources
        | Builtin::RemoteFile
        | Builtin::RemoteReferences
        | Builtin::RemoteReference => Err(Refusal::NotImplemented),
    }
}
