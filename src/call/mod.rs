//! The one pipeline of a tool call, for `/call`, `/mcp` and `ati run` alike:
//! resolve -> authorize -> parse -> validate -> limit -> execute -> shape -> audit.

mod arguments;
mod atip;
mod audit_guard;
mod credentials;
mod files;
mod listing;
mod local_tool;
mod mcp;
pub mod payload;
mod program;
mod program_words;
mod relay;
mod shape;
mod upstream_override;
mod work;

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tracing::Instrument as _;
use url::Url;

use crate::auth::rate::Rate;
use crate::auth::{Identity, scope};
use crate::catalog::schema::Prepared;
use crate::catalog::{
    Catalog, HttpInvocation, Invocation, McpInvocation, Provider, ResultFormat, Tool, Unlisted,
};
use crate::clock;
use crate::config::{FileSettings, ToolSettings};
use crate::credential::{Lookup, UsedSecrets};
use crate::egress::{self, Clients};
use crate::error::{CallError, ExecError};
use crate::exec::cli::Surroundings;
use crate::exec::credentials::SharedCredentials;
use crate::exec::files::Content;
use crate::exec::http::HttpError;
use crate::exec::{self, Answer, ExecContext, JsonWithFiles, SharedState, SpooledJson, Watcher};
use crate::keyring::Keyring;
use crate::request_id::RequestId;
use crate::telemetry::Throttle;
use crate::telemetry::audit::Audit;
use crate::telemetry::trail::CallTrail;
use arguments::validate;
pub use arguments::{Args, MOST_VALUES};
use audit_guard::AuditGuard;
pub use listing::{has_changed, list};
pub use mcp::server_of as mcp_server;
pub use program::text_variables;
pub use relay::{RelayRecord, Relayed};
pub use work::{SMALL_TEXT, Work};

/// The header of a `/call` answer that has what ati wants to tell the caller of a call that went
/// well.
pub const WARNING_HEADER: &str = "x-ati-warning";
/// The header of a `/call` answer that says which handler the tool has, where that is a program.
pub const HANDLER_HEADER: &str = "x-ati-handler";

/// The header of a `/call` answer in which ati put files, as base64.
pub const CAPTURED_HEADER: &str = "x-ati-captured";

/// What calls of one process are made with.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub catalog: &'a Catalog,
    pub keyring: &'a Keyring,
    pub credentials: &'a SharedCredentials,
    pub clients: &'a Arc<Clients>,
    pub limits: &'a ToolSettings,
    pub file_limits: &'a FileSettings,
    pub runtime: &'a SharedState,
    pub audit: &'a Audit,
    pub counting: Counting,
    /// Where programs run, and what they read.
    pub surroundings: Surroundings,
    /// Is shown the progress of calls.
    pub watcher: Option<Watcher<'a>>,
}

impl<'a> Context<'a> {
    /// Begins the call's time.
    pub fn work<'w>(&self, identity: &'w Identity) -> Work<'w>
    where
        'a: 'w,
    {
        let time = self.limits.timeout;
        Work::new(&self.runtime.compute, &identity.subject, time)
    }
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
    pub trail: &'a CallTrail,
    /// The caller speaks MCP: a result of an MCP server is given as that server wrote it.
    pub native: bool,
}

/// The result of a call.
#[derive(Debug)]
pub enum Output {
    /// JSON text: the upstream's own, checked and never parsed into values, or what `extract` made
    /// of it.
    Raw(Box<RawValue>),
    /// The same as `Raw`, where it is too big for memory.
    Spooled(SpooledJson),
    /// JSON that holds files, which are read while it is sent.
    WithFiles(JsonWithFiles),
}

/// A call that went well.
#[derive(Debug)]
pub struct Finished {
    pub output: Output,
    /// How the tool wants its result printed.
    pub format: ResultFormat,
    /// For the caller: arguments that the tool doesn't know.
    pub warnings: Vec<String>,
    /// The output is a whole result of `tools/call`.
    pub is_native: bool,
    /// The tool is a program: the caller's words were its own, and no options of ati.
    pub is_program: bool,
    /// What a program wrote to its standard error, where that is a part of the result.
    pub stderr: Option<String>,
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
    trail: &'a CallTrail,
    /// What the executor sent.
    secrets: &'a UsedSecrets,
    native: bool,
    context: Context<'a>,
}

impl<'a> Call<'a> {
    fn exec_context(&self) -> ExecContext<'a> {
        ExecContext {
            clients: self.context.clients,
            runtime: self.context.runtime,
            limits: self.context.limits,
            file_limits: self.context.file_limits,
            surroundings: self.context.surroundings,
            watcher: self.context.watcher,
            request_id: self.request_id,
            trail: self.trail,
            secrets: self.secrets,
        }
    }

    fn tool_name(&self) -> &str {
        self.tool.map_or("", |tool| &tool.name)
    }
}

