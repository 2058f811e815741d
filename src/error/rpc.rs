//! Why a JSON-RPC request got no result: one closed set, with the code and the HTTP status of each.

use std::borrow::Cow;

use http::StatusCode;
use serde_json::{Value, json};

use super::{AfterRefusal, CallError};
use crate::mcp::{self, Era, VERSIONS};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RpcError {
    /// Not JSON, or nested too deep to be parsed.
    Parse(String),
    /// JSON, and no JSON-RPC request. The text says what is wrong.
    Invalid(String),
    /// Longer than the limit, in bytes.
    TooLarge(usize),
    UnknownMethod(String),
    Params(String),
    /// `_meta` lacks what every request of the stateless era carries.
    MissingMeta(&'static str),
    /// A tool call that ended before the tool was run.
    Call(Box<CallError>),
    /// The headers of the request say something else than its body.
    Headers(String),
    Version {
        requested: String,
    },
    /// The same of a server behind `/mcp/{provider}`, which names its own versions.
    ServerVersion {
        requested: String,
        supported: Vec<String>,
    },
    /// The server behind `/mcp/{provider}` gave no answer.
    Upstream(Box<CallError>),
    /// A request of the handshake era that names no session.
    NoSession,
    /// The session has ended, or is another caller's: the client has to initialize again.
    UnknownSession,
    /// The client took the request back.
    Cancelled,
    /// There is no room for the request at the moment.
    Busy(String),
    /// A defect of ati. The reason is in the log.
    Internal,
}

impl RpcError {
    pub fn code(&self) -> i32 {
        match self {
            RpcError::Parse(_) => -32700,
            RpcError::Invalid(_)
            | RpcError::TooLarge(_)
            | RpcError::NoSession
            | RpcError::UnknownSession => -32600,
            RpcError::UnknownMethod(_) => -32601,
            RpcError::Params(_) | RpcError::MissingMeta(_) => -32602,
            RpcError::Internal | RpcError::Upstream(_) => -32603,
            RpcError::Headers(_) => -32020,
            RpcError::Version { .. } | RpcError::ServerVersion { .. } => -32022,
            RpcError::Call(error) => match error.as_ref() {
                CallError::OutOfScope(_)
                | CallError::Withheld(_)
                | CallError::ScopesExpired(_)
                | CallError::PolicyDenied { .. }
                | CallError::UpstreamDenied(_) => -32001,
                _ => -32602,
            },
            RpcError::Cancelled | RpcError::Busy(_) => -32000,
        }
    }

    pub fn message(&self) -> Cow<'_, str> {
        match self {
            RpcError::Parse(what) => format!("Parse error: {what}").into(),
            RpcError::Invalid(what) => format!("Invalid Request: {what}").into(),
            RpcError::TooLarge(limit) => {
                format!("Invalid Request: longer than {limit} bytes").into()
            }
            RpcError::UnknownMethod(method) => format!("Method not found: '{method}'").into(),
            RpcError::Params(what) | RpcError::Headers(what) | RpcError::Busy(what) => what.into(),
            RpcError::Call(error) | RpcError::Upstream(error) => error.to_string().into(),
            RpcError::NoSession => "Bad Request: Mcp-Session-Id header is required".into(),
            RpcError::UnknownSession => "Session not found: initialize again".into(),
            RpcError::MissingMeta(what) => format!("Invalid params: _meta lacks {what}").into(),
            RpcError::Version { requested } | RpcError::ServerVersion { requested, .. } => {
                format!("Unsupported protocol version: {requested}").into()
            }
            RpcError::Cancelled => "Request cancelled".into(),
            RpcError::Internal => "Internal error".into(),
        }
    }

    pub fn data(&self) -> Option<Value> {
        if let RpcError::Version { requested } = self {
            Some(json!({"supported": VERSIONS, "requested": requested}))
        } else if let RpcError::ServerVersion {
            requested,
            supported,
        } = self
        {
            Some(json!({"supported": supported, "requested": requested}))
        } else if let RpcError::Call(error) = self {
            error.rule().map(|rule| json!({"rule": rule}))
        } else {
            None
        }
    }

    /// The status of the answer. In the handshake era every answer to a JSON-RPC request is 200;
    /// what is no request, or contradicts its own headers, isn't.
    pub fn status(&self, era: Era) -> StatusCode {
        match self {
            RpcError::Parse(_)
            | RpcError::Invalid(_)
            | RpcError::MissingMeta(_)
            | RpcError::Headers(_)
            | RpcError::NoSession
            | RpcError::Version { .. }
            | RpcError::ServerVersion { .. } => StatusCode::BAD_REQUEST,
            RpcError::UnknownSession => StatusCode::NOT_FOUND,
            RpcError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            RpcError::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
            RpcError::UnknownMethod(_) => match era {
                Era::Stateless => StatusCode::NOT_FOUND,
                Era::Handshake => StatusCode::OK,
            },
            RpcError::Params(_)
            | RpcError::Upstream(_)
            | RpcError::Call(_)
            | RpcError::Cancelled
            | RpcError::Internal => StatusCode::OK,
        }
    }

    /// The `reason` label of `ati_refusals_total`.
    pub fn label(&self) -> &'static str {
        match self {
            RpcError::Parse(_) => "rpc_parse",
            RpcError::Invalid(_) => "rpc_invalid",
            RpcError::TooLarge(_) => "rpc_too_large",
            RpcError::UnknownMethod(_) => "rpc_unknown_method",
            RpcError::Params(_) | RpcError::MissingMeta(_) => "rpc_params",
            RpcError::Call(error) | RpcError::Upstream(error) => error.outcome(),
            RpcError::NoSession | RpcError::UnknownSession => "rpc_session",
            RpcError::Headers(_) => "rpc_headers",
            RpcError::Version { .. } | RpcError::ServerVersion { .. } => "rpc_version",
            RpcError::Cancelled => "rpc_cancelled",
            RpcError::Busy(_) => "memory_full",
            RpcError::Internal => "internal",
        }
    }
}

/// A JSON-RPC error as the answer to a request over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcRefusal {
    pub error: RpcError,
    pub era: Era,
    /// JSON text. None where the request has none that can be used.
    pub id: Option<Box<str>>,
}

impl RpcRefusal {
    pub fn body(&self) -> Vec<u8> {
        mcp::failure(self.id.as_deref(), self.era, &self.error)
    }

    pub fn status(&self) -> StatusCode {
        self.error.status(self.era)
    }

    /// Seconds after which the same request may succeed.
    pub fn retry_after(&self) -> Option<&'static str> {
        matches!(self.error, RpcError::Busy(_)).then_some("1")
    }

    pub fn connection(&self) -> AfterRefusal {
        match self.error {
            // Where the body ends isn't known, or too far off.
            RpcError::TooLarge(_) | RpcError::Busy(_) => AfterRefusal::Close,
            RpcError::Parse(_)
            | RpcError::Invalid(_)
            | RpcError::UnknownMethod(_)
            | RpcError::Params(_)
            | RpcError::MissingMeta(_)
            | RpcError::Call(_)
            | RpcError::Upstream(_)
            | RpcError::NoSession
            | RpcError::UnknownSession
            | RpcError::Headers(_)
            | RpcError::Version { .. }
            | RpcError::ServerVersion { .. }
            | RpcError::Cancelled
            | RpcError::Internal => AfterRefusal::KeepOpen,
        }
    }
}
