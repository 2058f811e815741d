//! What is asked of a server: a call, or its tools. Which answers are final, and which are worth another try.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::CallToolResult;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};

use super::{McpError, START, Session, Target, open, result};
use crate::catalog::McpInvocation;
use crate::catalog::mcp::{ListedTool, Listing};
use crate::egress::EgressError;
use crate::error::UpstreamFault;
use crate::exec::credentials::{obtain, renew_after_refusal};
use crate::exec::{ExecContext, Watcher};
use crate::runtime::{Key, Pool};

/// One call.
pub async fn call(
    remote: &McpInvocation,
    args: &Map<String, Value>,
    target: &Arc<Target>,
    context: ExecContext<'_>,
) -> Result<Box<RawValue>, McpError> {
    let watcher = context.watcher;
    let question = Call {
        remote,
        args,
        watcher,
    };
    let (result, session) = converse(target, context, context.limits.timeout, question).await?;
    result::shape(&result, &session.secrets)
}

/// What a server said about its tools.
pub struct Told {
    pub listing: Listing,
    /// The session that said so.
    pub by: u64,
    /// How long that holds, where the server knows.
    pub holds: Option<Duration>,
}

/// What tools a server has.
pub async fn list(target: &Arc<Target>, context: ExecContext<'_>) -> Result<Told, McpError> {
    let ((tools, holds), session) = converse(target, context, 2 * START, List).await?;
    let listing = Listing {
        at: crate::clock::unix_now(),
        protocol: session.version(),
        tools: tools.into_iter().map(ListedTool::from).collect(),
    };
    // It is shown to every caller, and kept on disk.
    let mut text = serde_json::to_vec(&listing).unwrap_or_default();
    session.secrets.redact(&mut text);
    let listing = serde_json::from_slice(&text).map_err(|_| McpError::Garbage {
        provider: target.provider.to_string(),
        what: "a list of tools that makes no sense".to_owned(),
    })?;
    Ok(Told {
        listing,
        by: session.serial,
        holds,
    })
}

/// What a session is wanted for.
trait Question {
    type Answer;
    /// Whether asking twice is no worse than once.
    fn repeatable(&self) -> bool;
    /// `sent` is true once the server may have got it.
    fn ask(
        &self,
        session: &Session,
        sent: &mut bool,
    ) -> impl Future<Output = Result<Self::Answer, McpError>> + Send;
}

struct Call<'a> {
    remote: &'a McpInvocation,
    args: &'a Map<String, Value>,
    watcher: Option<Watcher<'a>>,
}

impl Question for Call<'_> {
    type Answer = CallToolResult;

    fn repeatable(&self) -> bool {
        self.remote.repeatable
    }

    async fn ask(&self, session: &Session, sent: &mut bool) -> Result<CallToolResult, McpError> {
        let name = &self.remote.remote_name;
        session
            .call(name, self.args.clone(), self.watcher, sent)
            .await
    }
}

struct List;

impl Question for List {
    type Answer = (Vec<rmcp::model::Tool>, Option<Duration>);

    fn repeatable(&self) -> bool {
        true
    }

    async fn ask(&self, session: &Session, _: &mut bool) -> Result<Self::Answer, McpError> {
        session.list().await
    }
}

/// Ask a server something, within a time that includes everything. A session that is being opened goes on being opened, for the next caller.
async fn converse<Q: Question>(
    target: &Arc<Target>,
    context: ExecContext<'_>,
    limit: Duration,
    question: Q,
) -> Result<(Q::Answer, Arc<Session>), McpError> {
    let timeout = |_| McpError::Timeout {
        provider: target.provider.to_string(),
        seconds: limit.as_secs(),
    };
    let sessions = &context.runtime.sessions;
    let deadline = Instant::now() + limit;
    let mut first = true;
    loop {
        let again = std::mem::take(&mut first);
        let secrets = obtain(&target.credential, target.source, context);
        let secrets = timeout_at(deadline, secrets).await.map_err(timeout)??;
        let key = target.key_of_call();
        let _over = target.is_for_one_call().then(|| OneCall { sessions, key });
        let opened = timeout_at(deadline, open(target, key, &secrets, context)).await;
        let error = match opened.map_err(timeout).flatten() {
            Err(error) => error,
            Ok(session) => {
                let mut sent = false;
                let answer = timeout_at(deadline, question.ask(&session, &mut sent)).await;
                match answer {
                    Ok(Ok(answer)) => return Ok((answer, session)),
                    // The server may have done it, so only where that doesn't matter, and once.
                    Ok(Err(error))
                        if again && broke_off(&error) && (question.repeatable() || !sent) =>
                    {
                        continue;
                    }
                    Ok(Err(error)) => {
                        if may_be_the_session(&error) {
                            sessions.forget(key, &session);
                        }
                        target.clean(error, &session.secrets)
                    }
                    Err(late) => {
                        // One that is for this call is over anyway.
                        if !target.is_for_one_call() {
                            session.suspect();
                        }
                        timeout(late)
                    }
                }
            }
        };
        // One retry: a second refusal is not about the credential's age.
        let renewed = again
            && is_unauthorized(&error)
            && renew_after_refusal(&target.credential, &secrets, context);
        if !renewed {
            return Err(error);
        }
        sessions.pardon(key);
    }
}

/// A session that is for one call is over with it, also where whoever called has left.
struct OneCall<'a> {
    sessions: &'a Pool<McpError>,
    key: Key,
}

impl Drop for OneCall<'_> {
    fn drop(&mut self) {
        self.sessions.discard(self.key);
    }
}

/// In the middle, without an answer.
fn broke_off(error: &McpError) -> bool {
    matches!(
        error,
        McpError::Ended { .. } | McpError::Egress(EgressError::Request(UpstreamFault::Closed))
    )
}

fn is_unauthorized(error: &McpError) -> bool {
    matches!(error, McpError::Status { status: 401, .. })
}

/// Whether another session may be better.
fn may_be_the_session(error: &McpError) -> bool {
    match error {
        McpError::Status { status, .. } => !matches!(status, 403 | 429),
        McpError::Credential(_) | McpError::Egress(_) => true,
        _ => false,
    }
}
