//! The built-in endpoints: what they answer. How an answer is written is the gateway's part.

mod admin_keys;
mod body;
mod call;
mod call_body;
pub mod explain;
mod files;
mod health;
mod help;
mod jwks;
pub mod mcp;
mod mcp_provider;
mod pace;
pub mod providers;
mod reply;
mod skillati;
mod skills;
mod tools;

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, HeaderName};
use tokio::sync::watch;

pub use admin_keys::LONGEST_BODY as KEYS_BODY;
pub use body::{Body, BodyError, Piece};
pub use mcp::RunningCalls;
pub use mcp_provider::ProviderSessions;
pub use providers::Discovery;
pub use reply::{Reply, ReplyBody, ReplyStream, StreamError};

use crate::auth::virtual_keys::VirtualKeys;
use crate::call::{Context, Counting};
use crate::error::Refusal;
use crate::exec::SharedState;
use crate::exec::cli::Surroundings;
use crate::filters::Admitted;
use crate::request_id::RequestId;
use crate::route::Builtin;
use crate::skills::remote::RemoteSkills;
use crate::skills::served::Manifests;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::store::call_log::CallLog;
use crate::telemetry::audit::Audit;
use crate::telemetry::trail::CallTrail;

/// Tells callers that there is `/files`.
pub const FILES_HEADER: HeaderName = HeaderName::from_static("x-ati-files");

/// What lives longer than a snapshot and serves every request.
pub struct Services {
    pub runtime: SharedState,
    pub audit: Audit,
    /// True once the process ends, and calls and streams under way have to end with it.
    pub abandon: watch::Sender<bool>,
    /// None in a command, which lists tools itself.
    pub discovery: Option<Discovery>,
    pub counting: Counting,
    /// The database. None: there is none.
    pub store: Option<Arc<Store>>,
    /// Virtual keys, which are in it.
    pub keys: Option<Arc<VirtualKeys>>,
    /// None: calls are not logged in the database.
    pub call_log: Option<CallLog>,
    /// Calls over MCP, which their clients can take back.
    pub mcp_calls: RunningCalls,
    /// Clients of MCP servers that they speak to themselves.
    pub provider_sessions: ProviderSessions,
    /// What the remote catalogue of skills answered.
    pub remote_skills: RemoteSkills,
    /// Digests of the files of installed skills.
    pub skill_files: Manifests,
}

/// The context of calls that this process serves.
pub fn context<'a>(snapshot: &'a Snapshot, services: &'a Services) -> Context<'a> {
    Context {
        catalog: &snapshot.catalog,
        keyring: &snapshot.keyring,
        credentials: &snapshot.credentials,
        clients: &snapshot.clients,
        limits: &snapshot.settings.tools,
        file_limits: &snapshot.settings.files,
        runtime: &services.runtime,
        audit: &services.audit,
        counting: services.counting,
        policy: &snapshot.settings.policy,
        surroundings: Surroundings::Isolated,
        watcher: None,
    }
}

/// Without token keys a web page could call tools through the browser of a user of this machine.
/// With them it would need a token.
fn check_page(headers: &HeaderMap, snapshot: &Snapshot) -> Result<(), Refusal> {
    match snapshot.settings.jwt {
        Some(_) => Ok(()),
        None => mcp::check_origin(headers, &snapshot.settings.mcp),
    }
}

/// A request to a built-in endpoint. No `Debug`: its headers hold the caller's token.
pub struct Request {
    pub id: RequestId,
    /// Method, URI and headers, as the caller sent them.
    pub parts: Parts,
    pub body: Body,
    /// What a tool call does, for the access line.
    pub trail: Arc<CallTrail>,
}

impl Request {
    pub fn path(&self) -> &str {
        self.parts.uri.path()
    }

    pub fn query(&self) -> &str {
        self.parts.uri.query().unwrap_or_default()
    }
}

/// `pass` proves that the caller may ask this endpoint.
pub async fn answer(
    builtin: Builtin,
    pass: &Admitted,
    request: Request,
    snapshot: &Arc<Snapshot>,
    services: &Arc<Services>,
) -> Result<Reply, Refusal> {
    let identity = || pass.identity().ok_or(Refusal::Internal);
    // All but calls are boxed: a call would have to carry room for the largest of them.
    match builtin {
        Builtin::Call => call::answer(request, identity()?, snapshot, services).await,
        Builtin::Files => Box::pin(files::put(request, identity()?, snapshot, services)).await,
        Builtin::File => files::get(&request, identity()?, snapshot, services),
        Builtin::Tools => tools::list(&request, identity()?, snapshot),
        Builtin::Tool => tools::one(&request, identity()?, snapshot, services),
        Builtin::Mcp => Box::pin(mcp::answer(request, identity()?, snapshot, services)).await,
        Builtin::McpProvider => {
            Box::pin(mcp_provider::answer(
                request,
                identity()?,
                snapshot,
                services,
            ))
            .await
        }
        Builtin::Explain => {
            Box::pin(explain::answer(request, identity()?, snapshot, services)).await
        }
        Builtin::Health => health::answer(&request, snapshot, services),
        Builtin::Jwks => jwks::answer(&request, snapshot),
        Builtin::ProtectedResource => mcp::protected_resource(&request, snapshot),
        Builtin::AdminKeys
        | Builtin::AdminKeysIssue
        | Builtin::AdminKeysBulkRevoke
        | Builtin::AdminKey => Box::pin(admin_keys::answer(builtin, request, services)).await,
        Builtin::Help => Box::pin(help::answer(request, identity()?, snapshot, services)).await,
        Builtin::Skills => Box::pin(skills::list(&request, identity()?, snapshot, services)).await,
        Builtin::Skill => Box::pin(skills::one(&request, identity()?, snapshot)).await,
        Builtin::SkillBundle => Box::pin(skills::bundle(&request, identity()?, snapshot)).await,
        Builtin::SkillsBundle => Box::pin(skills::bundles(request, identity()?, snapshot)).await,
        Builtin::SkillsResolve => {
            Box::pin(skills::resolve(request, identity()?, snapshot, services)).await
        }
        Builtin::RemoteCatalog
        | Builtin::RemoteSkill
        | Builtin::RemoteResources
        | Builtin::RemoteFile
        | Builtin::RemoteReferences
        | Builtin::RemoteReference => {
            Box::pin(skillati::answer(
                builtin,
                &request,
                identity()?,
                snapshot,
                services,
            ))
            .await
        }
    }
}
