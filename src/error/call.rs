//! Why a tool call did not end in a result. One closed set for `/call`, `/mcp` and `ati run`: each member has a status, a text, a code for
//! scripts and a label for metrics.

use super::{Code, UpstreamFault};
use http::StatusCode;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("Failed to read request body: {0}")]
    UnreadableBody(String),
    #[error("Invalid request: {0}")]
    InvalidRequest(String),
    #[error("Unknown tool: '{0}'")]
    UnknownTool(String),
    #[error("Access denied: '{0}' is not in your scopes")]
    OutOfScope(String),
    #[error("Invalid arguments: {name}: {what}")]
    InvalidArgument {
        name: String,
        what: String,
        missing: bool,
    },
    #[error("Rate limit exceeded for '{pattern}': {count}/{unit} (limit: {limit}/{unit})")]
    RateLimited {
        pattern: String,
        count: usize,
        limit: u32,
        unit: &'static str,
    },
    /// `X-Ati-Upstream-Url` makes no sense here.
    #[error("Invalid upstream URL: {0}")]
    UpstreamUrl(String),
    /// It may not be used.
    #[error("Upstream URL denied: {0}")]
    UpstreamDenied(String),
    #[error("Upstream API error: {0}")]
    Http(#[from] ToolError),
    #[error("MCP error: {0}")]
    Mcp(#[from] McpError),
    /// The upstream answered; what the manifest wants of it isn't there to be had.
    #[error("Response processing error: JSONPath extraction failed: {message}")]
    Extraction {
        message: String,
        /// What it answered, as JSON text.
        raw: String,
    },
    /// A defect of ours.
    #[error("Internal error: {0}")]
    Internal(&'static str),
}

/// What went wrong between us and a tool's upstream. No text here tells a credential, or a URL that could hold one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    #[error("API error ({status}): {body}")]
    Status { status: u16, body: String },
    #[error("API key '{0}' not found in keyring")]
    MissingKey(String),
    #[error("the value of API key '{0}' can't be sent (a line break?)")]
    UnusableKey(String),
    #[error("HTTP request failed: {}", .0.words())]
    Request(UpstreamFault),
    #[error("HTTP request failed: more than {0} redirects")]
    TooManyRedirects(usize),
    #[error("HTTP request failed: it redirected to something that is no http or https URL")]
    BadRedirect,
    #[error("HTTP request failed: the answer exceeds {0} bytes")]
    TooLarge(u64),
    #[error("OAuth2 token exchange failed: {0}")]
    TokenExchange(String),
    #[error("OAuth2 token URL must use HTTPS: '{0}'")]
    InsecureTokenUrl(String),
    #[error("auth_generator: {0}")]
    Generator(String),
    #[error("auth_generator: Generator timed out after {0}s")]
    GeneratorTimeout(u64),
    #[error("Invalid path parameter '{name}': value '{value}' contains forbidden characters")]
    PathParameter { name: String, value: String },
    #[error("Missing path parameter '{0}'")]
    MissingPathParameter(String),
    #[error("Header '{0}' is not allowed as a user-supplied parameter")]
    HeaderParameter(String),
    #[error("Invalid header parameter '{0}': its value can't be sent in a header")]
    HeaderValue(String),
    #[error("Invalid parameter '{0}': content_base64 is not base64")]
    Base64(String),
    #[error("the URL of this tool can't be used: {0}")]
    BadUrl(&'static str),
    #[error("SSRF protection: URL '{0}' targets a private/internal network address")]
    Blocked(String),
    #[error("{0}")]
    Setup(String),
}

/// What went wrong between us and an MCP server.
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
    /// It ended, or the connection to it did.
    #[error("MCP transport error: [{provider}] {what}")]
    Ended { provider: String, what: String },
    /// It said what is no MCP.
    #[error("MCP transport error: [{provider}] {what}")]
    Garbage { provider: String, what: String },
    #[error("MCP protocol error (code {code}): {message}")]
    Protocol { code: i32, message: String },
    #[error("MCP server did not return tools capability")]
    NoTools,
    #[error("[{provider}] timeout: the server was not ready within {seconds} s")]
    StartTimeout { provider: String, seconds: u64 },
    #[error("[{provider}] timeout: the server did not answer within {seconds} s")]
    Timeout { provider: String, seconds: u64 },
    #[error("[{provider}] too many calls wait for the server")]
    Busy { provider: String },
    /// The tool itself says that it failed.
    #[error("{0}")]
    Tool(String),
    /// Before anything was said: a credential is missing, an address may not be reached.
    #[error("{0}")]
    Call(ToolError),
}

impl From<ToolError> for McpError {
    fn from(error: ToolError) -> Self {
        McpError::Call(error)
    }
}

impl McpError {
    fn outcome(&self) -> &'static str {
        match self {
            McpError::Tool(_) => "tool_error",
            McpError::Status { .. } => "upstream_status",
            McpError::StartTimeout { .. } | McpError::Timeout { .. } => "timeout",
            McpError::Busy { .. } => "busy",
            McpError::Call(error) => CallError::Http(error.clone()).outcome(),
            _ => "failed",
        }
    }

    fn code(&self) -> Code {
        match self {
            McpError::Spawn { .. } | McpError::Ended { .. } | McpError::Tool(_) => {
                Code::ExecutionFailed
            }
            McpError::Status {
                status: 401 | 403, ..
            } => Code::MissingKey,
            McpError::StartTimeout { .. } | McpError::Timeout { .. } => Code::ProviderTimeout,
            McpError::Call(error) => error.code(),
            McpError::Status { .. }
            | McpError::Garbage { .. }
            | McpError::Protocol { .. }
            | McpError::NoTools
            | McpError::Busy { .. } => Code::UpstreamError,
        }
    }
}

