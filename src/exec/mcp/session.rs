//! One session with one server, used by many at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam,
    ClientConfig, ClientRequest, ErrorCode, Implementation, JsonObject, PaginatedRequestParams,
    ProtocolVersion, RequestId, ServerResult, Tool,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, NotificationContext, Peer,
    PeerRequestOptions, RunningService, ServiceError,
};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use rmcp::{ClientCacheConfig, RoleClient};
use tokio::sync::{Semaphore, watch};

use super::McpError;
use super::http::Refused;
use super::news::News;
use super::trouble::Trouble;
use crate::credential::Attachment;
use crate::exec::{Progress, Watcher};
use crate::runtime::Pooled;

/// Calls that a server is given at a time, and how many may wait for that.
pub const AT_A_TIME: usize = 64;
const WAITING: usize = 1024;
/// More of what a server says about its progress is no news.
const LONGEST_NEWS: usize = 4096;
/// A list of tools is followed this far.
const MOST_PAGES: usize = 100;
const MOST_TOOLS: usize = 10_000;
const MOST_BYTES: usize = 16 << 20;
/// How often a server may ask for the same call again with notes of its own, and how long it is left alone in between.
const MOST_ROUNDS: u32 = 10;
const FIRST_ROUND: Duration = Duration::from_millis(50);

/// How long a server that didn't answer a call in time has to answer anything at all.
const LAST_CHANCE: Duration = Duration::from_secs(10);

/// What a session and its transport have in common.
#[derive(Default)]
pub struct Link {
    pub trouble: Arc<Trouble>,
    pub news: Arc<News>,
    /// Dropped with the session, or where there will be none.
    pub lease: watch::Sender<()>,
}

/// Which way a server wants to be spoken to, once that is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Era {
    #[default]
    Unknown,
    /// `initialize` and a session.
    Handshake,
    /// Every request for itself.
    Stateless,
}

impl Era {
    /// Of a server that has agreed to this revision before.
    pub fn of(protocol: &str) -> Self {
        let version = serde_json::from_value::<ProtocolVersion>(protocol.into());
        match version.map(|version| version.has_initialize()) {
            Ok(true) => Era::Handshake,
            Ok(false) => Era::Stateless,
            Err(_) => Era::Unknown,
        }
    }
}

/// Our side of a session: nothing is offered to servers but to hear that their tools have changed.
struct Face {
    changed: Arc<AtomicBool>,
}

impl ClientHandler for Face {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        info.client_info = Implementation::new("ati", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.store(true, Ordering::Release);
    }
}

/// Tells a server that nobody waits for its answer any more, unless it has come.
struct Waiting {
    peer: Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let reason = Some("nobody waits for it any more".to_owned());
            let _ = peer
                .notify_cancelled(CancelledNotificationParam::new(Some(id), reason))
                .await;
        });
    }
}

pub struct Session {
    /// No two are the same.
    pub serial: u64,
    /// What it was opened with, and what has to be looked for in whatever it says.
    pub secrets: Arc<Attachment>,
    provider: Arc<str>,
    service: RunningService<RoleClient, Face>,
    link: Link,
    places: Semaphore,
    waiting: AtomicUsize,
    changed: Arc<AtomicBool>,
    /// Whether somebody finds out if it still answers, and whether it doesn't.
    suspected: AtomicBool,
    mute: AtomicBool,
}

impl Pooled<McpError> for Session {
    fn is_open(&self) -> bool {
        !self.service.is_closed()
            && !self.service.is_transport_closed()
            && !self.mute.load(Ordering::Relaxed)
    }

    fn end(&self) -> McpError {
        self.ended()
    }
}

