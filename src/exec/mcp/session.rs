//! One session with one server, shared by many calls at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rmcp::model::{ErrorCode, ErrorData, JsonObject, PaginatedRequestParams, Tool};
use rmcp::service::ServiceError;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;
use tracing::{Span, debug};

use super::big::{BigArguments, BigMessages, BigResults};
use super::calls::{CallAnswer, StdioCalls};
use super::diagnostics::{STDERR_WAIT, TransportDiagnostics};
use super::handshake::{ClientService, Era};
use super::http::client_failure;
use super::message::NOT_UNDERSTOOD;
use super::progress::ProgressRoutes;
use super::rmcp_call::{self, CallIds};
use super::tool_result::{self, Answered, ToolResult};
use super::{LONGEST_ERROR, McpError};
use crate::backoff::Backoff;
use crate::catalog::McpInvocation;
use crate::credential::Attachment;
use crate::exec::{Progress, Watcher};
use crate::runtime::{ComputePool, PooledSession, Removal};

/// Calls that a server is sent at a time, and how many more may wait.
pub const CONCURRENT_CALLS: usize = 64;
const WAITING_CALLS: usize = 1024;
/// How much of the message of a progress report is shown.
const LONGEST_PROGRESS_MESSAGE: usize = 4096;
/// Bounds of a list of tools.
const MOST_PAGES: usize = 100;
const MOST_TOOLS: usize = 10_000;
const MOST_LIST_MB: usize = 16;
/// How often a server may ask ati to repeat a call with state of the server's own, and the waits
/// between the repetitions.
const MOST_ROUNDS: u32 = 10;
const ROUNDS: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(30));
/// How long a server that didn't answer a call in time has to answer a probe.
const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// What a session and its transport share.
#[derive(Default)]
pub struct SessionLink {
    pub diagnostics: Arc<TransportDiagnostics>,
    pub progress: Arc<ProgressRoutes>,
    /// Dropped with the session, or with a failed handshake. The HTTP transport ends its requests
    /// and streams then: rmcp leaves them running.
    pub lease: watch::Sender<()>,
    /// Set when the server says that its tools have changed.
    pub tools_changed: Arc<AtomicBool>,
    /// Where big messages are worked on.
    pub compute: Arc<ComputePool>,
    pub big_results: Arc<BigResults>,
    /// Over stdio: the way of calls of tools, around rmcp.
    pub calls: Option<StdioCalls>,
}

impl SessionLink {
    pub fn new(compute: Arc<ComputePool>) -> Self {
        SessionLink {
            compute,
            ..SessionLink::default()
        }
    }

    pub fn big_messages(&self, provider: &Arc<str>) -> BigMessages {
        BigMessages {
            compute: self.compute.clone(),
            provider: provider.clone(),
            results: self.big_results.clone(),
        }
    }
}

/// Names a session in the log, from before its handshake on.
pub struct SessionTrace {
    /// Unique in this process.
    pub serial: u64,
    pub span: Span,
}

impl SessionTrace {
    pub fn new(provider: &str, transport: &'static str) -> Self {
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        // Without a parent: the session outlives the request that opened it.
        let span = tracing::info_span!(
            parent: None,
            "mcp_session",
            provider,
            session = serial,
            transport,
            protocol = tracing::field::Empty,
        );
        SessionTrace { serial, span }
    }
}

pub struct Session {
    /// Unique in this process.
    pub serial: u64,
    /// What it was opened with, and what is redacted in everything that the server sends.
    pub attachment: Arc<Attachment>,
    provider: Arc<str>,
    service: ClientService,
    link: SessionLink,
    permits: Semaphore,
    waiting_calls: AtomicUsize,
    /// Whether a probe is under way that finds out if the server still answers.
    probing: AtomicBool,
    unresponsive: AtomicBool,
    span: Span,
}

/// The arguments of a call.
pub enum CallArguments {
    Small(JsonObject),
    Big(BigArguments),
}

