//! The one way of a tool call, for `/call`, `/mcp` and `ati run` alike.

mod credentials;
mod elsewhere;
mod mcp;
mod record;
mod shape;

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use url::Url;

use crate::auth::{Identity, scope};
use crate::catalog::provider::Http;
use crate::catalog::{Catalog, Handler, Provider, Tool};
use crate::config::ToolSettings;
use crate::credential::Lookup;
use crate::egress::Clients;
use crate::error::{CallError, McpError};
use crate::exec::http::{Means, Prepared};
use crate::exec::mcp::Told;
use crate::exec::{self, Watcher};
use crate::json;
use crate::keyring::Keyring;
use crate::request_id::RequestId;
use crate::runtime::Runtime;
use crate::telemetry::audit::Audit;
use record::Pending;

/// More values than this are no arguments.
const MOST_VALUES: usize = 200_000;

/// Everything that a call is made with.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub catalog: &'a Catalog,
    pub keyring: &'a Keyring,
    pub prepared: &'a Prepared,
    pub clients: &'a Arc<Clients>,
    pub limits: &'a ToolSettings,
    pub runtime: &'a Runtime,
    pub audit: &'a Audit,
    pub counting: Counting,
    /// Who wants to hear how far a call is.
    pub watcher: Option<Watcher<'a>>,
}

impl<'a> Context<'a> {
    fn means(&self) -> Means<'a> {
        Means {
            clients: self.clients,
            runtime: self.runtime,
            limits: self.limits,
            watcher: self.watcher,
        }
    }
}

/// Where calls are counted against limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// In memory: one process serves them all.
    Here,
    /// In a file: each process makes one.
    Shared,
}

pub struct Request<'a> {
    pub request_id: RequestId,
    /// As the caller wrote it.
    pub name: &'a str,
    pub args: Args<'a>,
    pub identity: &'a Identity,
    /// Another server than the manifest's, where a caller has one.
    pub upstream_url: Option<&'a str>,
}

/// What a tool is given. A variant for what is too big for memory comes with the tools that take it.
pub enum Args<'a> {
    Json(Map<String, Value>),
    /// As it came; only an object counts. It isn't read before it is known that there is such a tool.
    Text(Option<&'a RawValue>),
}

impl Args<'_> {
    fn into_map(self) -> Result<Map<String, Value>, CallError> {
        let text = match self {
            Args::Json(map) => return Ok(map),
            Args::Text(text) => text.map_or("", RawValue::get),
        };
        if !text.starts_with('{') {
            return Ok(Map::new());
        }
        json::parse(text, MOST_VALUES).map_err(|e| CallError::InvalidRequest(format!("args: {e}")))
    }
}

/// What a tool gives. Answers that nobody has to look into stay the text they came as.
#[derive(Debug)]
pub enum Output {
    Raw(Box<RawValue>),
    Json(Value),
}

/// The order, and the only one.
pub async fn run(request: Request<'_>, context: Context<'_>) -> Result<Output, CallError> {
    // First, so that what isn't there is told as such, whoever asks.
    let tool = context
        .catalog
        .find(request.name)
        .ok_or_else(|| CallError::UnknownTool(request.name.to_owned()))?;

    let args = request.args.into_map()?;
    let pending = Pending::new(
        request.request_id,
        request.name,
        tool,
        &args,
        request.identity,
        context.audit,
    );
    let outcome = decide(tool, args, request.upstream_url, request.identity, context).await;
    pending.end(&outcome);
    outcome
}

async fn decide(
    tool: &Tool,
    args: Map<String, Value>,
    upstream_url: Option<&str>,
    identity: &Identity,
    context: Context<'_>,
) -> Result<Output, CallError> {
    // Before the arguments: who may not call learns nothing of what a call would take.
    authorize(tool, identity)?;
    // Before the count: what could never have been sent costs nothing.
    let args = validate(tool, args)?;
    let lookup = Lookup::tool(context.keyring, identity.customer_id.as_deref());
    let elsewhere = upstream_url.map(|url| elsewhere::check(url, tool, &lookup));
    let elsewhere = elsewhere.transpose()?;
    limit(tool, identity, context)?;
    let answer = execute(tool, &args, elsewhere, &lookup, identity, context).await?;
    shape::shape(tool, answer)
}

