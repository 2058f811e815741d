//! The one pipeline of a tool call, for `/call`, `/mcp` and `ati run` alike:
//! resolve -> authorize -> validate -> limit -> execute -> shape -> audit.

mod audit_guard;
mod credentials;
mod mcp;
mod shape;
mod upstream_override;

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tracing::Instrument as _;
use url::Url;

use crate::auth::rate::Rate;
use crate::auth::{Identity, scope};
use crate::catalog::{Catalog, HttpInvocation, Invocation, Provider, Tool};
use crate::config::ToolSettings;
use crate::credential::Lookup;
use crate::egress::Clients;
use crate::error::{CallError, ExecError};
use crate::exec::credentials::SharedCredentials;
use crate::exec::http::HttpError;
use crate::exec::mcp::{McpError, ToolListing};
use crate::exec::{self, Answer, ExecContext, SharedState, SpooledJson, Watcher};
use crate::json;
use crate::keyring::Keyring;
use crate::request_id::RequestId;
use crate::spool::Spooled;
use crate::telemetry::Throttle;
use crate::telemetry::audit::Audit;
use audit_guard::AuditGuard;

/// Arguments with more values than this are refused: a few megabytes of text can stand for
/// gigabytes.
const MOST_VALUES: usize = 200_000;

/// What calls of one process are made with.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub catalog: &'a Catalog,
    pub keyring: &'a Keyring,
    pub credentials: &'a SharedCredentials,
    pub clients: &'a Arc<Clients>,
    pub limits: &'a ToolSettings,
    pub runtime: &'a SharedState,
    pub audit: &'a Audit,
    pub counting: Counting,
    /// Is shown the progress of calls.
    pub watcher: Option<Watcher<'a>>,
}

/// Where calls are counted against rate limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// In memory: one process serves all calls.
    InMemory,
    /// In a file: each process makes one call.
    InFile,
}

pub struct Request<'a> {
    /// As the caller wrote it.
    pub name: &'a str,
    pub args: Args<'a>,
    pub identity: &'a Identity,
    /// `X-Ati-Upstream-Url`: a server that the caller names in place of the manifest's.
    pub upstream_url: Option<&'a str>,
    pub request_id: RequestId,
}

/// The arguments of a call.
pub enum Args<'a> {
    Json(Map<String, Value>),
    /// JSON text, parsed only once the tool is known to exist. Anything but an object counts as
    /// `{}`.
    Text(Option<&'a RawValue>),
    /// A whole `/call` body that is too big for memory. Its `args` are parsed once the tool is
    /// known to exist.
    Spooled(Spooled),
}

impl Args<'_> {
    async fn into_map(self) -> Result<Map<String, Value>, CallError> {
        let invalid = |e: &dyn std::fmt::Display| CallError::InvalidRequest(format!("args: {e}"));
        match self {
            Args::Json(map) => Ok(map),
            Args::Text(text) => {
                let text = text.map_or("", RawValue::get);
                if !text.starts_with('{') {
                    return Ok(Map::new());
                }
                json::parse(text, MOST_VALUES).map_err(|e| invalid(&e))
            }
            Args::Spooled(body) => {
                let parse = move || json::parse_from(|| body.blocking_reader(), MOST_VALUES);
                let parsed = tokio::task::spawn_blocking(parse).await;
                let body: ArgsOfBody = parsed.map_err(|e| invalid(&e))?.map_err(|e| invalid(&e))?;
                Ok(match body.args {
                    Value::Object(map) => map,
                    _ => Map::new(),
                })
            }
        }
    }
}

/// The part of a `/call` body that holds the arguments.
#[derive(Deserialize)]
struct ArgsOfBody {
    #[serde(default)]
    args: Value,
}

/// The result of a call.
#[derive(Debug)]
pub enum Output {
    /// The upstream's own text: checked, never parsed into values.
    Raw(Box<RawValue>),
    Json(Value),
    /// The same as `Raw`, where it is too big for memory.
    Spooled(SpooledJson),
}

/// One call on its way through the pipeline.
struct Call<'a> {
    provider: &'a Arc<Provider>,
    /// None where ati itself asks a server for its tools.
    tool: Option<&'a Tool>,
    identity: &'a Identity,
    lookup: Lookup<'a>,
    /// The checked `X-Ati-Upstream-Url`.
    upstream_override: Option<Url>,
    request_id: RequestId,
    context: Context<'a>,
}

impl<'a> Call<'a> {
    fn exec_context(&self) -> ExecContext<'a> {
        ExecContext {
            clients: self.context.clients,
            runtime: self.context.runtime,
            limits: self.context.limits,
            watcher: self.context.watcher,
            request_id: self.request_id,
        }
    }

    fn tool_name(&self) -> &str {
        self.tool.map_or("", |tool| &tool.name)
    }
}

/// Runs the pipeline.
pub async fn run(request: Request<'_>, context: Context<'_>) -> Result<Output, CallError> {
    // First: an unknown tool is 404 for every caller, whatever its scopes.
    let tool = context
        .catalog
        .find(request.name)
        .ok_or_else(|| CallError::UnknownTool(request.name.to_owned()))?;
    let args = request.args.into_map().await?;
    let guard = AuditGuard::new(
        request.name,
        tool,
        &args,
        request.identity,
        request.request_id,
        context.audit,
    );
    let call = Call {
        provider: &tool.provider,
        tool: Some(tool),
        identity: request.identity,
        lookup: Lookup::tool(context.keyring, request.identity.customer_id.as_deref()),
        upstream_override: None,
        request_id: request.request_id,
        context,
    };
    // At debug level, because a span costs every call CPU time. Lines at higher levels have the id
    // as a field.
    let span = tracing::debug_span!(
        "tool_call",
        request_id = %request.request_id,
        tool = tool.name,
        provider = tool.provider.name,
    );
    let outcome = decide(call, tool, args, request.upstream_url)
        .instrument(span)
        .await;
    guard.end(&outcome);
    outcome
}

