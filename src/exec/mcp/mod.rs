//! Tools of MCP servers: sessions that are opened once and shared by all who present the same.

mod ask;
mod bounded;
mod error;
mod http;
mod lines;
mod news;
mod outbox;
mod pace;
mod result;
mod session;
mod trouble;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use url::Url;
use zeroize::Zeroizing;

pub use ask::{Told, call, list};
pub use error::McpError;
pub use session::Session;

use self::http::Endpoint;
use crate::catalog::mcp::Listing;
use crate::credential::Attachment;
use crate::egress::{Clients, EgressError};
use crate::exec::credentials::CallCredential;
use crate::exec::{ExecContext, SharedState};
use crate::process::{self, Resident};
use crate::runtime::Key;
use lines::Lines;
use session::{AT_A_TIME, Era, Link};

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
    pub credential: CallCredential,
    pub source: Option<IpAddr>,
    /// What it said last about its tools, and how.
    pub listed: Option<Arc<Listing>>,
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

/// Whether there is news of a list that this session gave: the server has said so, or another session has taken its place.
/// Where sessions come and go with what is minted for them, a new one is no news.
pub fn has_changed(target: &Target, listed_by: u64, context: ExecContext<'_>) -> bool {
    let open = context.runtime.sessions.open::<Session>();
    let mut ours = open.iter().filter(|(key, _)| *key == target.key);
    ours.any(|(_, session)| {
        let another = session.serial != listed_by && !target.is_minted();
        another || session.take_changed()
    })
}

/// End every session, and wait for that a moment. For a process that is about to end.
pub async fn close_all(state: &SharedState) {
    let open = state.sessions.open::<Session>();
    state.sessions.clear();
    let open = open
        .into_iter()
        .filter_map(|(_, session)| Arc::into_inner(session));
    futures::future::join_all(open.map(|session| session.close(GOODBYE))).await;
}

/// One that presents these.
async fn open(
    target: &Arc<Target>,
    key: Key,
    secrets: &Arc<Attachment>,
    context: ExecContext<'_>,
) -> Result<Arc<Session>, McpError> {
    let sessions = &context.runtime.sessions;
    let full = || McpError::Busy {
        provider: target.provider.to_string(),
    };
    let opener = || {
        let (target, secrets, clients) = (target.clone(), secrets.clone(), context.clients.clone());
        move |note: u8| opened(target, secrets, clients, note)
    };
    let session: Arc<Session> = sessions.get(key, full, opener()).await?;
    // What was minted anew is for a session of its own.
    if target.is_minted() && !Arc::ptr_eq(&session.secrets, secrets) {
        sessions.forget(key, &session);
        return sessions.get(key, full, opener()).await;
    }
    Ok(session)
}

/// A new one, and what was learned about its server: the note of the next.
async fn opened(
    target: Arc<Target>,
    secrets: Arc<Attachment>,
    clients: Arc<Clients>,
    note: u8,
) -> Result<(Session, u8), McpError> {
    let era = match note {
        1 => Era::Handshake,
        2 => Era::Stateless,
        _ => {
            let listed = target.listed.as_ref();
            listed.map_or(Era::Unknown, |listing| Era::of(&listing.protocol))
        }
    };
    let begun = match begin(&target, &secrets, &clients, era).await {
        // It may have learned another way of speaking since.
        Err(McpError::Protocol { .. } | McpError::Garbage { .. }) if era != Era::Unknown => {
            begin(&target, &secrets, &clients, Era::Unknown).await
        }
        begun => begun,
    };
    let session = begun.map_err(|error| target.clean(error, &secrets))?;
    let note = match session.era() {
        Era::Unknown => 0,
        Era::Handshake => 1,
        Era::Stateless => 2,
    };
    Ok((session, note))
}

async fn begin(
    target: &Target,
    secrets: &Arc<Attachment>,
    clients: &Arc<Clients>,
    era: Era,
) -> Result<Session, McpError> {
    let provider = &target.provider;
    let link = Link::default();
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
            let lines = Lines::new(provider, streams, secrets.clone(), &link);
            Session::begin(provider, lines, era, link, secrets, START).await
        }
        Server::Endpoint(url) => {
            let endpoint = Endpoint::new(
                provider,
                clients.clone(),
                target.source,
                url.clone(),
                secrets.clone(),
                era,
                &link,
            );
            // The address is ours to know: rmcp gets a name for it.
            let config = StreamableHttpClientTransportConfig::with_uri(format!("mcp:{provider}"))
                // How many are under way is counted elsewhere; lists and goodbyes must not wait for them.
                .max_concurrent_requests(2 * AT_A_TIME);
            let transport = StreamableHttpClientTransport::with_client(endpoint, config);
            Session::begin(provider, transport, era, link, secrets, START).await
        }
    }
}

impl Target {
    fn is_minted(&self) -> bool {
        matches!(self.credential, CallCredential::Deferred(_))
    }

    /// What it presents is for one call only, and so is the session.
    fn is_for_one_call(&self) -> bool {
        matches!(&self.credential, CallCredential::Deferred(deferred) if deferred.is_for_one_call())
    }

    fn key_of_call(&self) -> Key {
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let mut key = self.key;
        if self.is_for_one_call() {
            let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
            key[..8].copy_from_slice(&serial.to_be_bytes());
        }
        key
    }

    /// A server may repeat what it was told in what it complains about, at any length.
    fn clean(&self, error: McpError, secrets: &Attachment) -> McpError {
        let clean = |text: String| secrets.redact_text(text, LONGEST_ERROR);
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
            McpError::Egress(EgressError::Blocked(_)) => {
                EgressError::Blocked(self.told_url.clone()).into()
            }
            other => other,
        }
    }
}