impl Session {
    /// The handshake, in whichever era the server lives.
    pub async fn begin<T: Transport<RoleClient> + 'static>(
        provider: &Arc<str>,
        transport: T,
        era: Era,
        link: Link,
        secrets: &Arc<Attachment>,
        limit: Duration,
    ) -> Result<Self, McpError> {
        let trouble = &link.trouble;
        let changed = Arc::new(AtomicBool::new(false));
        let face = Face {
            changed: changed.clone(),
        };
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        let mode = match era {
            Era::Unknown => ClientLifecycleMode::Auto {
                preferred_versions,
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            },
            Era::Handshake => ClientLifecycleMode::Initialize,
            Era::Stateless => ClientLifecycleMode::Discover { preferred_versions },
        };
        let begun = tokio::time::timeout(limit, face.serve_with_lifecycle(transport, mode)).await;
        let service = match begun {
            Err(_) if trouble.heard_garbage_only() => {
                return Err(McpError::Garbage {
                    provider: provider.to_string(),
                    what: format!(
                        "the server was not ready within {} s{}",
                        limit.as_secs(),
                        trouble.circumstances()
                    ),
                });
            }
            Err(_) => {
                return Err(McpError::StartTimeout {
                    provider: format!("{provider}{}", trouble.circumstances()),
                    seconds: limit.as_secs(),
                });
            }
            Ok(Err(e)) => return Err(unopened(provider, &e, trouble)),
            Ok(Ok(service)) => service,
        };
        // What a server says now is what is asked for; lists are kept elsewhere.
        let uncached = ClientCacheConfig::disabled();
        service.peer().set_response_cache_config(uncached).await;
        let capable = service
            .peer_info()
            .is_some_and(|info| info.capabilities.tools.is_some());
        if !capable {
            return Err(McpError::NoTools);
        }
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        Ok(Session {
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            secrets: secrets.clone(),
            provider: provider.clone(),
            service,
            link,
            places: Semaphore::new(AT_A_TIME),
            waiting: AtomicUsize::new(0),
            changed,
            suspected: AtomicBool::new(false),
            mute: AtomicBool::new(false),
        })
    }

    pub fn version(&self) -> String {
        let info = self.service.peer_info();
        info.map(|info| info.protocol_version.to_string())
            .unwrap_or_default()
    }

    pub fn era(&self) -> Era {
        let info = self.service.peer_info();
        match info.map(|info| info.protocol_version.has_initialize()) {
            Some(true) => Era::Handshake,
            Some(false) => Era::Stateless,
            None => Era::Unknown,
        }
    }

    /// Whether the server has said that its tools have changed, since the last time somebody asked.
    pub fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::AcqRel)
    }

    /// Dropped, the call is cancelled. `sent` is true once the server may have got it.
    pub async fn call(
        &self,
        name: &str,
        arguments: JsonObject,
        watcher: Option<Watcher<'_>>,
        sent: &mut bool,
    ) -> Result<CallToolResult, McpError> {
        let _place = self.place().await?;
        if !self.is_open() {
            return Err(self.ended());
        }
        *sent = true;
        let mut params = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments);
        for round in 0..MOST_ROUNDS {
            let answer = self.ask(params.clone(), watcher).await;
            match answer.map_err(|e| self.failed(&e))? {
                ServerResult::CallToolResult(result) => return Ok(result),
                ServerResult::InputRequiredResult(wanted) => {
                    let asks = wanted.input_requests.is_some_and(|all| !all.is_empty());
                    if asks || wanted.request_state.is_none() {
                        return Err(McpError::Protocol {
                            code: ErrorCode::INVALID_REQUEST.0,
                            message: "the tool wants to ask its user, and there is none".to_owned(),
                        });
                    }
                    params.request_state = wanted.request_state;
                    tokio::time::sleep(FIRST_ROUND * 2u32.pow(round)).await;
                }
                _ => return Err(self.failed(&ServiceError::UnexpectedResponse)),
            }
        }
        Err(McpError::Garbage {
            provider: self.provider.to_string(),
            what: format!("asked for the same call {MOST_ROUNDS} times"),
        })
    }

    async fn ask(
        &self,
        params: CallToolRequestParams,
        watcher: Option<Watcher<'_>>,
    ) -> Result<ServerResult, ServiceError> {
        let peer = self.service.peer();
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let mut request = peer
            .send_cancellable_request(request, PeerRequestOptions::no_options())
            .await?;
        let mut waiting = Waiting {
            peer: peer.clone(),
            id: Some(request.id.clone()),
        };
        let answer = match watcher {
            None => (&mut request.rx).await,
            Some(tell) => {
                let mut news = self.link.news.follow(request.progress_token.clone());
                loop {
                    tokio::select! {
                        biased;
                        progress = news.next() => tell(&self.clean(progress)),
                        answer = &mut request.rx => break answer,
                    }
                }
            }
        };
        waiting.id = None;
        answer.unwrap_or(Err(ServiceError::TransportClosed))
    }

    /// A server may repeat what it was told.
    fn clean(&self, mut progress: Progress) -> Progress {
        let message = progress.message.take();
        progress.message = message.map(|text| self.secrets.redact_text(text, LONGEST_NEWS));
        progress
    }

    /// All pages, within bounds, and for how long they hold, where the server says so.
    pub async fn list(&self) -> Result<(Vec<Tool>, Option<Duration>), McpError> {
        let endless = |what: &str| McpError::Garbage {
            provider: self.provider.to_string(),
            what: format!("a list of tools {what}"),
        };
        let mut tools = Vec::new();
        let mut cursor = None;
        let mut bytes = 0;
        let mut holds: Option<u64> = None;
        for _ in 0..MOST_PAGES {
            let mut params = PaginatedRequestParams::default();
            params.cursor = cursor;
            let page = self.service.list_tools(Some(params)).await;
            let page = page.map_err(|e| self.failed(&e))?;
            let length = |tool: &Tool| serde_json::to_vec(tool).map_or(0, |text| text.len());
            bytes += page.tools.iter().map(length).sum::<usize>();
            tools.extend(page.tools);
            if tools.len() > MOST_TOOLS || bytes > MOST_BYTES {
                return Err(endless("of more than 10,000, or of more than 16 MB"));
            }
            holds = holds.into_iter().chain(page.ttl_ms).min();
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok((tools, holds.map(Duration::from_millis)));
            }
        }
        Err(endless("that doesn't end after 100 pages"))
    }

    /// A call got no answer in time. That may be the call, or the server: one that doesn't answer at all any more is replaced.
    pub fn suspect(self: &Arc<Self>) {
        if self.suspected.swap(true, Ordering::AcqRel) {
            return;
        }
        let session = self.clone();
        tokio::spawn(async move {
            let asked = tokio::time::timeout(LAST_CHANCE, session.service.list_tools(None)).await;
            // A refusal is an answer, too.
            let lives = matches!(asked, Ok(Ok(_) | Err(ServiceError::McpError(_))));
            session.mute.store(!lives, Ordering::Relaxed);
            session.suspected.store(false, Ordering::Release);
        });
    }

    /// End it, and wait for that a moment: a server behind a URL is told.
    pub async fn close(mut self, limit: Duration) {
        let _ = self.service.close_with_timeout(limit).await;
    }

    async fn place(&self) -> Result<tokio::sync::SemaphorePermit<'_>, McpError> {
        if let Ok(place) = self.places.try_acquire() {
            return Ok(place);
        }
        struct Waiting<'a>(&'a AtomicUsize);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::AcqRel);
            }
        }
        let before = self.waiting.fetch_add(1, Ordering::AcqRel);
        let _waiting = Waiting(&self.waiting);
        let busy = || McpError::Busy {
            provider: self.provider.to_string(),
        };
        if before >= WAITING {
            return Err(busy());
        }
        self.places.acquire().await.map_err(|_| busy())
    }

    fn failed(&self, error: &ServiceError) -> McpError {
        match error {
            ServiceError::McpError(error) => McpError::Protocol {
                code: error.code.0,
                message: error.message.to_string(),
            },
            ServiceError::TransportSend(sent) if is_full(sent.error.as_ref()) => McpError::Busy {
                provider: self.provider.to_string(),
            },
            ServiceError::TransportSend(sent) => {
                refusal(sent.error.as_ref()).unwrap_or_else(|| self.ended())
            }
            ServiceError::TransportClosed | ServiceError::Cancelled { .. } => self.ended(),
            ServiceError::UnexpectedResponse => McpError::Garbage {
                provider: self.provider.to_string(),
                what: "an answer to another question".to_owned(),
            },
            other => McpError::Garbage {
                provider: self.provider.to_string(),
                what: other.to_string(),
            },
        }
    }

    fn ended(&self) -> McpError {
        self.link
            .trouble
            .cause()
            .unwrap_or_else(|| McpError::Ended {
                provider: self.provider.to_string(),
                what: format!("the server ended{}", self.link.trouble.circumstances()),
            })
    }
}

