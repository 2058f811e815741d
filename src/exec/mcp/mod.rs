//! Tools of MCP servers: sessions that are opened once and shared by all who present the same.

mod http;
mod lines;
mod news;
mod result;
mod session;
mod trouble;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::time::timeout_at;
use url::Url;
use zeroize::Zeroizing;

pub use session::{Era, Session};

use self::http::Endpoint;
use crate::catalog::Tool;
use crate::catalog::mcp::{Listed, Listing};
use crate::credential::Attachment;
use crate::egress::Clients;
use crate::error::{McpError, ToolError};
use crate::exec::http::{Means, Presents, obtain};
use crate::process::{self, Resident};
use crate::runtime::Key;
use lines::Lines;
use news::News;
use trouble::Trouble;

/// How long a server may take to get ready, and to list its tools.
const START: Duration = Duration::from_secs(30);
const GOODBYE: Duration = Duration::from_secs(2);
const LONGEST_ERROR: usize = 4096;

/// A server, and what we are to it: everything filled in.
pub struct Target {
    pub provider: Arc<str>,
    /// What it depends on, hashed: whoever has the same, shares the session.
    pub key: Key,
    pub server: Server,
    pub presents: Presents,
    pub source: Option<IpAddr>,
    /// The URL as the manifest has it: what may be told.
    pub told_url: String,
}

pub enum Server {
    Program {
        program: String,
        args: Vec<String>,
        env: Vec<(String, Zeroizing<String>)>,
    },
    Endpoint(Url),
}

/// One call.
pub async fn call(
    tool: &Tool,
    args: &Map<String, Value>,
    target: &Arc<Target>,
    means: Means<'_>,
) -> Result<Box<RawValue>, McpError> {
    let limit = means.limits.timeout;
    let timeout = |_| McpError::Timeout {
        provider: target.provider.to_string(),
        seconds: limit.as_secs(),
    };
    // Everything included. A session that is being opened goes on being opened, for the next caller.
    let deadline = tokio::time::Instant::now() + limit;
    let mut first = true;
    loop {
        let session = timeout_at(deadline, session(target, means)).await;
        let session = session.map_err(timeout)??;
        let mut sent = false;
        let answer = session.call(&tool.endpoint, args.clone(), means.watcher, &mut sent);
        let answer = timeout_at(deadline, answer).await;
        let answer = answer.map_err(timeout).flatten();
        let again = std::mem::take(&mut first);
        let error = match answer {
            Ok(result) => return result::shape(&result, &session.secrets),
            Err(error) => error,
        };
        match error {
            // The server may have done it, so only where that doesn't matter, and once.
            McpError::Ended { .. } if (tool.repeatable || !sent) && again => {}
            // What was minted was good when it was made. Once: a second refusal means something else.
            McpError::Status { status: 401, .. } if again && target.is_minted() => {
                if let Presents::Minted(mint) = &target.presents {
                    means.runtime.minted.forget(mint.key, &session.secrets);
                }
                means.runtime.sessions.forget(target.key);
            }
            error => {
                // Whatever it is, a new session may be better.
                if matches!(error, McpError::Status { .. } | McpError::Call(_)) {
                    means.runtime.sessions.forget(target.key);
                }
                return Err(target.clean(error, &session.secrets));
            }
        }
    }
}

/// What tools a server has, and the session that said so.
pub async fn list(target: &Arc<Target>, means: Means<'_>) -> Result<(Listing, u64), McpError> {
    let session = session(target, means).await?;
    let tools = session.list(START).await;
    let tools = tools.map_err(|error| target.clean(error, &session.secrets))?;
    let listing = Listing {
        at: crate::runtime::now_millis() / 1000,
        protocol: session.version(),
        tools: tools.into_iter().map(Listed::from).collect(),
    };
    // It is shown to every caller, and kept on disk.
    let mut text = serde_json::to_vec(&listing).unwrap_or_default();
    session.secrets.scrub(&mut text);
    let listing = serde_json::from_slice(&text).map_err(|_| McpError::Garbage {
        provider: target.provider.to_string(),
        what: "a list of tools that makes no sense".to_owned(),
    })?;
    Ok((listing, session.serial))
}

/// Whether there is news of a list that this session gave: the server has said so, or another session has taken its place.
/// Where sessions come and go with what is minted for them, a new one is no news.
pub fn has_changed(target: &Target, listed_by: u64, means: Means<'_>) -> bool {
    let open = means.runtime.sessions.open::<Session>();
    let mut ours = open.iter().filter(|(key, _)| *key == target.key);
    ours.any(|(_, session)| {
        let another = session.serial != listed_by && !target.is_minted();
        another || session.take_changed()
    })
}

