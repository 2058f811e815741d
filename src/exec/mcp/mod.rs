//! Tools of MCP servers, called over sessions that callers with the same key share.
//!
//! ```text
//! call_tool, list_tools            request.rs
//!   request_with_retry             one retry at most: on another session if the first one broke
//!      |                           off, or with a new credential after a 401
//!      |- credentials::obtain
//!      |- lease_session            open.rs: from the pool (SharedState::sessions), or a new one
//!      |     open_session          single flight, in the era of MCP that the server speaks
//!      |        connect            stdio.rs: a child process and its streams (outbox.rs, lines.rs)
//!      |                           http.rs: requests and event streams (events.rs, bounded.rs)
//!      |                           message.rs: what a server sends, classified
//!      |                           big.rs: big messages, on the threads for long work
//!      |        handshake          handshake.rs: rmcp's service on that transport
//!      '- Session::call_tool,      session.rs: permits, cancellation, progress (progress.rs)
//!         Session::list_tools      errors tell what the transport noticed (diagnostics.rs)
//!            calls.rs              calls over stdio, which go around rmcp
//!            rmcp_call.rs          calls of servers behind URLs
//!            tool_result.rs        their results are read as far as they are needed
//!   result::made                   the result as callers get it, redacted
//! ```

mod big;
pub mod bounded;
mod calls;
mod content_type;
mod diagnostics;
mod error;
pub mod events;
mod handshake;
mod http;
mod http_refusal;
pub mod lines;
pub mod message;
mod open;
mod outbox;
mod param_headers;
mod progress;
pub mod relay;
mod request;
mod result;
mod rmcp_call;
mod session;
mod stdio;
mod tool_result;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use url::Url;
use zeroize::Zeroizing;

pub use error::{McpError, ServerAddress};
pub use request::{ToolListing, call_tool, list_tools};

use crate::catalog::mcp::Listing;
use crate::credential::Attachment;
use crate::egress::EgressError;
use crate::exec::credentials::CallCredential;
use crate::exec::{ExecContext, SharedState};
use crate::process::{RunAs, Sandbox};
use crate::runtime::{Key, Pool};
use handshake::Era;
use http::send;
use session::Session;

/// How long a server may take for the handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(30);
const CLOSE_LIMIT: Duration = Duration::from_secs(2);
/// How much of a server's error is told.
const LONGEST_ERROR: usize = 4096;

/// Open sessions, each with the era of its server.
pub type Sessions = Pool<Session, Era>;

/// A server, and everything that a session with it needs. All placeholders are filled in.
pub struct Target {
    pub provider: Arc<str>,
    /// Derived from everything that a session depends on: targets with the same key share one.
    pub key: Key,
    pub server: ServerSpec,
    pub credential: CallCredential,
    pub source: Option<IpAddr>,
    /// The last listing of the server's tools; it tells the era.
    pub last_listing: Option<Arc<Listing>>,
    /// The URL as it stands in the manifest, without secrets: what errors may tell.
    pub manifest_url: String,
    /// Host and port of the URL, without secrets: what logs may tell.
    pub address: String,
}

/// How a server is reached.
pub enum ServerSpec {
    Program {
        program: String,
        args: Vec<String>,
        env: Vec<(String, Zeroizing<String>)>,
        /// The user that it runs as; ati's own where there is none.
        run_as: Option<RunAs>,
        sandbox: Option<Sandbox>,
    },
    Endpoint(Url),
}

impl ServerSpec {
    fn transport_name(&self) -> &'static str {
        match self {
            ServerSpec::Program { .. } => "stdio",
            ServerSpec::Endpoint(_) => "http",
        }
    }
}

/// Whether a listing that the session `listed_by` gave may be outdated: the server has said so,
/// another session has taken that one's place, or no other could be opened. Sessions that are
/// replaced with their minted credential don't count.
pub fn tools_may_have_changed(target: &Target, listed_by: u64, context: ExecContext<'_>) -> bool {
    if context.runtime.sessions.has_failed(target.key) {
        return true;
    }
    let open = context.runtime.sessions.open_sessions();
    let mut matching = open.iter().filter(|(key, _)| *key == target.key);
    matching.any(|(_, session)| {
        let replaced = session.serial != listed_by && !target.is_minted();
        replaced || session.take_tools_changed()
    })
}

/// Ends every session and waits for that, within a limit. For a process that is about to end.
pub async fn close_all(state: &SharedState) {
    let open = state.sessions.open_sessions();
    state.sessions.clear();
    let open = open
        .into_iter()
        .filter_map(|(_, session)| Arc::into_inner(session));
    futures::future::join_all(open.map(|session| session.close(CLOSE_LIMIT))).await;
}

impl Target {
    fn is_minted(&self) -> bool {
        matches!(self.credential, CallCredential::Deferred(_))
    }

    /// Whether the credential is for one call only, and so is the session.
    fn is_for_one_call(&self) -> bool {
        matches!(&self.credential, CallCredential::Deferred(deferred) if deferred.is_for_one_call())
    }

    /// The key of the session in the pool: a new one for each call whose session isn't shared.
    fn pool_key(&self) -> Key {
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let mut key = self.key;
        if self.is_for_one_call() {
            let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
            key[..8].copy_from_slice(&serial.to_be_bytes());
        }
        key
    }

    /// Redacts and cuts what a server says in an error: it may repeat the credential. The error of
    /// a server that can't be reached gets its provider and its address.
    fn redact(&self, error: McpError, attachment: &Attachment) -> McpError {
        let redact = |text: String| attachment.redact_beginning(&text, LONGEST_ERROR);
        match error {
            McpError::Ended { provider, what } => McpError::Ended {
                provider,
                what: redact(what),
            },
            McpError::Garbage { provider, what } => McpError::Garbage {
                provider,
                what: redact(what),
            },
            McpError::StartTimeout {
                provider,
                detail,
                seconds,
            } => McpError::StartTimeout {
                provider,
                detail: redact(detail),
                seconds,
            },
            McpError::Protocol { code, message } => McpError::Protocol {
                code,
                message: redact(message),
            },
            McpError::Egress(EgressError::Request(fault)) => McpError::Unreachable {
                provider: self.provider.to_string(),
                fault,
                at: ServerAddress(self.address.clone()),
            },
            // A key may be part of the host.
            McpError::Egress(EgressError::Blocked(_)) => {
                EgressError::Blocked(self.manifest_url.clone()).into()
            }
            other => other,
        }
    }
}
