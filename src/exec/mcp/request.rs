//! Requests to a server, a tool call or the list of its tools, and the rules for their one retry.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};

use super::big::{self, BigArguments};
use super::open::lease_session;
use super::rmcp_call::CallIds;
use super::session::{CallArguments, Session, ToolList};
use super::tool_result::ToolResult;
use super::{HANDSHAKE_LIMIT, McpError, Sessions, Target, result};
use crate::catalog::McpInvocation;
use crate::catalog::mcp::{ListedTool, Listing};
use crate::clock;
use crate::credential::Attachment;
use crate::egress::EgressError;
use crate::error::UpstreamFault;
use crate::exec::credentials::{obtain, renew_after_refusal};
use crate::exec::{ExecContext, Watcher};
use crate::runtime::{ComputeError, Key};

/// How long listing the tools may take, the handshake included.
const LIST_LIMIT: Duration = Duration::from_secs(2 * HANDSHAKE_LIMIT.as_secs());

/// `size` is how many bytes of text the arguments were parsed from. With `native` the result is the
/// server's own, and otherwise in the shape of `/call`.
pub async fn call_tool(
    remote: &McpInvocation,
    args: Map<String, Value>,
    size: usize,
    target: &Arc<Target>,
    context: ExecContext<'_>,
    native: bool,
) -> Result<Box<RawValue>, McpError> {
    let deadline = Instant::now() + context.limits.timeout;
    let compute = &context.runtime.compute;
    let args = if size <= big::SMALL {
        CallArguments::Small(args)
    } else {
        CallArguments::Big(BigArguments(Arc::new(args)))
    };
    let call = ToolCall {
        remote,
        args: &args,
        watcher: context.watcher,
        ids: CallIds {
            request: context.request_id,
            traceparent: context.trail.traceparent(),
        },
        native,
    };
    let limit = context.limits.timeout;
    let answered = request_with_retry(target, context, limit, call).await;
    if let CallArguments::Big(args) = args {
        compute.discard(&target.provider, args);
    }
    let (result, session) = answered?;
    context.secrets.add(&session.attachment);
    if result::is_small(&result) {
        return result::made(result, &session.attachment, native);
    }
    let attachment = session.attachment.clone();
    let time = deadline.saturating_duration_since(Instant::now());
    let shape = move || result::made(result, &attachment, native);
    let shaped = compute.run(&target.provider, time, shape).await;
    shaped.map_err(|error| not_worked_on(error, target, limit))?
}

/// The error of work on the threads for long work that has no result.
fn not_worked_on(error: ComputeError, target: &Target, limit: Duration) -> McpError {
    let provider = target.provider.to_string();
    match error {
        ComputeError::Full => McpError::Busy { provider },
        ComputeError::TimedOut => McpError::Timeout {
            provider,
            seconds: limit.as_secs(),
        },
        ComputeError::Failed => McpError::Garbage {
            provider,
            what: "an answer that can't be worked on".to_owned(),
        },
    }
}

/// The tools of a server.
pub struct ToolListing {
    pub listing: Listing,
    /// The serial of the session that gave it.
    pub session: u64,
    /// How long it is valid, where the server says so.
    pub valid_for: Option<Duration>,
}

pub async fn list_tools(
    target: &Arc<Target>,
    context: ExecContext<'_>,
) -> Result<ToolListing, McpError> {
    let (list, session) = request_with_retry(target, context, LIST_LIMIT, ToolsRequest).await?;
    let (attachment, protocol) = (session.attachment.clone(), session.protocol());
    // Always on the threads for that: a list is seldom asked for, and mostly big.
    let clean = move || {
        let listing = Listing {
            at: clock::unix_now(),
            protocol,
            tools: list.tools.into_iter().map(ListedTool::from).collect(),
        };
        // Redacted as strings and as text: it is shown to every caller, and kept on disk.
        let mut value = serde_json::to_value(&listing).unwrap_or_default();
        result::redact_strings(&mut value, &attachment);
        let mut text = serde_json::to_vec(&value).unwrap_or_default();
        attachment.redact(&mut text);
        serde_json::from_slice(&text)
    };
    let compute = &context.runtime.compute;
    let listing = compute.run(&target.provider, LIST_LIMIT, clean).await;
    let listing = listing.map_err(|error| not_worked_on(error, target, LIST_LIMIT))?;
    let listing = listing.map_err(|_| McpError::Garbage {
        provider: target.provider.to_string(),
        what: "a list of tools that makes no sense".to_owned(),
    })?;
    Ok(ToolListing {
        listing,
        session: session.serial,
        valid_for: list.valid_for,
    })
}

/// What a session is asked for.
trait SessionRequest {
    type Answer;
    /// Whether the server may receive it twice.
    fn is_repeatable(&self) -> bool;
    /// Sets `sent` once the server may have received it.
    fn send(
        &self,
        session: &Session,
        sent: &mut bool,
    ) -> impl Future<Output = Result<Self::Answer, McpError>> + Send;
}

