//! Tools of MCP servers: sessions that are opened once and shared by all who present the same.

mod http;
mod lines;
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
use url::Url;
use zeroize::Zeroizing;

pub use session::{Era, Session};

use self::http::Endpoint;
use crate::catalog::Tool;
use crate::catalog::mcp::{Listed, Listing};
use crate::credential::Attachment;
use crate::error::McpError;
use crate::exec::http::{Means, Presents, obtain};
use crate::process::{self, Resident};
use crate::runtime::Key;
use lines::Lines;
use trouble::Trouble;

/// How long a server may take to get ready, and to list its tools.
const START: Duration = Duration::from_secs(30);
const GOODBYE: Duration = Duration::from_secs(2);

/// A server, and what we are to it: everything filled in.
pub struct Target {
    pub provider: Arc<str>,
    /// What it depends on, hashed: whoever has the same, shares the session.
    pub key: Key,
    pub server: Server,
    pub presents: Presents,
    pub source: Option<IpAddr>,
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
    target: &Target,
    means: Means<'_>,
) -> Result<Box<RawValue>, McpError> {
    let mut secrets = obtain(&target.presents, target.source, means).await?;
    let mut attempt = Attempt::First;
    loop {
        let session = session(target, &secrets, means).await?;
        let answer = session
            .call(&tool.endpoint, args.clone(), means.limits.timeout)
            .await;
        match answer {
            Ok(result) => return result::shape(&result, &secrets),
            // The server may have done it, so only where that doesn't matter, and once.
            Err(McpError::Ended { .. }) if tool.repeatable && attempt == Attempt::First => {
                attempt = Attempt::Second;
            }
            // What was minted was good when it was made. Once: a second refusal means something else.
            Err(McpError::Status { status: 401, .. })
                if matches!(target.presents, Presents::Minted(_)) && attempt == Attempt::First =>
            {
                attempt = Attempt::Second;
                if let Presents::Minted(mint) = &target.presents {
                    means.runtime.minted.forget(mint.key, &secrets);
                }
                means.runtime.sessions.forget(target.key);
                secrets = obtain(&target.presents, target.source, means).await?;
            }
            Err(error) => return Err(scrubbed(error, &secrets)),
        }
    }
}

#[derive(PartialEq, Eq)]
enum Attempt {
    First,
    Second,
}

/// What tools a server has.
pub async fn list(target: &Target, means: Means<'_>) -> Result<Listing, McpError> {
    let secrets = obtain(&target.presents, target.source, means).await?;
    let session = session(target, &secrets, means).await?;
    let tools = session.list(START).await;
    let tools = tools.map_err(|error| scrubbed(error, &secrets))?;
    Ok(Listing {
        at: crate::runtime::now_millis() / 1000,
        protocol: session.version(),
        tools: tools.into_iter().map(Listed::from).collect(),
    })
}

/// Whether an open session has heard that the list has changed.
pub fn has_changed(target: &Key, means: Means<'_>) -> bool {
    let open = means.runtime.sessions.open::<Session>();
    open.iter()
        .any(|(key, session)| key == target && session.take_changed())
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

async fn session(
    target: &Target,
    secrets: &Arc<Attachment>,
    means: Means<'_>,
) -> Result<Arc<Session>, McpError> {
    let open = async |note: u8| {
        let era = match note {
            1 => Era::Handshake,
            2 => Era::Stateless,
            _ => Era::Unknown,
        };
        let session = begin(target, secrets, means, era).await;
        let session = session.map_err(|error| scrubbed(error, secrets))?;
        let note = match session.era() {
            Era::Unknown => 0,
            Era::Handshake => 1,
            Era::Stateless => 2,
        };
        Ok((session, note))
    };
    means.runtime.sessions.get(target.key, open).await
}

async fn begin(
    target: &Target,
    secrets: &Arc<Attachment>,
    means: Means<'_>,
    era: Era,
) -> Result<Session, McpError> {
    let provider = &target.provider;
    let trouble = Arc::new(Trouble::default());
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
            let lines = Lines::new(provider, streams, secrets.clone(), trouble.clone());
            Session::begin(provider, lines, era, trouble, START).await
        }
        Server::Endpoint(url) => {
            let endpoint = Endpoint::new(
                provider,
                means.clients.clone(),
                target.source,
                url.clone(),
                secrets.clone(),
            );
            // The address is ours to know: rmcp gets a name for it.
            let config = StreamableHttpClientTransportConfig::with_uri(format!("mcp:{provider}"));
            let transport = StreamableHttpClientTransport::with_client(endpoint, config);
            Session::begin(provider, transport, era, trouble, START).await
        }
    }
}

/// A server may repeat what it was told in what it complains about.
fn scrubbed(error: McpError, secrets: &Attachment) -> McpError {
    let clean = |text: String| {
        let mut bytes = text.into_bytes();
        secrets.scrub(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
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
        other => other,
    }
}
