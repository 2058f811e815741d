//! The one pipeline of a tool call, for `/call`, `/mcp` and `ati run` alike:
//! resolve -> authorize -> parse -> validate -> policy -> limit -> execute -> shape -> audit.

mod admit;
mod arguments;
mod atip;
mod audit_guard;
mod credentials;
mod explain;
mod files;
mod listing;
mod local_tool;
mod mcp;
mod own_request;
pub mod payload;
mod policy;
mod program;
mod program_words;
mod question;
mod relay;
mod report;
mod shape;
mod upstream_override;
mod work;

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tracing::Instrument as _;
use url::Url;

use crate::auth::Identity;
use crate::catalog::{
    Catalog, HttpInvocation, Invocation, McpInvocation, Provider, ResultFormat, Tool,
};
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
use crate::policy::Policy;
use crate::request_id::RequestId;
use crate::telemetry::audit::Audit;
use crate::telemetry::trail::CallTrail;
use admit::{CallParts, ReadyCall, admit, check_end, limit};
pub use admit::{authorize, authorize_unlisted};
pub use arguments::{Args, MOST_VALUES};
use audit_guard::AuditGuard;
pub use explain::explain;
pub use listing::{has_changed, list};
pub use mcp::server_of as mcp_server;
pub use own_request::{Endpoint, endpoint};
pub use program::text_variables;
pub use question::{QuestionRecord, limit_question};
pub use relay::{RelayRecord, Relayed};
use report::Report;
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
    pub policy: &'a Policy,
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
    /// The token of a confirmation, where the caller has one.
    pub confirm: Option<&'a str>,
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
    fn new(
        request: &Request<'a>,
        tool: &'a Arc<Tool>,
        secrets: &'a UsedSecrets,
        context: Context<'a>,
    ) -> Self {
        let customer = request.identity.customer_id.as_deref();
        Call {
            provider: &tool.provider,
            tool: Some(tool),
            identity: request.identity,
            lookup: Lookup::tool(context.keyring, customer),
            upstream_override: None,
            request_id: request.request_id,
            trail: request.trail,
            secrets,
            // What `extract` takes out of a result is no content.
            native: request.native && tool.extract.is_none() && tool.provider.mcp().is_some(),
            context,
        }
    }

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

/// First: an unknown tool is 404 for every caller, whatever its scopes.
fn resolve<'a>(name: &str, context: &Context<'a>) -> Result<&'a Arc<Tool>, CallError> {
    let tool = context.catalog.find(name);
    tool.ok_or_else(|| CallError::UnknownTool(name.to_owned()))
}

/// Runs the pipeline.
pub async fn run(request: Request<'_>, context: Context<'_>) -> Result<Finished, CallError> {
    let tool = resolve(request.name, &context)?;
    request.trail.resolved(&tool.name);
    request.trail.provided_by(&tool.provider.name);
    let work = context.work(request.identity);
    // From here on every outcome is audited.
    let mut guard = AuditGuard::new(
        request.name,
        Some(tool),
        request.identity,
        request.request_id,
        context.audit,
        request.trail,
    );
    let secrets = UsedSecrets::default();
    let call = Call::new(&request, tool, &secrets, context);
    // At debug level, because a span costs every call CPU time. Lines at higher levels have the id
    // as a field.
    let span = tracing::debug_span!(
        "tool_call",
        request_id = %request.request_id,
        tool = tool.name,
        provider = tool.provider.name,
    );
    let asked = CallParts {
        args: request.args,
        upstream_url: request.upstream_url,
        confirm: request.confirm,
    };
    let outcome = decide(call, tool, asked, &work, &mut guard)
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
        request.trail,
    );
    guard.set_args(request.args.audited_unparsed(None));
    let refused = Err(error);
    guard.after(waited).end(&refused);
    refused
}

async fn decide(
    mut call: Call<'_>,
    tool: &Arc<Tool>,
    asked: CallParts<'_>,
    work: &Work<'_>,
    guard: &mut AuditGuard<'_>,
) -> Result<Finished, CallError> {
    let mut report = Report::of_call(guard);
    let ReadyCall { input, unknown } = admit(&mut call, tool, asked, work, &mut report).await?;
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
        warnings: unknown,
        is_program: tool.invocation.is_program(),
        stderr,
    })
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
    let (base_url, credential) = credentials::for_http(call)?;
    let request = exec::http::Request {
        tool,
        invocation,
        args,
        size,
        base_url,
    };
    let upstream = call.provider.base_url();
    call.trail
        .leads_to(upstream.and_then(|url| egress::host_and_port(&url.text)));
    exec::http::run(request, &credential, call.exec_context()).await
}