/// The tools of a server, and how long the server says the list is valid.
pub struct ToolList {
    pub tools: Vec<Tool>,
    pub valid_for: Option<Duration>,
}

impl PooledSession for Session {
    type Error = McpError;

    fn is_open(&self) -> bool {
        !self.service.is_closed()
            && !self.service.is_transport_closed()
            && !self.unresponsive.load(Ordering::Relaxed)
            && !self.link.calls.as_ref().is_some_and(StdioCalls::have_ended)
    }

    fn end_reason(&self) -> McpError {
        let diagnostics = &self.link.diagnostics;
        diagnostics.cause().unwrap_or_else(|| McpError::Ended {
            provider: self.provider.to_string(),
            what: format!("the server ended{}", diagnostics.detail()),
        })
    }

    fn removed(&self, removal: Removal) {
        let (provider, session) = (&self.provider, self.serial);
        let span = &self.span;
        match removal {
            Removal::Ended => {
                let error = self.end_reason();
                let error = self
                    .attachment
                    .redact_text(error.to_string(), LONGEST_ERROR);
                debug!(parent: span, %provider, session, error, "MCP session ended");
            }
            _ => debug!(parent: span, %provider, session, why = ?removal, "MCP session removed"),
        }
    }
}

impl Session {
    pub fn new(
        trace: SessionTrace,
        provider: Arc<str>,
        service: ClientService,
        link: SessionLink,
        attachment: Arc<Attachment>,
    ) -> Self {
        Session {
            serial: trace.serial,
            attachment,
            provider,
            service,
            link,
            permits: Semaphore::new(CONCURRENT_CALLS),
            waiting_calls: AtomicUsize::new(0),
            probing: AtomicBool::new(false),
            unresponsive: AtomicBool::new(false),
            span: trace.span,
        }
    }

    pub fn protocol(&self) -> String {
        let info = self.service.peer_info();
        info.map(|info| info.protocol_version.to_string())
            .unwrap_or_default()
    }

    pub fn era(&self) -> Era {
        let info = self.service.peer_info();
        info.map_or(Era::Unknown, |info| Era::of_version(&info.protocol_version))
    }

    /// Whether the server has said that its tools have changed, since the last call of this.
    pub fn take_tools_changed(&self) -> bool {
        self.link.tools_changed.swap(false, Ordering::AcqRel)
    }

    /// Calls a tool. The call is cancelled where this future is dropped. `sent` is set once the
    /// server may have received the call. With `native`, the caller wants the whole result.
    pub async fn call_tool(
        &self,
        remote: &McpInvocation,
        arguments: &CallArguments,
        watcher: Option<Watcher<'_>>,
        ids: CallIds,
        native: bool,
        sent: &mut bool,
    ) -> Result<ToolResult, McpError> {
        let _permit = self.acquire_permit().await?;
        if !self.is_open() {
            return Err(self.end_reason());
        }
        *sent = true;
        let mut state = None;
        for round in 1..=MOST_ROUNDS {
            let answered = match &self.link.calls {
                Some(calls) => {
                    let name = &remote.remote_name;
                    let answer = self
                        .send_over_stdio(calls, name, arguments, state.as_deref(), watcher, ids)
                        .await?;
                    read_answer(answer, native)?
                }
                None => {
                    let request = rmcp_call::request(remote, arguments, state.take(), ids);
                    let show =
                        watcher.map(|show| move |progress| show(&self.redact_progress(progress)));
                    match rmcp_call::send(&self.service, &self.link, request, show).await {
                        Ok(answer) => answer.into(),
                        Err(error) => return Err(self.failure(&error).await),
                    }
                }
            };
            match answered {
                Answered::Result(result) => return Ok(result),
                Answered::InputRequired(wanted) => {
                    let asks = wanted.input_requests.is_some_and(|all| !all.is_empty());
                    if asks || wanted.request_state.is_none() {
                        return Err(McpError::Protocol {
                            code: ErrorCode::INVALID_REQUEST.0,
                            message: "the tool wants to ask its user, and there is none".to_owned(),
                        });
                    }
                    state = wanted.request_state;
                    tokio::time::sleep(ROUNDS.delay(round)).await;
                }
                Answered::Other => {
                    return Err(self.garbage("an answer to another question".to_owned()));
                }
            }
        }
        Err(self.garbage(format!("asked for the same call {MOST_ROUNDS} times")))
    }