impl CallError {
    pub fn status(&self) -> StatusCode {
        match self {
            CallError::UnreadableBody(_) | CallError::UpstreamUrl(_) => StatusCode::BAD_REQUEST,
            CallError::InvalidRequest(_) | CallError::InvalidArgument { .. } => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            CallError::UnknownTool(_) => StatusCode::NOT_FOUND,
            CallError::OutOfScope(_) | CallError::UpstreamDenied(_) => StatusCode::FORBIDDEN,
            CallError::RateLimited { .. } => StatusCode::TOO_MANY_REQUESTS,
            CallError::Http(_) | CallError::Mcp(_) => StatusCode::BAD_GATEWAY,
            CallError::Extraction { .. } | CallError::Internal(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }

    /// The `outcome` label of `ati_tool_calls_total`.
    pub fn outcome(&self) -> &'static str {
        match self {
            CallError::UnreadableBody(_) => "unreadable_body",
            CallError::InvalidRequest(_) => "invalid_request",
            CallError::UnknownTool(_) => "unknown_tool",
            CallError::OutOfScope(_) | CallError::UpstreamDenied(_) => "denied",
            CallError::UpstreamUrl(_) => "invalid_request",
            CallError::InvalidArgument { .. } => "invalid_arguments",
            CallError::RateLimited { .. } => "rate_limited",
            CallError::Http(ToolError::Status { .. }) => "upstream_status",
            CallError::Http(ToolError::MissingKey(_) | ToolError::UnusableKey(_)) => "missing_key",
            CallError::Http(ToolError::Blocked(_)) => "blocked",
            CallError::Http(error) if error.is_timeout() => "timeout",
            CallError::Http(_) => "failed",
            CallError::Mcp(error) => error.outcome(),
            CallError::Extraction { .. } => "extraction",
            CallError::Internal(_) => "internal",
        }
    }

    pub fn code(&self) -> Code {
        match self {
            CallError::UnknownTool(_) => Code::ToolNotFound,
            CallError::OutOfScope(_) | CallError::UpstreamDenied(_) => Code::ScopeDenied,
            CallError::InvalidArgument { missing: true, .. } => Code::MissingArg,
            CallError::UnreadableBody(_)
            | CallError::UpstreamUrl(_)
            | CallError::InvalidRequest(_)
            | CallError::InvalidArgument { .. } => Code::InvalidValue,
            CallError::RateLimited { .. } => Code::RateExceeded,
            CallError::Http(error) => error.code(),
            CallError::Mcp(error) => error.code(),
            CallError::Extraction { .. } | CallError::Internal(_) => Code::ExecutionFailed,
        }
    }

    /// The text that is kept: without what a caller sent, which may be what the audit redacts.
    pub fn audit_text(&self) -> String {
        match self {
            CallError::Http(ToolError::PathParameter { name, .. }) => {
                format!("Upstream API error: Invalid path parameter '{name}'")
            }
            other => other.to_string(),
        }
    }

    /// What the upstream said, where it was understood and still was no result.
    pub fn raw(&self) -> Option<&str> {
        match self {
            CallError::Extraction { raw, .. } => Some(raw),
            _ => None,
        }
    }
}

impl ToolError {
    fn is_timeout(&self) -> bool {
        match self {
            ToolError::Request(fault) => fault.is_timeout(),
            ToolError::GeneratorTimeout(_) => true,
            _ => false,
        }
    }

    fn code(&self) -> Code {
        match self {
            ToolError::MissingKey(_) | ToolError::UnusableKey(_) => Code::MissingKey,
            ToolError::MissingPathParameter(_) => Code::MissingArg,
            ToolError::PathParameter { .. }
            | ToolError::HeaderParameter(_)
            | ToolError::HeaderValue(_)
            | ToolError::Base64(_) => Code::InvalidValue,
            error if error.is_timeout() => Code::ProviderTimeout,
            ToolError::Generator(_) | ToolError::Setup(_) => Code::ExecutionFailed,
            _ => Code::UpstreamError,
        }
    }
}
