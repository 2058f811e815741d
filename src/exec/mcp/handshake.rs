//! The handshake: from a transport to a running rmcp service, in the era of MCP that the server
//! speaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::handler::client::ClientHandler;
use rmcp::model::{ClientConfig, Implementation, ProtocolVersion, RequestMetaObject};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, NotificationContext,
    RunningService,
};
use rmcp::transport::Transport;
use rmcp::{ClientCacheConfig, RoleClient};

use super::McpError;
use super::diagnostics::{STDERR_WAIT, TransportDiagnostics};
use super::http::client_failure;
use super::session::SessionLink;

/// Which generation of MCP a server speaks, once that is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Era {
    /// To be found out with `server/discover`.
    #[default]
    Unknown,
    /// `initialize`, then a session.
    Handshake,
    /// Each request stands alone.
    Stateless,
}

impl Era {
    /// The era of a protocol version that a server has agreed to before.
    pub fn of_protocol(protocol: &str) -> Self {
        serde_json::from_value::<ProtocolVersion>(protocol.into())
            .map_or(Era::Unknown, |version| Era::of_version(&version))
    }

    pub fn of_version(version: &ProtocolVersion) -> Self {
        if version.has_initialize() {
            Era::Handshake
        } else {
            Era::Stateless
        }
    }
}

/// A running session, as rmcp drives it.
pub type ClientService = RunningService<RoleClient, SessionHandler>;

/// ati's side of a session, as rmcp calls it: servers are offered nothing, and may tell that their
/// tools have changed.
pub struct SessionHandler {
    tools_changed: Arc<AtomicBool>,
}

impl ClientHandler for SessionHandler {
    fn get_info(&self) -> ClientConfig {
        client_config()
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.tools_changed.store(true, Ordering::Release);
    }
}

fn client_config() -> ClientConfig {
    let mut config = ClientConfig::default();
    config.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
    config.client_info = Implementation::new("ati", env!("CARGO_PKG_VERSION"));
    config
}

/// What each request to a server of the stateless era says about ati. rmcp adds it to those that it
/// sends itself.
pub fn request_meta(service: &ClientService) -> Option<RequestMetaObject> {
    let version = service.peer_info()?.protocol_version.clone();
    if Era::of_version(&version) != Era::Stateless {
        return None;
    }
    let config = client_config();
    let mut meta = RequestMetaObject::new();
    meta.set_protocol_version(version);
    meta.set_client_info(config.client_info);
    meta.set_client_capabilities(config.capabilities);
    Some(meta)
}

pub async fn handshake<T: Transport<RoleClient> + 'static>(
    provider: &Arc<str>,
    transport: T,
    era: Era,
    link: &SessionLink,
    limit: Duration,
) -> Result<ClientService, McpError> {
    let diagnostics = &link.diagnostics;
    let handler = SessionHandler {
        tools_changed: link.tools_changed.clone(),
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
    let served = handler.serve_with_lifecycle(transport, mode);
    let service = match tokio::time::timeout(limit, served).await {
        Ok(Ok(service)) => service,
        Ok(Err(e)) => return Err(handshake_error(provider, &e, diagnostics).await),
        Err(_) => return Err(not_ready(provider, limit, diagnostics)),
    };
    // Off: ati keeps listings itself, and asks a server to learn what it says now.
    let no_cache = ClientCacheConfig::disabled();
    service.peer().set_response_cache_config(no_cache).await;
    let has_tools = service
        .peer_info()
        .is_some_and(|info| info.capabilities.tools.is_some());
    if has_tools {
        Ok(service)
    } else {
        Err(McpError::NoTools)
    }
}

fn not_ready(provider: &Arc<str>, limit: Duration, diagnostics: &TransportDiagnostics) -> McpError {
    let (provider, seconds) = (provider.to_string(), limit.as_secs());
    let detail = diagnostics.detail();
    if diagnostics.sent_only_garbage() {
        return McpError::Garbage {
            provider,
            what: format!("the server was not ready within {seconds} s{detail}"),
        };
    }
    McpError::StartTimeout {
        provider,
        detail,
        seconds,
    }
}

async fn handshake_error(
    provider: &Arc<str>,
    error: &ClientInitializeError,
    diagnostics: &TransportDiagnostics,
) -> McpError {
    let mut error = error;
    while let ClientInitializeError::LegacyFallbackFailed { fallback, .. } = error {
        error = fallback;
    }
    let broke = matches!(
        error,
        ClientInitializeError::TransportError { .. } | ClientInitializeError::ConnectionClosed(_)
    );
    if broke {
        let deadline = tokio::time::Instant::now() + STDERR_WAIT;
        diagnostics.wait_for_stderr(deadline).await;
    }
    if let Some(cause) = diagnostics.cause() {
        return cause;
    }
    let ended = |what: &str| McpError::Ended {
        provider: provider.to_string(),
        what: format!("{what}{}", diagnostics.detail()),
    };
    match error {
        ClientInitializeError::JsonRpcError(error) => McpError::Protocol {
            code: error.code.0,
            message: error.message.to_string(),
        },
        ClientInitializeError::TransportError { error, .. } => {
            client_failure(error.error.as_ref()).unwrap_or_else(|| ended("the connection broke"))
        }
        ClientInitializeError::ConnectionClosed(_) => ended("the server ended before it was ready"),
        // Not cut here: half a secret would not be found when the error is redacted.
        other => McpError::Garbage {
            provider: provider.to_string(),
            what: format!("a handshake that makes no sense: {other}"),
        },
    }
}
