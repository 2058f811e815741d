//! The server's end of a session.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::exec::mcp::relay::{HttpUpstream, StdioUpstream};

pub const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// How long a server may take to answer that a session is deleted.
const DELETE_LIMIT: Duration = Duration::from_secs(5);

pub enum Upstream {
    Http(HttpSession),
    Program(StdioUpstream),
}

impl Upstream {
    pub fn is_open(&self) -> bool {
        match self {
            Upstream::Http(_) => true,
            Upstream::Program(program) => program.is_open(),
        }
    }
}

/// A session at a server behind a URL.
pub struct HttpSession {
    /// None where the server keeps none.
    pub session: Option<HeaderValue>,
    /// The version that client and server agreed on.
    pub version: Option<HeaderValue>,
    /// The server as `initialize` reached it, for the end of the session.
    pub opened_by: Arc<HttpUpstream>,
}

impl HttpSession {
    /// The headers that name the session.
    pub fn headers(&self, mut headers: HeaderMap) -> HeaderMap {
        if let Some(session) = &self.session {
            headers.insert(SESSION, session.clone());
        }
        if let Some(version) = &self.version
            && !headers.contains_key(VERSION)
        {
            headers.insert(VERSION, version.clone());
        }
        headers
    }

    /// Deletes the server's session, in the background. A courtesy: nothing depends on it.
    pub fn end(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if self.session.is_none() {
            return;
        }
        let (headers, server) = (self.headers(HeaderMap::new()), self.opened_by.clone());
        runtime.spawn(async move {
            let deleted = server.send(Method::DELETE, headers, None);
            let _ = tokio::time::timeout(DELETE_LIMIT, deleted).await;
        });
    }
}