    /// Sends one request and waits for its answer. Progress reports go to the watcher meanwhile.
    async fn send_over_stdio(
        &self,
        calls: &StdioCalls,
        tool: &str,
        arguments: &CallArguments,
        state: Option<&str>,
        watcher: Option<Watcher<'_>>,
        ids: CallIds,
    ) -> Result<CallAnswer, McpError> {
        let parent = ids.traceparent;
        let mut call = calls.begin().ok_or_else(|| self.end_reason())?;
        let line = match arguments {
            CallArguments::Small(arguments) => {
                calls.line(call.id(), tool, arguments, state, parent)
            }
            CallArguments::Big(BigArguments(arguments)) => {
                let (calls, id, arguments) = (calls.clone(), call.id(), arguments.clone());
                let (tool, state) = (tool.to_owned(), state.map(str::to_owned));
                let encode = move || calls.line(id, &tool, &arguments, state.as_deref(), parent);
                let failed = Err(serde::ser::Error::custom("the call can't be written"));
                let big = self.link.big_messages(&self.provider);
                big.run(failed, encode).await
            }
        };
        let line = line.map_err(|error| self.garbage(error.to_string()))?;
        // Before the call is sent: its server may report at once.
        let reports = watcher.map(|show| (show, self.link.progress.follow(call.progress_token())));
        if let Err(error) = call.send(line).await {
            return Err(self.not_sent(&error).await);
        }
        let answer = match reports {
            None => call.answer().await,
            Some((show, mut reports)) => loop {
                tokio::select! {
                    biased;
                    progress = reports.next() => show(&self.redact_progress(progress)),
                    answer = call.answer() => break answer,
                }
            },
        };
        answer.ok_or_else(|| self.end_reason())
    }

    /// A server may repeat the credential that it was given.
    fn redact_progress(&self, mut progress: Progress) -> Progress {
        let message = progress.message.take();
        let redact = |text| self.attachment.redact_text(text, LONGEST_PROGRESS_MESSAGE);
        progress.message = message.map(redact);
        progress
    }

    /// All pages of the list of tools, within bounds.
    pub async fn list_tools(&self) -> Result<ToolList, McpError> {
        let mut tools = Vec::new();
        let mut cursor = None;
        let mut bytes = 0;
        let mut ttl_ms: Option<u64> = None;
        for _ in 0..MOST_PAGES {
            let mut params = PaginatedRequestParams::default();
            params.cursor = cursor;
            let page = match self.service.list_tools(Some(params)).await {
                Ok(page) => page,
                Err(ServiceError::UnexpectedResponse) => {
                    return Err(self.garbage("a list of tools that can't be read".to_owned()));
                }
                Err(error) => return Err(self.failure(&error).await),
            };
            let listed = page.tools;
            let measure = move || {
                let length = |tool: &Tool| serde_json::to_vec(tool).map_or(0, |text| text.len());
                let length = listed.iter().map(length).sum::<usize>();
                (listed, length)
            };
            let big = self.link.big_messages(&self.provider);
            let (listed, length) = big.run((Vec::new(), 0), measure).await;
            bytes += length;
            tools.extend(listed);
            if tools.len() > MOST_TOOLS || bytes > MOST_LIST_MB << 20 {
                let number = format!("{},{:03}", MOST_TOOLS / 1000, MOST_TOOLS % 1000);
                let bounds = format!("more than {number}, or of more than {MOST_LIST_MB} MB");
                return Err(self.garbage(format!("a list of tools of {bounds}")));
            }
            ttl_ms = ttl_ms.into_iter().chain(page.ttl_ms).min();
            cursor = page.next_cursor;
            if cursor.is_none() {
                let valid_for = ttl_ms.map(Duration::from_millis);
                return Ok(ToolList { tools, valid_for });
            }
        }
        let endless = format!("a list of tools that doesn't end after {MOST_PAGES} pages");
        Err(self.garbage(endless))
    }