/// Whether the server doesn't read what it was sent before.
fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// What our own way out had to say about it.
fn refusal(error: &(dyn std::error::Error + 'static)) -> Option<McpError> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(StreamableHttpError::Client(Refused(refused))) =
            error.downcast_ref::<StreamableHttpError<Refused>>()
        {
            return Some(refused.clone());
        }
        next = error.source();
    }
    None
}

fn unopened(provider: &Arc<str>, error: &ClientInitializeError, trouble: &Trouble) -> McpError {
    if let Some(cause) = trouble.cause() {
        return cause;
    }
    let ended = |what: &str| McpError::Ended {
        provider: provider.to_string(),
        what: format!("{what}{}", trouble.circumstances()),
    };
    match error {
        ClientInitializeError::JsonRpcError(error) => McpError::Protocol {
            code: error.code.0,
            message: error.message.to_string(),
        },
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
            unopened(provider, fallback, trouble)
        }
        ClientInitializeError::TransportError { error, .. } => {
            refusal(error.error.as_ref()).unwrap_or_else(|| ended("the connection broke"))
        }
        ClientInitializeError::ConnectionClosed(_) => ended("the server ended before it was ready"),
        other => McpError::Garbage {
            provider: provider.to_string(),
            what: format!(
                "a handshake that makes no sense: {}",
                crate::text::clip(&other.to_string(), 16 << 10)
            ),
        },
    }
}