/// End every session, and wait for that a moment. For a process that is about to end.
pub async fn close_all(runtime: &crate::runtime::Runtime) {
    let open = runtime.sessions.open::<Session>();
    runtime.sessions.clear();
    let open = open
        .into_iter()
        .filter_map(|(_, session)| Arc::into_inner(session));
    futures::future::join_all(open.map(|session| session.close(GOODBYE))).await;
}

async fn session(target: &Arc<Target>, means: Means<'_>) -> Result<Arc<Session>, McpError> {
    let secrets = obtain(&target.presents, target.source, means).await?;
    let session = open(target, &secrets, means).await?;
    // What was minted anew is for a session of its own.
    if target.is_minted() && !Arc::ptr_eq(&session.secrets, &secrets) {
        means.runtime.sessions.forget(target.key);
        return open(target, &secrets, means).await;
    }
    Ok(session)
}

async fn open(
    target: &Arc<Target>,
    secrets: &Arc<Attachment>,
    means: Means<'_>,
) -> Result<Arc<Session>, McpError> {
    let (target, secrets, clients) = (target.clone(), secrets.clone(), means.clients.clone());
    let key = target.key;
    let open = move |note: u8| async move {
        let era = match note {
            1 => Era::Handshake,
            2 => Era::Stateless,
            _ => Era::Unknown,
        };
        let session = begin(&target, &secrets, clients, era).await;
        let session = session.map_err(|error| target.clean(error, &secrets))?;
        let note = match session.era() {
            Era::Unknown => 0,
            Era::Handshake => 1,
            Era::Stateless => 2,
        };
        Ok((session, note))
    };
    means.runtime.sessions.get(key, open).await
}

async fn begin(
    target: &Target,
    secrets: &Arc<Attachment>,
    clients: Arc<Clients>,
    era: Era,
) -> Result<Session, McpError> {
    let provider = &target.provider;
    let trouble = Arc::new(Trouble::default());
    let news = Arc::new(News::default());
    match &target.server {
        Server::Program { program, args, env } => {
            let mut env = env.clone();
            env.extend(secrets.environment());
            let resident = Resident {
                program: program.clone(),
                args: args.clone(),
                env,
            };
            let streams = process::start(resident)
                .await
                .map_err(|e| McpError::Spawn {
                    provider: provider.to_string(),
                    what: format!("{program}: {e}"),
                })?;
            let lines = Lines::new(
                provider,
                streams,
                secrets.clone(),
                trouble.clone(),
                news.clone(),
            );
            Session::begin(provider, lines, era, trouble, news, secrets, START).await
        }
        Server::Endpoint(url) => {
            let endpoint = Endpoint::new(
                provider,
                clients,
                target.source,
                url.clone(),
                secrets.clone(),
                news.clone(),
            );
            // The address is ours to know: rmcp gets a name for it.
            let config = StreamableHttpClientTransportConfig::with_uri(format!("mcp:{provider}"));
            let transport = StreamableHttpClientTransport::with_client(endpoint, config);
            Session::begin(provider, transport, era, trouble, news, secrets, START).await
        }
    }
}

impl Target {
    fn is_minted(&self) -> bool {
        matches!(self.presents, Presents::Minted(_))
    }

    /// A server may repeat what it was told in what it complains about, at any length.
    fn clean(&self, error: McpError, secrets: &Attachment) -> McpError {
        let clean = |text: String| {
            let mut bytes = text.into_bytes();
            secrets.scrub(&mut bytes);
            let text = String::from_utf8_lossy(&bytes);
            text[..text.floor_char_boundary(LONGEST_ERROR)].to_owned()
        };
        match error {
            McpError::Ended { provider, what } => McpError::Ended {
                provider,
                what: clean(what),
            },
            McpError::Garbage { provider, what } => McpError::Garbage {
                provider,
                what: clean(what),
            },
            McpError::StartTimeout { provider, seconds } => McpError::StartTimeout {
                provider: clean(provider),
                seconds,
            },
            McpError::Protocol { code, message } => McpError::Protocol {
                code,
                message: clean(message),
            },
            // Its key may be part of the host.
            McpError::Call(ToolError::Blocked(_)) => {
                McpError::Call(ToolError::Blocked(self.told_url.clone()))
            }
            other => other,
        }
    }
}