/// Runs the pipeline.
pub async fn run(request: Request<'_>, context: Context<'_>) -> Result<Finished, CallError> {
    // First: an unknown tool is 404 for every caller, whatever its scopes.
    let tool = context
        .catalog
        .find(request.name)
        .ok_or_else(|| CallError::UnknownTool(request.name.to_owned()))?;
    request.trail.resolved(&tool.name);
    let work = context.work(request.identity);
    // From here on every outcome is audited.
    let mut guard = AuditGuard::new(
        request.name,
        Some(tool),
        request.identity,
        request.request_id,
        context.audit,
    );
    let secrets = UsedSecrets::default();
    let call = Call {
        provider: &tool.provider,
        tool: Some(tool),
        identity: request.identity,
        lookup: Lookup::tool(context.keyring, request.identity.customer_id.as_deref()),
        upstream_override: None,
        request_id: request.request_id,
        trail: request.trail,
        secrets: &secrets,
        // What `extract` takes out of a result is no content.
        native: request.native && tool.extract.is_none() && tool.provider.mcp().is_some(),
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
    let (args, upstream_url) = (request.args, request.upstream_url);
    let outcome = decide(call, tool, args, upstream_url, &work, &mut guard)
        .instrument(span)
        .await;
    guard.with_file(request.trail.file()).end(&outcome);
    outcome
}

/// Ends a call whose tool can't be looked up: its server hasn't listed its tools. `waited` is how
/// long the call waited for that.
pub fn refuse(
    request: Request<'_>,
    error: CallError,
    waited: Duration,
    context: Context<'_>,
) -> Result<Finished, CallError> {
    let mut guard = AuditGuard::new(
        request.name,
        None,
        request.identity,
        request.request_id,
        context.audit,
    );
    guard.set_args(request.args.audited_unparsed(None));
    let refused = Err(error);
    guard.after(waited).end(&refused);
    refused
}

async fn decide(
    mut call: Call<'_>,
    tool: &Arc<Tool>,
    args: Args<'_>,
    upstream_url: Option<&str>,
    work: &Work<'_>,
    guard: &mut AuditGuard<'_>,
) -> Result<Finished, CallError> {
    // Before the arguments: a caller without the scope learns nothing of what the tool takes, and
    // its arguments cost next to nothing.
    let is_program = tool.invocation.is_program();
    if let Err(refused) = authorize(tool, call.identity, call.context.catalog) {
        guard.set_args(match is_program {
            true => args.audited_words_unparsed(),
            false => args.audited_unparsed(Some(tool)),
        });
        return Err(refused);
    }
    // Before the limit: a call that could never be sent doesn't count against it.
    let (input, unknown) = if is_program {
        let words = args.into_words(work).await?;
        guard.set_args(program::audited(&call, &words));
        program::check(&words)?;
        (Input::Words(words), Vec::new())
    } else {
        let mut given = args.parse(tool, work, &call.context).await?;
        guard.set_args(std::mem::take(&mut given.audited));
        let (size, content) = (given.size, given.content.take());
        let Prepared { args, unknown } = validate(tool, given, work).await?;
        let input = Input::Arguments {
            args,
            size,
            content,
        };
        (input, unknown)
    };
    call.upstream_override = upstream_url
        .map(|url| upstream_override::check(url, &tool.provider, &call.lookup))
        .transpose()?;
    limit(&call, &tool.name)?;
    // Executors measure the call's time themselves, so they are told what is left of it.
    let limits = ToolSettings {
        timeout: work.seconds_left(),
        ..call.context.limits.clone()
    };
    call.context.limits = &limits;
    let (answer, stderr) = execute(&call, tool, input).await?;
    let most = limits.max_response_bytes;
    // A program has a time of its own, which may be longer than the call's.
    let program = tool.program();
    let work = program.map_or(*work, |cli| work.extended(cli.timeout));
    Ok(Finished {
        output: shape::shape(tool, answer, &work, most, call.request_id, call.secrets).await?,
        format: tool.format,
        is_native: call.native,
        warnings: unknown.iter().map(ToString::to_string).collect(),
        is_program,
        stderr,
    })
}

pub fn authorize(tool: &Tool, identity: &Identity, catalog: &Catalog) -> Result<(), CallError> {
    check_end(identity)?;
    if catalog.is_withheld(tool) {
        return Err(CallError::Withheld(tool.name.clone()));
    }
    if tool.is_allowed(&identity.scopes) {
        Ok(())
    } else {
        Err(CallError::OutOfScope(tool.name.clone()))
    }
}

/// A token ends at its `exp`, by this clock. The leeway is for the check of the token itself, so
/// that callers whose clock differs learn why their calls fail.
fn check_end(identity: &Identity) -> Result<(), CallError> {
    match identity.expires {
        Some(exp) if clock::unix_now() >= exp => Err(CallError::ScopesExpired(exp)),
        _ => Ok(()),
    }
}

/// As [`authorize`], before the tool's server has listed it.
pub fn authorize_unlisted(tool: &Unlisted<'_>, identity: &Identity) -> Result<(), CallError> {
    check_end(identity)?;
    if tool.is_allowed(&identity.scopes) {
        Ok(())
    } else {
        Err(CallError::OutOfScope(tool.name.clone()))
    }
}

/// Counts by the canonical name, so that an alias doesn't escape a limit.
fn limit(call: &Call<'_>, tool: &str) -> Result<(), CallError> {
    let (identity, context) = (call.identity, call.context);
    if identity.rates.is_empty() {
        return Ok(());
    }
    let name = format!("tool:{tool}");
    let matching = identity
        .rates
        .iter()
        .filter(|(pattern, _)| scope::grants(pattern, &name));
    warn_of_idle_limits(&identity.rates, &name, call);
    let rates = &context.runtime.rates;
    let counted = match context.counting {
        Counting::InMemory => rates.admit(&identity.subject, matching, clock::unix_millis()),
        Counting::InFile => rates
            .admit_shared(&identity.subject, matching, clock::unix_millis)
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
        retry_after: exceeded.wait.div_ceil(1000).max(1),
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

/// What a tool is called with.
enum Input {
    Arguments {
        args: Map<String, Value>,
        /// Bytes of the text that they were parsed from.
        size: usize,
        /// The file that came with them.
        content: Option<Content>,
    },
    /// Of a program.
    Words(Vec<String>),
}

/// The dispatch to executors: one arm per handler. A text next to the answer is what a program
/// wrote to its standard error. All but HTTP are boxed: each future around this one has room for
/// the largest arm, and is copied as a whole.
async fn execute(
    call: &Call<'_>,
    tool: &Arc<Tool>,
    input: Input,
) -> Result<(Answer, Option<String>), CallError> {
    let (args, size, content) = match input {
        Input::Words(words) => return Ok((Box::pin(program::run(call, words)).await?, None)),
        Input::Arguments {
            args,
            size,
            content,
        } => (args, size, content),
    };
    let answer = match &tool.invocation {
        Invocation::Cmp(invocation) => {
            let ran = Box::pin(local_tool::intent(call, invocation, &args)).await?;
            return Ok((ran.answer, Some(ran.stderr)));
        }
        Invocation::Runfile(invocation) => {
            let ran = Box::pin(local_tool::function(call, invocation, &args)).await?;
            return Ok((ran.answer, Some(ran.stderr)));
        }
        Invocation::Cli => Box::pin(program::run(call, Vec::new())).await,
        Invocation::Http(http) => {
            let answer = over_http(call, tool, http, args, size).await;
            answer.map_err(|error| match error {
                HttpError::LongUrl(length) => too_long(length),
                other => ExecError::from(other).into(),
            })
        }
        Invocation::Mcp(remote) => Box::pin(over_mcp(call, remote, args, size)).await,
        Invocation::Atip(command) => match atip::delegate(call, command) {
            Some(server) => Box::pin(atip::over_mcp(call, server, args, size)).await,
            None => Box::pin(atip::run(call, command, &args)).await,
        },
        Invocation::Files(operation) => Box::pin(files::run(call, *operation, args, content)).await,
    };
    Ok((answer?, None))
}

async fn over_mcp(
    call: &Call<'_>,
    remote: &McpInvocation,
    args: Map<String, Value>,
    size: usize,
) -> Result<Answer, CallError> {
    let target = mcp::target(call).map_err(ExecError::from)?;
    let context = call.exec_context();
    let result = exec::mcp::call_tool(remote, args, size, &target, context, call.native).await;
    Ok(Answer::Memory(result.map_err(ExecError::from)?))
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
    tool: &Arc<Tool>,
    invocation: &HttpInvocation,
    args: Map<String, Value>,
    size: usize,
) -> Result<Answer, HttpError> {
    let request = exec::http::Request {
        tool,
        invocation,
        args,
        size,
        base_url: credentials::base_url(call.provider, &call.lookup)?,
    };
    let upstream = call.provider.base_url();
    call.trail
        .leads_to(upstream.and_then(|url| egress::host_and_port(&url.text)));
    let credential = credentials::resolve(call)?;
    exec::http::run(request, &credential, call.exec_context()).await
}