async fn decide(
    mut call: Call<'_>,
    tool: &Tool,
    args: Map<String, Value>,
    upstream_url: Option<&str>,
) -> Result<Output, CallError> {
    // Before the arguments: a caller without the scope learns nothing of what the tool takes.
    authorize(tool, call.identity)?;
    // Before the limit: a call that could never be sent doesn't count against it.
    let args = validate(tool, args)?;
    call.upstream_override = upstream_url
        .map(|url| upstream_override::check(url, tool, &call.lookup))
        .transpose()?;
    limit(&call, tool)?;
    let answer = execute(&call, tool, &args).await?;
    shape::shape(tool, answer, call.request_id).await
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

/// Counts by the canonical name, so that an alias doesn't escape a limit.
fn limit(call: &Call<'_>, tool: &Tool) -> Result<(), CallError> {
    let (identity, context) = (call.identity, call.context);
    if identity.rates.is_empty() {
        return Ok(());
    }
    let name = format!("tool:{}", tool.name);
    let matching = identity
        .rates
        .iter()
        .filter(|(pattern, _)| scope::grants(pattern, &name));
    warn_of_idle_limits(&identity.rates, &name, call);
    let (rates, now) = (&context.runtime.rates, crate::clock::unix_millis());
    let counted = match context.counting {
        Counting::InMemory => rates.admit(&identity.subject, matching, now),
        Counting::InFile => rates
            .admit_shared(&identity.subject, matching, now)
            .map_err(|e| {
                tracing::error!(
                    request_id = %call.request_id,
                    error = %e,
                    "rate-state.json can't be read or written"
                );
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

/// A limit whose pattern matches no tool limits nothing, though its issuer meant it to. All tools
/// are looked at, so not for every call.
fn warn_of_idle_limits(rates: &[(String, Rate)], name: &str, call: &Call<'_>) {
    static LAST: Throttle = Throttle::new();
    let matches = |pattern: &str, name: &str| scope::grants(pattern, name);
    if rates.iter().all(|(pattern, _)| matches(pattern, name)) || !LAST.is_due() {
        return;
    }
    let tools = call.context.catalog.tools();
    for (pattern, _) in rates {
        let limits = |tool: &Tool| matches(pattern, &format!("tool:{}", tool.name));
        if !tools.iter().any(|tool| limits(tool)) {
            let (request_id, subject) = (call.request_id, &call.identity.subject);
            tracing::warn!(%request_id, subject, pattern, "a rate limit matches no tool");
        }
    }
}

/// The dispatch to executors: one arm per handler.
async fn execute(
    call: &Call<'_>,
    tool: &Tool,
    args: &Map<String, Value>,
) -> Result<Answer, CallError> {
    match &tool.invocation {
        Invocation::Http(http) => {
            let answer = over_http(call, tool, http, args).await;
            answer.map_err(|error| match error {
                HttpError::LongUrl(length) => too_long(length),
                other => ExecError::from(other).into(),
            })
        }
        Invocation::Mcp(remote) => {
            let target = mcp::target(call).map_err(ExecError::from)?;
            let result = exec::mcp::call_tool(remote, args, &target, call.exec_context()).await;
            Ok(Answer::Memory(result.map_err(ExecError::from)?))
        }
    }
}

/// The caller's mistake, and not the upstream's: nothing was sent.
fn too_long(length: usize) -> CallError {
    let most = exec::http::LONGEST_URL;
    CallError::InvalidArgument {
        name: "URL".to_owned(),
        what: format!("the arguments are too long: it would have {length} bytes, at most {most}"),
        missing: false,
    }
}

async fn over_http(
    call: &Call<'_>,
    tool: &Tool,
    invocation: &HttpInvocation,
    args: &Map<String, Value>,
) -> Result<Answer, HttpError> {
    let request = exec::http::Request {
        tool,
        invocation,
        args,
        base_url: credentials::base_url(call.provider, &call.lookup)?,
    };
    let credential = credentials::resolve(call)?;
    exec::http::run(&request, &credential, call.exec_context()).await
}

/// Asks an MCP server for its tools, with the operator's credentials and no tenant's.
pub async fn list(provider: &Arc<Provider>, context: Context<'_>) -> Result<ToolListing, McpError> {
    let identity = Identity::unrestricted();
    let call = listing_call(provider, &identity, context);
    let target = mcp::target(&call)?;
    exec::mcp::list_tools(&target, call.exec_context()).await
}

/// Whether the server has announced a change since that session listed its tools.
pub fn has_changed(provider: &Arc<Provider>, listed_by: u64, context: Context<'_>) -> bool {
    let identity = Identity::unrestricted();
    let call = listing_call(provider, &identity, context);
    mcp::target(&call).is_ok_and(|target| {
        exec::mcp::tools_may_have_changed(&target, listed_by, call.exec_context())
    })
}

fn listing_call<'a>(
    provider: &'a Arc<Provider>,
    identity: &'a Identity,
    context: Context<'a>,
) -> Call<'a> {
    Call {
        provider,
        tool: None,
        identity,
        lookup: Lookup::tool(context.keyring, None),
        upstream_override: None,
        request_id: RequestId::generate(),
        context,
    }
}