struct ToolCall<'a> {
    remote: &'a McpInvocation,
    args: &'a CallArguments,
    watcher: Option<Watcher<'a>>,
    ids: CallIds,
    native: bool,
}

impl SessionRequest for ToolCall<'_> {
    type Answer = ToolResult;

    fn is_repeatable(&self) -> bool {
        self.remote.repeatable
    }

    async fn send(&self, session: &Session, sent: &mut bool) -> Result<ToolResult, McpError> {
        let (remote, args) = (self.remote, self.args);
        let (watcher, ids) = (self.watcher, self.ids);
        session
            .call_tool(remote, args, watcher, ids, self.native, sent)
            .await
    }
}

struct ToolsRequest;

impl SessionRequest for ToolsRequest {
    type Answer = ToolList;

    fn is_repeatable(&self) -> bool {
        true
    }

    async fn send(&self, session: &Session, _: &mut bool) -> Result<ToolList, McpError> {
        session.list_tools().await
    }
}

/// A request that failed on a session, or without one.
struct FailedRequest {
    error: McpError,
    /// None where it was not opened, or where the request timed out.
    session: Option<Arc<Session>>,
    /// Whether the same request on another session can do no harm, and may succeed.
    is_retryable: bool,
}

/// Leases a session and sends a request on it, with one retry. `limit` bounds all of it. A session
/// that is still being opened when the time is over goes on being opened, for the next caller.
async fn request_with_retry<R: SessionRequest>(
    target: &Arc<Target>,
    context: ExecContext<'_>,
    limit: Duration,
    request: R,
) -> Result<(R::Answer, Arc<Session>), McpError> {
    let timeout = || McpError::Timeout {
        provider: target.provider.to_string(),
        seconds: limit.as_secs(),
    };
    let sessions = &context.runtime.sessions;
    let deadline = Instant::now() + limit;
    let mut may_retry = true;
    loop {
        let attachment = obtain(&target.credential, target.source, context);
        let attachment = timeout_at(deadline, attachment).await;
        let attachment = attachment.map_err(|_| timeout())??;
        let key = target.pool_key();
        let _discard = target
            .is_for_one_call()
            .then(|| DiscardOnDrop { sessions, key });
        context.trail.attempt();
        let _wait = context.trail.wait();
        let attempt = attempt(target, key, &attachment, context, deadline, &request);
        let failed = match attempt.await {
            Ok(answered) => return Ok(answered),
            Err(None) => return Err(timeout()),
            Err(Some(failed)) => failed,
        };
        if may_retry && failed.is_retryable {
            may_retry = false;
            continue;
        }
        let error = match failed.session {
            None => failed.error,
            Some(session) => {
                if may_be_the_session(&failed.error) {
                    sessions.replace(key, &session);
                }
                target.redact(failed.error, &session.attachment)
            }
        };
        // The credential was good when it was minted. A second refusal has another cause.
        if may_retry
            && is_unauthorized(&error)
            && renew_after_refusal(&target.credential, &attachment, context)
        {
            may_retry = false;
            sessions.forgive(key);
            continue;
        }
        return Err(error);
    }
}

/// One attempt. `Err(None)`: the time is over.
async fn attempt<R: SessionRequest>(
    target: &Arc<Target>,
    key: Key,
    attachment: &Arc<Attachment>,
    context: ExecContext<'_>,
    deadline: Instant,
    request: &R,
) -> Result<(R::Answer, Arc<Session>), Option<FailedRequest>> {
    let leased = timeout_at(deadline, lease_session(target, key, attachment, context)).await;
    let session = leased.map_err(|_| None)?.map_err(|error| FailedRequest {
        error,
        session: None,
        is_retryable: false,
    })?;
    let mut sent = false;
    match timeout_at(deadline, request.send(&session, &mut sent)).await {
        Ok(Ok(answer)) => Ok((answer, session)),
        Ok(Err(error)) => Err(Some(FailedRequest {
            is_retryable: broke_off(&error) && (request.is_repeatable() || !sent),
            session: Some(session),
            error,
        })),
        Err(_) => {
            // A session for one call is discarded anyway.
            if !target.is_for_one_call() {
                session.probe();
            }
            Err(None)
        }
    }
}

/// Discards the session of one call when the call is over, also where the caller has left.
struct DiscardOnDrop<'a> {
    sessions: &'a Sessions,
    key: Key,
}

impl Drop for DiscardOnDrop<'_> {
    fn drop(&mut self) {
        self.sessions.discard(self.key);
    }
}

/// Whether the connection ended before the answer.
fn broke_off(error: &McpError) -> bool {
    matches!(
        error,
        McpError::Ended { .. } | McpError::Egress(EgressError::Request(UpstreamFault::Closed))
    )
}

fn is_unauthorized(error: &McpError) -> bool {
    matches!(error, McpError::Status { status: 401, .. })
}

/// Whether the next request should get another session.
fn may_be_the_session(error: &McpError) -> bool {
    match error {
        McpError::Status { status, .. } => !matches!(status, 403 | 429),
        McpError::Credential(_) | McpError::Egress(_) => true,
        _ => false,
    }
}
