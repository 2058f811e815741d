//! `/mcp`: the tools as an MCP server. The methods here are the same over HTTP (`http.rs`) and over
//! standard streams (`ati mcp serve`). There are no sessions: each request stands for itself.

mod annotations;
pub(super) mod http;
mod list;
mod metadata;
mod origin;
mod progress;
mod render;
mod running;
mod search;
mod skills;

use std::sync::Arc;

use serde_json::{Value, json};

pub use http::{CATALOGUE, Response, answer, response};
pub use metadata::{challenge, protected_resource};
pub use origin::check as check_origin;
pub use progress::notification as progress_notification;
pub use render::{CONFIRMATION, ResultText, declined, question};
pub use running::{RunningCall, RunningCalls};

use super::{Services, context};
use crate::auth::Identity;
use crate::call::{self, Args};
use crate::catalog::Handler;
use crate::error::{CallError, RpcError};
use crate::exec::Watcher;
use crate::mcp::{ClientRequest, Era, SKILLS_EXTENSION, VERSIONS, negotiate};
use crate::request_id::RequestId;
use crate::snapshot::Snapshot;
use crate::telemetry::trail::CallTrail;

/// Bytes of a method's name that an error repeats.
const LONGEST_METHOD: usize = 100;
/// How long clients of the stateless era may use what describes the server.
const DISCOVERY_TTL_MS: u64 = 300_000;

/// The user was asked whether the call may run.
const DECLINED: &str = "Confirmation declined: nothing was run";

/// What one request is answered with, and for which caller.
pub struct Exchange {
    pub snapshot: Arc<Snapshot>,
    pub services: Arc<Services>,
    pub identity: Arc<Identity>,
    pub request_id: RequestId,
    pub trail: Arc<CallTrail>,
    /// `X-Ati-Upstream-Url`.
    pub upstream_url: Option<String>,
    /// Three tools to find and call the others with, instead of all of them.
    pub search: bool,
    /// Whether the client is told when the tools change.
    pub tells_changes: bool,
    /// The client has said, now or in its handshake, that it knows the skills extension.
    pub knows_skills: bool,
}

/// The result of a request.
pub async fn respond(
    request: &ClientRequest,
    exchange: &Exchange,
    watcher: Option<Watcher<'_>>,
) -> Result<ResultText, RpcError> {
    exchange.trail.asked(&request.method);
    if exchange.knows_skills
        && let Some(answered) = skills::respond(request, exchange).await
    {
        return answered;
    }
    match request.method.as_str() {
        "initialize" => Ok(initialize(request, exchange)),
        "server/discover" => Ok(discover(exchange)),
        "ping" => Ok(complete(json!({}), request.era)),
        "tools/list" => list::page(request, exchange).await,
        "tools/call" => tools_call(request, exchange, watcher).await,
        other => {
            let end = other.floor_char_boundary(LONGEST_METHOD);
            Err(RpcError::UnknownMethod(other[..end].to_owned()))
        }
    }
}

fn initialize(request: &ClientRequest, exchange: &Exchange) -> ResultText {
    let mut result = json!({
        "protocolVersion": negotiate(request.protocol_version.as_deref()),
        "capabilities": capabilities(exchange),
        "serverInfo": server_info(),
    });
    if let Some(text) = instructions(exchange) {
        result["instructions"] = text.into();
    }
    ResultText::of(&result)
}

fn discover(exchange: &Exchange) -> ResultText {
    let mut result = json!({
        "supportedVersions": VERSIONS,
        "capabilities": capabilities(exchange),
        "ttlMs": DISCOVERY_TTL_MS,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": server_info()},
    });
    if let Some(text) = instructions(exchange) {
        result["instructions"] = text.into();
    }
    complete(result, Era::Stateless)
}

/// How the tools are used: by searching them, or as the one Runfile says that they come from.
fn instructions(exchange: &Exchange) -> Option<String> {
    if exchange.search {
        return Some(search::INSTRUCTIONS.to_owned());
    }
    let [provider] = exchange.snapshot.catalog.providers() else {
        return None;
    };
    match &provider.handler {
        Handler::Runfile(own) => own.instructions.get().cloned(),
        _ => None,
    }
    .filter(|text| !text.is_empty())
}

fn capabilities(exchange: &Exchange) -> Value {
    let mut capabilities = json!({"tools": {"listChanged": exchange.tells_changes}});
    if exchange.knows_skills {
        capabilities["resources"] = json!({});
        capabilities["extensions"] = json!({SKILLS_EXTENSION: {}});
    }
    capabilities
}

fn server_info() -> Value {
    json!({"name": "ati-proxy", "version": env!("CARGO_PKG_VERSION")})
}

/// A result of one round, which the stateless era says.
fn complete(mut result: Value, era: Era) -> ResultText {
    if era == Era::Stateless {
        result["resultType"] = "complete".into();
    }
    ResultText::of(&result)
}

async fn tools_call(
    request: &ClientRequest,
    exchange: &Exchange,
    watcher: Option<Watcher<'_>>,
) -> Result<ResultText, RpcError> {
    let name = request.name.as_deref().filter(|name| !name.is_empty());
    let name =
        name.ok_or_else(|| RpcError::Params("Missing tool name in params.name".to_owned()))?;
    if exchange.search
        && let Some(answered) = search::call(name, request, exchange, watcher).await
    {
        return answered;
    }
    if request.is_declined {
        return Ok(render::error_text(DECLINED, request.era));
    }
    let args = request.arguments.as_deref();
    let confirm = request.confirm.as_deref();
    match exchange.call(name, args, confirm, watcher).await {
        Ok(finished) => Ok(render::finished(finished, request.era)),
        Err(error) if is_protocol_error(&error) => Err(RpcError::Call(Box::new(error))),
        Err(error) => Ok(render::failed(&error, request, &exchange.trail)),
    }
}

/// Whether the request itself is wrong. Everything else is a result, which the model reads.
fn is_protocol_error(error: &CallError) -> bool {
    matches!(
        error,
        CallError::UnknownTool(_)
            | CallError::OutOfScope(_)
            | CallError::Withheld(_)
            | CallError::ScopesExpired(_)
            | CallError::PolicyDenied { .. }
            | CallError::UpstreamUrl(_)
            | CallError::UpstreamDenied(_)
            | CallError::InvalidRequest(_)
    )
}

impl Exchange {
    /// Runs a tool, by the same pipeline as `/call`.
    async fn call(
        &self,
        name: &str,
        args: Option<&serde_json::value::RawValue>,
        confirm: Option<&str>,
        watcher: Option<Watcher<'_>>,
    ) -> Result<call::Finished, CallError> {
        let call = call::Request {
            name,
            args: Args::Mcp(args),
            identity: &self.identity,
            upstream_url: self.upstream_url.as_deref(),
            request_id: self.request_id,
            trail: &self.trail,
            confirm,
            native: true,
        };
        super::call::run(call, &self.snapshot, &self.services, watcher).await
    }

    /// Work that may take long, on the threads for that.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, RpcError> {
        let context = context(&self.snapshot, &self.services);
        let done = context.work(&self.identity).run(work).await;
        done.map_err(|error| RpcError::Busy(error.to_string()))
    }
}