fn authorize(tool: &Tool, identity: &Identity) -> Result<(), CallError> {
    if tool.is_allowed(&identity.scopes) {
        Ok(())
    } else {
        Err(CallError::OutOfScope(tool.name.clone()))
    }
}

fn validate(tool: &Tool, args: Map<String, Value>) -> Result<Map<String, Value>, CallError> {
    tool.schema
        .prepare(args)
        .map_err(|unfit| CallError::InvalidArgument {
            name: unfit.name,
            what: unfit.what,
            missing: unfit.missing,
        })
}

/// By the tool's own name, however it was called.
fn limit(tool: &Tool, identity: &Identity, context: Context<'_>) -> Result<(), CallError> {
    if identity.rates.is_empty() {
        return Ok(());
    }
    let name = format!("tool:{}", tool.name);
    let matching = identity
        .rates
        .iter()
        .filter(|(pattern, _)| scope::grants(pattern, &name));
    let (rates, now) = (&context.runtime.rates, crate::clock::unix_millis());
    let counted = match context.counting {
        Counting::Here => rates.admit(&identity.subject, matching, now),
        Counting::Shared => rates
            .admit_shared(&identity.subject, matching, now)
            .map_err(|e| {
                tracing::error!("rate-state.json: {e}");
                CallError::Internal("calls can't be counted against their limit")
            })?,
    };
    counted.map_err(|exceeded| CallError::RateLimited {
        pattern: exceeded.pattern,
        count: exceeded.count,
        limit: exceeded.rate.limit,
        unit: exceeded.rate.unit.word(),
    })
}

async fn execute(
    tool: &Tool,
    args: &Map<String, Value>,
    elsewhere: Option<Url>,
    lookup: &Lookup<'_>,
    identity: &Identity,
    context: Context<'_>,
) -> Result<Box<RawValue>, CallError> {
    let provider = &tool.provider;
    match &provider.handler {
        Handler::Http(http) | Handler::Xai(http) => {
            over_http(tool, http, args, lookup, identity, context).await
        }
        Handler::OpenApi(openapi) => {
            over_http(tool, &openapi.http, args, lookup, identity, context).await
        }
        Handler::Mcp(_) => {
            let target = mcp::target(provider, &tool.name, elsewhere, lookup, identity, context);
            let target = target.map_err(McpError::from)?;
            Ok(exec::mcp::call(tool, args, &target, context.means()).await?)
        }
        Handler::Passthrough | Handler::Absent(_) => {
            Err(CallError::Internal("this handler has no tools"))
        }
    }
}

async fn over_http(
    tool: &Tool,
    http: &Http,
    args: &Map<String, Value>,
    lookup: &Lookup<'_>,
    identity: &Identity,
    context: Context<'_>,
) -> Result<Box<RawValue>, CallError> {
    let base_url = credentials::base_url(http, lookup)?;
    let provider = &tool.provider;
    let presents = credentials::resolve(provider, &tool.name, lookup, identity, context.prepared)?;
    Ok(exec::http::run(tool, args, &base_url, &presents, context.means()).await?)
}

/// What tools an MCP server has, asked as nobody in particular.
pub async fn list(provider: &Arc<Provider>, context: Context<'_>) -> Result<Told, McpError> {
    let target = discovery_target(provider, context)?;
    exec::mcp::list(&target, context.means()).await
}

/// Whether there is news since that session listed them.
pub fn has_changed(provider: &Arc<Provider>, listed_by: u64, context: Context<'_>) -> bool {
    let target = discovery_target(provider, context);
    target.is_ok_and(|target| exec::mcp::has_changed(&target, listed_by, context.means()))
}

fn discovery_target(
    provider: &Arc<Provider>,
    context: Context<'_>,
) -> Result<Arc<exec::mcp::Target>, McpError> {
    let lookup = Lookup::tool(context.keyring, None);
    let nobody = Identity::unrestricted();
    Ok(mcp::target(provider, "", None, &lookup, &nobody, context)?)
}
