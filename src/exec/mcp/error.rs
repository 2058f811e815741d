use std::sync::Arc;

use crate::credential::CredentialError;
use crate::egress::EgressError;
use crate::error::{Code, ExecFailure, UpstreamFailure, UpstreamFault};

/// Why an MCP server gave no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    #[error("Failed to spawn MCP server: [{provider}] {what}")]
    Spawn { provider: String, what: String },
    #[error("MCP transport error: [{provider}] HTTP {status}: {body}")]
    Status {
        provider: String,
        status: u16,
        body: String,
    },
    /// The server ended, or the connection to it did.
    #[error("MCP transport error: [{provider}] {what}")]
    Ended { provider: String, what: String },
    /// The server sent something that isn't MCP.
    #[error("MCP transport error: [{provider}] {what}")]
    Garbage { provider: String, what: String },
    #[error("MCP protocol error (code {code}): {message}")]
    Protocol { code: i32, message: String },
    #[error("MCP server did not return tools capability")]
    NoTools,
    /// `detail` is what the server did meanwhile, or empty.
    #[error("[{provider}{detail}] timeout: the server was not ready within {seconds} s")]
    StartTimeout {
        provider: String,
        detail: String,
        seconds: u64,
    },
    #[error("[{provider}] timeout: the server did not answer within {seconds} s")]
    Timeout { provider: String, seconds: u64 },
    #[error("[{provider}] too many calls wait for the server")]
    Busy { provider: String },
    /// The tool itself says that it failed.
    #[error("{text}")]
    Tool {
        text: String,
        /// The whole result, as JSON text, where the caller speaks MCP itself.
        native: Option<Arc<str>>,
    },
    /// Before anything was sent: a credential is missing.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// Its URL can't or may not be used, or no answer came back. Where a request failed,
    /// `Target::redact` makes it `Unreachable`.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The server can't be reached. Its address is the cause: callers are told errors without
    /// their causes.
    #[error("MCP transport error: [{provider}] HTTP request failed: {}", .fault.words())]
    Unreachable {
        provider: String,
        fault: UpstreamFault,
        #[source]
        at: ServerAddress,
    },
}

/// Where a server is: `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the server is at {0}")]
pub struct ServerAddress(pub String);

impl McpError {
    /// The error and its causes, for logs and for the admin listener.
    pub fn for_operators(&self) -> String {
        let mut text = self.to_string();
        if let McpError::Unreachable { at, .. } = self {
            text += &format!(": {at}");
        }
        text
    }
}

impl ExecFailure for McpError {
    fn native_result(&self) -> Option<&str> {
        match self {
            McpError::Tool { native, .. } => native.as_deref(),
            _ => None,
        }
    }

    fn intro(&self) -> &'static str {
        "MCP error"
    }

    fn outcome(&self) -> &'static str {
        match self {
            McpError::Tool { .. } => "tool_error",
            McpError::Status { .. } => "upstream_status",
            McpError::StartTimeout { .. } | McpError::Timeout { .. } => "timeout",
            McpError::Busy { .. } => "busy",
            McpError::Credential(error) => error.outcome(),
            McpError::Egress(error) => error.outcome(),
            McpError::Unreachable { fault, .. } => EgressError::Request(*fault).outcome(),
            McpError::Spawn { .. }
            | McpError::Ended { .. }
            | McpError::Garbage { .. }
            | McpError::Protocol { .. }
            | McpError::NoTools => "failed",
        }
    }

    fn code(&self) -> Code {
        match self {
            McpError::Spawn { .. } | McpError::Ended { .. } | McpError::Tool { .. } => {
                Code::ExecutionFailed
            }
            McpError::Status {
                status: 401 | 403, ..
            } => Code::MissingKey,
            McpError::StartTimeout { .. } | McpError::Timeout { .. } => Code::ProviderTimeout,
            McpError::Credential(error) => error.code(),
            McpError::Egress(error) => error.code(),
            McpError::Unreachable { fault, .. } => EgressError::Request(*fault).code(),
            McpError::Status { .. }
            | McpError::Garbage { .. }
            | McpError::Protocol { .. }
            | McpError::NoTools
            | McpError::Busy { .. } => Code::UpstreamError,
        }
    }

    fn upstream_failure(&self) -> Option<UpstreamFailure> {
        let kind = match self {
            McpError::Spawn { .. } => "spawn",
            McpError::Status { status, .. } => return Some(UpstreamFailure::status(*status)),
            McpError::Ended { .. } => "closed",
            McpError::Garbage { .. } | McpError::NoTools => "protocol",
            McpError::Protocol { .. } => "rpc_error",
            McpError::StartTimeout { .. } => "start_timeout",
            McpError::Timeout { .. } => "timeout",
            McpError::Tool { .. } => "tool_error",
            McpError::Credential(error) => return error.upstream_failure(),
            McpError::Egress(error) => return error.upstream_failure(),
            McpError::Unreachable { fault, .. } => {
                return EgressError::Request(*fault).upstream_failure();
            }
            McpError::Busy { .. } => return None,
        };
        Some(UpstreamFailure::new(kind))
    }
}