    /// Probes the server in the background after a call got no answer in time. Without an answer to
    /// the probe either, the session counts as closed and is replaced.
    pub fn probe(self: &Arc<Self>) {
        if self.probing.swap(true, Ordering::AcqRel) {
            return;
        }
        let session = self.clone();
        tokio::spawn(async move {
            let probe = session.service.list_tools(None);
            let answer = tokio::time::timeout(PROBE_LIMIT, probe).await;
            // A refusal is an answer, too.
            let answered = matches!(answer, Ok(Ok(_) | Err(ServiceError::McpError(_))));
            if !answered {
                let (provider, span) = (&session.provider, &session.span);
                let session = session.serial;
                debug!(parent: span, %provider, session, "MCP server is unresponsive");
            }
            session.unresponsive.store(!answered, Ordering::Relaxed);
            session.probing.store(false, Ordering::Release);
        });
    }

    /// Ends it and waits for that, within the limit: a server behind a URL is told.
    pub async fn close(mut self, limit: Duration) {
        let _ = self.service.close_with_timeout(limit).await;
    }

    /// Waits for a place among the concurrent calls. Refuses where too many calls wait already.
    async fn acquire_permit(&self) -> Result<SemaphorePermit<'_>, McpError> {
        if let Ok(permit) = self.permits.try_acquire() {
            return Ok(permit);
        }
        let before = self.waiting_calls.fetch_add(1, Ordering::AcqRel);
        let _waiting = WaitingCall(&self.waiting_calls);
        if before >= WAITING_CALLS {
            return Err(self.busy());
        }
        self.permits.acquire().await.map_err(|_| self.busy())
    }

    async fn failure(&self, error: &ServiceError) -> McpError {
        match error {
            ServiceError::McpError(error) => refused(error),
            ServiceError::TransportSend(sent) => match client_failure(sent.error.as_ref()) {
                Some(failure) => failure,
                None => self.not_sent(sent.error.as_ref()).await,
            },
            ServiceError::TransportClosed | ServiceError::Cancelled { .. } => self.end_reason(),
            ServiceError::UnexpectedResponse => {
                self.garbage("an answer to another question".to_owned())
            }
            other => self.garbage(other.to_string()),
        }
    }

    /// The error of a message that a server over stdio didn't get.
    async fn not_sent(&self, error: &(dyn std::error::Error + Send + Sync + 'static)) -> McpError {
        if is_queue_full(error) {
            return self.busy();
        }
        // Its stdin broke first; stderr may say why.
        let deadline = Instant::now() + STDERR_WAIT;
        self.link.diagnostics.wait_for_stderr(deadline).await;
        self.end_reason()
    }

    fn busy(&self) -> McpError {
        McpError::Busy {
            provider: self.provider.to_string(),
        }
    }

    fn garbage(&self, what: String) -> McpError {
        McpError::Garbage {
            provider: self.provider.to_string(),
            what,
        }
    }
}

fn read_answer(answer: CallAnswer, native: bool) -> Result<Answered, McpError> {
    match answer {
        CallAnswer::Result(text) => tool_result::read(&text, native)
            .ok_or_else(|| refused(&ErrorData::internal_error(NOT_UNDERSTOOD, None))),
        CallAnswer::Parsed(Ok(result)) => Ok((*result).into()),
        CallAnswer::Parsed(Err(error)) => Err(refused(&error)),
    }
}

/// The server's own error.
fn refused(error: &ErrorData) -> McpError {
    McpError::Protocol {
        code: error.code.0,
        message: error.message.to_string(),
    }
}

/// Counts a call as waiting until it is dropped.
struct WaitingCall<'a>(&'a AtomicUsize);

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether the queue to the server is full, because the server doesn't read.
fn is_queue_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}
